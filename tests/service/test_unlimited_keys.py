"""A service whose operator shares no keys with machines, and a tenant with keys that cannot be limited."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.service.machine_world import World, body, machine_lines, send
from tests.service.server import until


@pytest.mark.slow
def test_keys_that_cannot_be_limited_reach_no_machine(tmp_path: Path) -> None:
    """A job that must use machines fails before any is rented; with `auto` it runs on the server's own machine."""
    with ExitStack() as stack:
        world = World(tmp_path, stack)
        with world.server.client() as client:
            made = client.post("/v1/jobs", json=body("whole", via="fleet"), headers={"Idempotency-Key": "whole"})
            failed = until(client, made.json()["id"], "failed")
            assert "cannot be limited to this job" in failed["error"] and failed["ledger"] is None
            done = until(client, send(client, "here", via="auto"), "done")
            assert machine_lines(done) == [] and world.copied("here")
        assert not list(tmp_path.glob("on */machines/*"))
