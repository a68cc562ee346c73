"""An overlay transfer whose command has ended: its machines end too, and `jobs resume` continues on new ones."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.drive import Command, Running
from testbed.sky import GOODPUT_PER_WIRE
from tests.sky.world import OPTIONS, SINK, differences, write_files, write_world
from tradewind.sky.folders import sky_folder
from tradewind.sky.running import Sky

VOLUME_BYTES = 90_000_000
#: The command is stopped when this many bytes have been acknowledged.
ACKED_BYTES = 30_000_000
#: Bytes that arrive in a second: journals are written in batches, and disks of busy machines are slow.
IN_DOUBT_BYTES = 12_500_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_files(tmp_path / "source", VOLUME_BYTES)


@pytest.fixture
def sky(command: Command, tmp_path: Path) -> Iterator[Sky]:
    """The sky that the command finds for the file `world.json`."""
    file = write_world(tmp_path)
    with Sky.up(file, folder=sky_folder(str(command.state), file)) as running:
        yield running


def start(command: Command, tmp_path: Path, source: Path, *more: str) -> Running:
    return command.start("cp", "-r", source, tmp_path / "copy", *OPTIONS, "--sky", tmp_path / "world.json", *more)


def acked_bytes(running: Running) -> int:
    return max(int(event["bytes_done"]) for event in running.events if event["event"] == "progress")


def arrived_bytes(sky: Sky) -> float:
    """Return the bytes sent to the sink's machine, without the wire's framing."""
    inside = {machine.name for machine in sky.machines_in(SINK)}
    return sum(path.wire_bytes for path in sky.stats().paths if path.dst in inside) * GOODPUT_PER_WIRE


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="SIGKILL"),
        pytest.param(signal.SIGINT, id="SIGINT", marks=pytest.mark.slow),
    ],
)
def test_a_stopped_job_resumes_on_new_machines(
    command: Command, sky: Sky, tmp_path: Path, source: Path, number: signal.Signals
) -> None:
    running = start(command, tmp_path, source)
    running.wait_for_bytes(ACKED_BYTES)
    running.signal(number)
    ended = running.finish()
    command.wait_until_alone()
    (job,) = command.jobs()
    assert (ended.code, job["state"]) == (130 if number == signal.SIGINT else -number, "interrupted")
    acked = acked_bytes(running)
    sky.reset_stats()
    done = command.run("jobs", "resume", job["id"], "--json").expect(0)
    assert differences(source, tmp_path / "copy") == []
    # Acknowledged bytes are not sent again: the rest crossed the wire once, with TLS and TCP retransmissions.
    assert arrived_bytes(sky) < 1.1 * (VOLUME_BYTES - acked)
    assert done.summary["progress"]["bytes_earlier"] >= acked
    command.wait_until_alone()
    assert command.run("fleet", "list").stdout == ""
    assert os.listdir(command.state / "fleets") == []


@pytest.mark.slow
def test_a_sky_started_for_a_job_is_started_again_when_it_is_resumed(
    command: Command, tmp_path: Path, source: Path
) -> None:
    write_world(tmp_path)
    command.environment["TMPDIR"] = str(tmp_path / "tmp")
    (tmp_path / "tmp").mkdir()
    running = start(command, tmp_path, source)
    running.wait_for_bytes(ACKED_BYTES)
    running.signal(signal.SIGKILL)
    running.finish()
    command.wait_until_alone()
    (job,) = command.jobs()
    done = command.run("jobs", "resume", job["id"], "--json").expect(0)
    assert differences(source, tmp_path / "copy") == []
    # The lead was killed with its sky: only work that was not yet in its journal is repeated.
    assert done.summary["progress"]["bytes_earlier"] >= acked_bytes(running) - IN_DOUBT_BYTES
    command.wait_until_alone()
    assert os.listdir(command.state / "fleets") == []
    assert os.listdir(tmp_path / "tmp") == []


def test_a_detached_job_keeps_its_sky_and_its_machines_and_ends_them(
    command: Command, tmp_path: Path, source: Path
) -> None:
    file = write_world(tmp_path)
    words = ("cp", "-r", source, tmp_path / "copy", *OPTIONS, "--sky", file, "--detach")
    started = command.run(*words).expect(0)
    assert "plan    90.0 MB at " in started.stderr
    command.wait_until_alone(timeout_s=120)
    assert [(job["id"], job["state"]) for job in command.jobs()] == [(started.stdout.strip(), "done")]
    assert differences(source, tmp_path / "copy") == []
    assert os.listdir(command.state / "fleets") == []
