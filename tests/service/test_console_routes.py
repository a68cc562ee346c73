"""The page of a running job in the console: its routes on the map with live rates, beside the same in tables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.service.machine_world import World, when_machines_move
from tests.service.server import until
from tests.service.test_console import NEEDS_BUILD, run_in_browser
from tradewind.model.job import MIN_CHUNK_BYTES

REGIONS = ("aws:us-east-1", "aws:eu-west-1")
#: The job must still run when its machine has ended and has been replaced.
OBJECTS, OBJECT_BYTES, BYTES_PER_S = 100, 1_000_000, 2_500_000


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path_factory.mktemp("routes"), stack, "--share-keys", regions=REGIONS)


@pytest.mark.slow
@NEEDS_BUILD
def test_a_running_job_shows_its_routes_on_a_map(world: World) -> None:
    for number in range(OBJECTS):
        world.clients[0].put("bucket", f"many/{number}", os.urandom(OBJECT_BYTES))
    with world.server.client() as client:
        asked: dict[str, Any] = {
            "source": "connection:a/many/",
            "destination": "connection:b/seen/",
            "recursive": True,
            "via": "fleet",
        }
        asked |= {"limit_bytes_per_s": BYTES_PER_S, "chunk_bytes": MIN_CHUNK_BYTES}
        job_id = client.post("/v1/jobs", json=asked, headers={"Idempotency-Key": "seen"}).json()["id"]
        when_machines_move(world, client, job_id)
        run_in_browser(
            "routes",
            TRADEWIND_URL=world.server.url,
            TRADEWIND_TOKEN=world.server.admin_token(),
            TRADEWIND_JOB=job_id,
            TRADEWIND_MACHINES=" ".join(str(pid) for pid in world.machines()),
        )
        plan = client.get(f"/v1/jobs/{job_id}/plan").json()
        ended = [machine for machine in plan["machines"] if not machine["is_used"]]
        assert [machine["replaced_by"] for machine in ended] == [plan["routes"][0]["name"].split(" → ")[-1]]
        client.post(f"/v1/jobs/{job_id}/cancel")
        until(client, job_id, "cancelled")
