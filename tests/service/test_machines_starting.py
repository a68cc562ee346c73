"""Jobs that are cancelled or paused while their machines start: it takes effect at once, and nothing is left."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fleet.worlds import late_binary, wait_until
from tests.service.machine_world import OBJECTS, World, check_charges, machine_lines, send
from tests.service.server import until
from tradewind.engine.runs import STARTING
from tradewind.gateway.process import READY_S

pytestmark = pytest.mark.slow
#: A machine that never answers; the launch would end with an error only after READY_S.
LATE = "site-b-1"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path, stack, "--share-keys", environment={"TRADEWIND_GATEWAY": late_binary(tmp_path, LATE)})


def starting(world: World, client: httpx.Client, name: str) -> str:
    """Submit a job, and return its id once both machines of it were launched."""
    job_id = send(client, name, via="fleet")
    wait_until(lambda: len(world.machines()) == 2, READY_S)
    assert client.get(f"/v1/jobs/{job_id}").json()["state"] == "running"
    return job_id


def stopped(world: World, client: httpx.Client, job_id: str, change: str, state: str) -> dict[str, Any]:
    pids = world.machines()
    assert client.post(f"/v1/jobs/{job_id}/{change}").status_code == 202
    found = until(client, job_id, state)
    world.nothing_is_left(client)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    return found


def check_runs(client: httpx.Client, job_id: str, count: int) -> None:
    """Check that each run was stopped while its machines started: a launch that ends by itself has another message."""
    runs = client.get(f"/v1/jobs/{job_id}/receipt").json()["runs"]
    assert [(run["outcome"], run["message"]) for run in runs] == [("interrupted", STARTING)] * count, runs


def test_cancel_and_pause_end_the_machines_that_start(world: World) -> None:
    with world.server.client() as client:
        job_id = starting(world, client, "cancelled")
        cancelled = stopped(world, client, job_id, "cancel", "cancelled")
        lines = machine_lines(cancelled)
        assert len(lines) == 2 and all(line["usd"] > 0 for line in lines), lines
        check_charges(client, job_id)
        check_runs(client, job_id, 1)
        assert cancelled["counts"]["objects_done"] == 0
        assert client.get(f"/v1/jobs/{job_id}/objects").json() == {"objects": [], "next": None}

        job_id = starting(world, client, "paused")
        paused = stopped(world, client, job_id, "pause", "paused")
        metered = paused["ledger"]["metered_usd"]
        assert metered > 0
        time.sleep(1.0)
        assert client.get(f"/v1/jobs/{job_id}").json()["ledger"]["metered_usd"] == metered, "nothing runs any more"
        gateway = Path(world.server.environment["TRADEWIND_GATEWAY"])
        gateway.write_text(gateway.read_text().replace(LATE, "nobody"))
        assert client.post(f"/v1/jobs/{job_id}/resume").status_code == 202
        done = until(client, job_id, "done")
        assert world.copied("paused") and done["counts"]["objects_done"] == OBJECTS
        assert {line["run"] for line in machine_lines(done)} == {1, 2}
        check_charges(client, job_id)
        world.nothing_is_left(client)


def test_a_server_that_stops_does_not_wait_for_the_launch(world: World) -> None:
    with world.server.client() as client:
        job_id = starting(world, client, "stopped")
    pids = world.machines()
    world.server.kill(signal.SIGTERM)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    world.server.start()
    with world.server.client() as client:
        wait_until(lambda: len(world.machines()) == 2, READY_S)
        stopped(world, client, job_id, "cancel", "cancelled")
        check_charges(client, job_id)
        check_runs(client, job_id, 2)
