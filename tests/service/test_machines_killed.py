"""Servers that die while their jobs run on machines: the next one ends these machines, and none is left."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from benchmarks.service.soak.world import stepped_clock
from testbed.postgres import Postgres
from testbed.servers import InstallError
from tests.fleet.worlds import wait_until
from tests.service.machine_world import (
    REGIONS,
    SLOW_BYTES_PER_S,
    World,
    check_charges,
    machine_lines,
    send,
    when_machines_move,
)
from tests.service.server import do_not_overlap, until

pytestmark = pytest.mark.slow


def test_the_next_server_ends_the_machines_and_resumes(tmp_path: Path) -> None:
    with ExitStack() as stack:
        world = World(tmp_path, stack, "--share-keys")
        with world.server.client() as client:
            job_id = send(client, "killed", limit_bytes_per_s=SLOW_BYTES_PER_S)
            when_machines_move(world, client, job_id)
        world.server.kill()
        assert world.machines()
        world.server.start()
        with world.server.client() as client:
            done = until(client, job_id, "done")
            assert world.copied("killed")
            assert {line["run"] for line in machine_lines(done)} == {1, 2}
            world.nothing_is_left(client)
            check_charges(client, job_id)


def test_a_wrong_clock_of_a_killed_server_does_not_change_what_its_machines_cost(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("-300")
    with ExitStack() as stack:
        world = World(tmp_path, stack, "--share-keys", environment=stepped_clock(clock))
        began_s = time.monotonic()
        with world.server.client() as client:
            job_id = send(client, "clock", limit_bytes_per_s=SLOW_BYTES_PER_S)
            when_machines_move(world, client, job_id)
        world.server.kill()
        clock.write_text("0")
        world.server.start()
        with world.server.client() as client:
            lines = machine_lines(until(client, job_id, "done"))
            check_charges(client, job_id)
        assert {line["run"] for line in lines} == {1, 2}
        assert max(line["quantity"] for line in lines) < time.monotonic() - began_s


@pytest.mark.parametrize("change", ["pause", "cancel"])
def test_a_job_that_was_to_stop_when_its_server_died_leaves_nothing(tmp_path: Path, change: str) -> None:
    with ExitStack() as stack:
        world = World(tmp_path, stack, "--share-keys")
        with world.server.client() as client:
            job_id = send(client, "stopped", limit_bytes_per_s=SLOW_BYTES_PER_S)
            when_machines_move(world, client, job_id)
            assert client.post(f"/v1/jobs/{job_id}/{change}").status_code == 202
        world.server.kill()
        world.server.start()
        with world.server.client() as client:
            until(client, job_id, "paused" if change == "pause" else "cancelled")
            world.nothing_is_left(client)
            first = client.get(f"/v1/jobs/{job_id}").json()["ledger"]["metered_usd"]
            time.sleep(1.0)
            assert client.get(f"/v1/jobs/{job_id}").json()["ledger"]["metered_usd"] == first, "nothing runs any more"


def test_a_replica_that_loses_its_lease_ends_its_machines(tmp_path: Path) -> None:
    """A frozen replica loses its job. When it wakes, it ends its run and the machines before another one resumes."""
    with ExitStack() as stack:
        try:
            postgres = Postgres()
            stack.callback(postgres.close)
        except InstallError as error:
            pytest.skip(str(error))
        options = ("--share-keys", "--database", postgres.url, "--lease", "2")
        world = World(tmp_path, stack, *options, replicas=2, environment=postgres.environment)
        with world.server.client() as client:
            job_id = send(client, "frozen", limit_bytes_per_s=SLOW_BYTES_PER_S)
            when_machines_move(world, client, job_id)
        before = world.machines()
        frozen = _owner(postgres, job_id)
        first, second = sorted(world.servers, key=lambda one: str(one.process and one.process.pid) != frozen)
        assert first.process is not None and second.process is not None
        os.kill(first.process.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: _owner(postgres, job_id) != frozen)
        finally:
            os.kill(first.process.pid, signal.SIGCONT)
        with second.client() as client:
            until(client, job_id, "done")
            assert world.copied("frozen")
            receipt = client.get(f"/v1/jobs/{job_id}/receipt").json()
            assert len(receipt["runs"]) == 2 and do_not_overlap([receipt]), receipt["runs"]
            world.nothing_is_left(client)
        assert len(before) == len(REGIONS) and not any(Path(f"/proc/{pid}").exists() for pid in before)


def _owner(postgres: Postgres, job_id: str) -> str:
    """Return the process id of the server that works on a job."""
    with psycopg.connect(postgres.url, password=postgres.environment["PGPASSWORD"]) as connection:
        row = connection.execute("SELECT owner FROM jobs WHERE id = %s", (job_id,)).fetchone()
    assert row is not None
    return str(row[0].split("-")[-2])
