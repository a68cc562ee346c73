"""Ctrl-C once, twice or three times at any moment: the command ends within seconds and leaves no process."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from testbed.chains import chain, write
from testbed.drive import Command, Running
from testbed.servers.process import guarded
from testbed.trees import MIB, tree_hashes, write_large, write_tree
from tests.fleet.worlds import late_binary
from tradewind.cli.signals import ONE_REQUEST_S

LARGE_BYTES = 64 * MIB
RATE = "4MB/s"
"""Rate limit, so low that the job cannot finish before it is stopped."""
ENDS_S = 30.0
"""Time limit of a stop [s], on a busy machine. A command that hangs, hangs for ever."""
SEEDS = range(int(os.environ.get("TRADEWIND_SIGNAL_SEEDS", "8")))


@pytest.fixture
def start(command: Command, tmp_path: Path) -> Callable[[bool], Running]:
    source = tmp_path / "source"
    write_large(source / "large", LARGE_BYTES)
    topology = write(chain("relay"), tmp_path / "topology.json")

    def begin(through_gateways: bool) -> Running:
        more = ("--topology", topology) if through_gateways else ()
        return command.start("cp", "-r", source, tmp_path / "copy", "--limit-rate", RATE, *more)

    return begin


@contextmanager
def frozen(pids: list[int]) -> Iterator[None]:
    """Suspend processes within the context."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextmanager
def files_of_at_most(bytes_max: int) -> Iterator[None]:
    """Limit the length of files that processes started within the context can write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
def test_a_journal_that_cannot_grow_leaves_no_temporary_files(command: Command, tmp_path: Path) -> None:
    source, copy, files = tmp_path / "from", tmp_path / "to", 20_000
    write_tree(source, {str(number): 10 for number in range(files)})
    write_tree(tmp_path / "one", {"a": 10})
    command.run("cp", "-r", tmp_path / "one", tmp_path / "other").expect(0)  # It creates the database.
    with files_of_at_most(400 << 10):
        running = command.start("cp", "-r", source, copy)
    done = running.finish().expect(1)
    assert "journal" in done.summary["message"]
    written = [path.name for path in copy.iterdir()]
    assert 0 < len(written) < files
    assert not [name for name in written if ".tradewind-" in name]
    command.run("jobs", "resume", str(command.jobs()[1]["id"])).expect(0)
    assert tree_hashes(copy) == tree_hashes(source)


def wait_until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + ENDS_S
    while not condition():
        assert time.monotonic() < end_s, "the condition never held"
        time.sleep(0.02)


@pytest.mark.parametrize("seed", SEEDS)
def test_signals_at_random_moments(command: Command, start: Callable[[bool], Running], seed: int) -> None:
    rng = random.Random(seed)
    running = start(rng.random() < 0.7)
    time.sleep(rng.uniform(0.3, 3.0))  # Stop the job at a random moment.
    for _ in range(rng.choice([1, 2, 3])):
        if running.process.poll() is None:
            running.signal(rng.choice([signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))
        time.sleep(rng.uniform(0.0, 1.2))
    running.finish(ENDS_S).expect(130)
    command.wait_until_alone(ENDS_S)


@pytest.mark.parametrize("signals", [2, 3])
def test_a_second_ctrl_c_quits_at_once_while_the_lead_does_not_drain(
    command: Command, start: Callable[[bool], Running], signals: int
) -> None:
    running = start(True)
    running.wait_for_bytes(1)
    with frozen(list(running.gateways().values())):
        for number in range(signals):
            running.signal(signal.SIGINT)
            if number == 0:
                wait_until(lambda: b"stopping:" in running._stderr)
            with suppress(Exception):
                running.process.wait(2 * ONE_REQUEST_S)  # Signals within ONE_REQUEST_S count as one request.
            if running.process.poll() is not None:
                break
        done = running.finish(ENDS_S).expect(130)
    assert "quit at once" in done.stderr
    (job,) = command.jobs()
    assert f"tradewind jobs resume {job['id']}" in done.stderr
    assert command.run("fleet", "list").stdout == ""


def test_a_second_ctrl_c_quits_at_once_while_machines_are_closed(
    command: Command, start: Callable[[bool], Running]
) -> None:
    """The close holds the fleet's lock and waits for the relay. A handler that needs this lock would wait for ever."""
    running = start(True)
    running.wait_for_bytes(1)
    gateways = running.gateways()
    with frozen([gateways["relay"]]):
        running.signal(signal.SIGINT)
        states = (command.state / "jobs").glob
        # This is the lead's last write. Next, all gateways are closed.
        wait_until(lambda: any('"interrupted"' in state.read_text() for state in states("*/status.json")))
        time.sleep(2 * ONE_REQUEST_S)  # Signals within ONE_REQUEST_S count as one request.
        running.signal(signal.SIGINT)
        done = running.finish(ENDS_S).expect(130)
    assert "quit at once" in done.stderr


def test_a_second_ctrl_c_quits_without_a_reader_of_the_output(command: Command, tmp_path: Path) -> None:
    """Standard error is a full pipe, as with a suspended pager, so the main thread is blocked in a write."""
    source = tmp_path / "source"
    write_large(source / "large", LARGE_BYTES)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 65536)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x")
    os.set_blocking(writing, True)
    words = ["cp", "-r", str(source), str(tmp_path / "copy"), "--limit-rate", RATE]
    process = subprocess.Popen(
        guarded([str(command.binary), *words]), env=command.full_environment(), stderr=writing, start_new_session=True
    )
    os.close(writing)
    try:
        wait_until(lambda: any((command.state / "jobs").glob("*/status.json")))
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(3 * ONE_REQUEST_S)
        assert process.wait(ENDS_S) == 130
    finally:
        process.kill()
        process.wait()
        os.close(reading)
    command.wait_until_alone(ENDS_S)


def test_ctrl_c_while_machines_start_ends_them(
    command: Command, start: Callable[[bool], Running], tmp_path: Path
) -> None:
    """A gateway that never becomes ready delays the start."""
    command.environment["TRADEWIND_GATEWAY"] = late_binary(tmp_path, "relay")
    running = start(True)
    wait_until(lambda: {"lead", "source", "sink"} <= set(running.gateways()))
    running.signal(signal.SIGINT)
    running.finish(ENDS_S).expect(130)
    assert command.jobs() == []
    assert command.run("fleet", "list").stdout == ""


@pytest.mark.parametrize(("change", "state"), [("pause", "paused"), ("cancel", "cancelled")])
def test_another_command_stops_a_job_whose_machines_start(
    command: Command, start: Callable[[bool], Running], tmp_path: Path, change: str, state: str
) -> None:
    """The start ends by itself only later than ENDS_S."""
    command.environment["TRADEWIND_GATEWAY"] = late_binary(tmp_path, "relay")
    running = start(True)
    wait_until(lambda: {"lead", "source", "sink"} <= set(running.gateways()))
    (job,) = command.jobs()
    command.run("jobs", change, str(job["id"])).expect(0)
    running.finish(ENDS_S).expect(130)
    assert [one["state"] for one in command.jobs()] == [state]
    assert command.run("fleet", "list").stdout == ""
    command.wait_until_alone(ENDS_S)
