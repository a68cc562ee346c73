"""Temporary files of small objects: a killed job leaves some, and its resume or cancellation removes exactly these."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from testbed.drive import Command, Running
from testbed.trees import tree_hashes, write_tree

SIZES = {f"d{number % 5}/{number}": 8_000_000 for number in range(40)}
"""Objects that are each written as a whole."""
OTHERS = {f"d{number % 5}/other-{number}": 8_000_000 for number in range(40)}
"""Objects of another job, in the same directories."""
SLOWLY = ("--limit-rate", "200MB/s")
"""Makes a job last for seconds, so that it is seen to write files."""
LOOKS_MAX_S = 60.0


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_tree(tmp_path / "from", SIZES)
    return tmp_path / "from"


def unfinished(folder: Path) -> set[Path]:
    return set(folder.rglob(".*.tradewind-*"))


def freeze(pid: int) -> None:
    """Stop a process, and wait until each of its threads has stopped."""
    os.kill(pid, signal.SIGSTOP)
    end_s = time.monotonic() + LOOKS_MAX_S
    threads = Path(f"/proc/{pid}/task")
    while any(stat.read_text().rpartition(") ")[2][0] != "T" for stat in threads.glob("*/stat")):
        assert time.monotonic() < end_s, f"process {pid} does not stop"
        time.sleep(0.001)


def freeze_in_the_middle(running: Running, copy: Path) -> int:
    """Freeze the gateway of a job at a moment when it is writing files below `copy`. Return its process id."""
    before = unfinished(copy)
    running.wait_for(lambda event: event["event"] == "started")
    (gateway,) = running.gateways().values()
    end_s = time.monotonic() + LOOKS_MAX_S
    while time.monotonic() < end_s:
        freeze(gateway)
        if unfinished(copy) - before:
            return gateway
        os.kill(gateway, signal.SIGCONT)
        time.sleep(0.01)
    raise AssertionError("the job was never seen to write a file")


def kill_in_the_middle(command: Command, copy: Path, *arguments: str | Path) -> set[Path]:
    """Kill a job and its gateway while they write files below `copy`. Return the files that they leave unfinished."""
    before = unfinished(copy)
    running = command.start(*arguments, *SLOWLY)
    gateway = freeze_in_the_middle(running, copy)
    for pid in (gateway, running.process.pid):
        os.kill(pid, signal.SIGKILL)
    running.finish()
    command.wait_until_alone()
    left = unfinished(copy) - before
    assert left
    return left


@pytest.mark.parametrize("verb", [["cp", "-r"], ["mv", "-r"], ["sync"]], ids=lambda verb: verb[0])
def test_a_resumed_job_leaves_no_temporary_file(
    command: Command, source: Path, tmp_path: Path, verb: list[str]
) -> None:
    wanted, copy = tree_hashes(source), tmp_path / "to"
    kill_in_the_middle(command, copy, *verb, source, copy)
    (job,) = command.jobs()
    command.run("jobs", "resume", job["id"]).expect(0)
    assert tree_hashes(copy) == wanted, "and no temporary file"


def test_a_job_whose_gateway_was_killed_leaves_no_temporary_file(
    command: Command, source: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "to"
    running = command.start("cp", "-r", source, copy, *SLOWLY)
    os.kill(freeze_in_the_middle(running, copy), signal.SIGKILL)
    running.finish().expect(0)
    assert tree_hashes(copy) == tree_hashes(source)


@pytest.mark.parametrize("end", ["resume", "cancel"])
def test_only_temporary_files_of_the_job_itself_are_removed(
    command: Command, source: Path, tmp_path: Path, end: str
) -> None:
    copy, others = tmp_path / "to", tmp_path / "others"
    write_tree(others, OTHERS)
    left = kill_in_the_middle(command, copy, "cp", "-r", source, copy)
    (job,) = command.jobs()
    of_a_stopped_job = kill_in_the_middle(command, copy, "cp", "-r", others, copy)
    running = command.start("cp", "-r", others, copy, *SLOWLY)
    gateway = freeze_in_the_middle(running, copy)
    of_a_running_job = unfinished(copy) - left - of_a_stopped_job
    of_a_user = copy / "d0" / ".0.tradewind-0123456789abcdef"
    of_a_user.write_bytes(b"of a user")

    command.run("jobs", end, job["id"]).expect(0)
    assert unfinished(copy) == of_a_stopped_job | of_a_running_job | {of_a_user}
    os.kill(gateway, signal.SIGCONT)
    running.finish().expect(0)
    assert unfinished(copy) == of_a_stopped_job | {of_a_user}
    copied = tree_hashes(copy).items()
    assert copied >= tree_hashes(others).items() and (end == "cancel" or copied >= tree_hashes(source).items())
