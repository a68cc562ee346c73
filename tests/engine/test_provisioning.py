"""Chunk size and memory for a plan's connections."""

import json

import pytest

from tradewind.engine.provisioning import CHUNKS_PER_CONNECTION, GATEWAY_BYTES_MAX, chunk_bytes_for, with_memory_for
from tradewind.engine.topology import topology_document, topology_from_document
from tradewind.model.job import MIN_CHUNK_BYTES, MIN_FILE_CHUNK_BYTES
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute

PLAN = Plan(
    tuple(PlannedGateway(name) for name in ("lead", "a", "r", "b")),
    (PlannedHop("a", "r", 24), PlannedHop("a", "b", 40), PlannedHop("r", "b", 24)),
    (PlannedRoute(("a", "r", "b"), 0.4), PlannedRoute(("a", "b"), 0.6)),
)


@pytest.mark.parametrize("scale", [1.0, 0.1, 0.01])
def test_every_connection_of_a_source_has_a_chunk_while_the_next_is_read(scale: float) -> None:
    chunk_bytes = chunk_bytes_for(PLAN, scale, MIN_FILE_CHUNK_BYTES)
    memory_bytes = {gateway.name: gateway.limits.memory_bytes for gateway in PLAN.gateways}
    assert chunk_bytes * 64 * CHUNKS_PER_CONNECTION <= memory_bytes["a"]
    assert chunk_bytes <= (16 << 20) * scale + 1 or chunk_bytes == MIN_FILE_CHUNK_BYTES


def test_if_chunks_cannot_be_smaller_memory_is_larger() -> None:
    chunk_bytes = chunk_bytes_for(PLAN, 1.0, MIN_CHUNK_BYTES)
    assert chunk_bytes == MIN_CHUNK_BYTES
    roomy = with_memory_for(PLAN, chunk_bytes)
    memory_bytes = {gateway.name: gateway.limits.memory_bytes for gateway in roomy.gateways}
    assert memory_bytes["a"] == memory_bytes["b"] == 2 * 64 * MIN_CHUNK_BYTES
    assert memory_bytes["r"] == memory_bytes["lead"] == 256 << 20
    assert {gateway.limits.memory_bytes for gateway in with_memory_for(PLAN, 64 << 20).gateways} == {
        256 << 20,
        GATEWAY_BYTES_MAX,
    }


def test_a_resumed_job_has_the_same_memory() -> None:
    roomy = with_memory_for(PLAN, MIN_CHUNK_BYTES)
    assert topology_from_document(json.loads(json.dumps(topology_document(roomy)))).plan.gateways == roomy.gateways
