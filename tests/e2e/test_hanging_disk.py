"""A sink whose disk hangs: its writes wait in the kernel, where not even SIGKILL ends them."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.chains import Document, chain, twin, write
from testbed.drive import Command, Running
from testbed.faults.disk import DiskError, HangingDisk
from testbed.trees import MIB, tree_hashes, write_tree

pytestmark = pytest.mark.slow
SIZE_BYTES = 100_000
COUNT = 150
FROZEN_AFTER_BYTES = 10 * SIZE_BYTES
LATER_COUNT = 600
"""Objects that are sent after the disk has hung for long enough to be reported."""
DISK_BYTES = 96 * MIB
WINDOW_BYTES = 8 * 16 * MIB
"""Bytes that a stalled route may always repeat."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write_tree(tmp_path / "tree", {f"{number:03}": SIZE_BYTES for number in range(COUNT)})
    return tmp_path / "tree"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[HangingDisk]:
    try:
        made = HangingDisk(tmp_path, DISK_BYTES)
        with made:
            made.freeze()
            made.thaw()
            yield made
    except DiskError as error:
        pytest.skip(str(error))


def start(command: Command, tree: Path, copy: Path, topology: Document | None) -> Running:
    """Start a copy that is slow enough to be frozen in its middle."""
    words: list[str | Path] = ["cp", "-r", tree, copy, "--limit-rate", "2MB/s"]
    if topology is not None:
        words += ["--topology", write(topology, tree.parent / "topology.json")]
    running = command.start(*words)
    running.wait_for_bytes(FROZEN_AFTER_BYTES)
    return running


def assert_nothing_is_half_written(copy: Path, tree: Path) -> int:
    """Return the number of objects at the destination, each of which is whole. Hidden temporary files do not count."""
    there = {name: content for name, content in tree_hashes(copy).items() if not name.startswith(".")}
    assert there.items() <= tree_hashes(tree).items()
    return len(there)


def hide_the_disk_from_all_but(command: Command, gateway: str, disk: Path, copy: Path) -> None:
    """Let one gateway see `disk` at the place of the destination, in a mount namespace of its own."""
    binary = shlex.quote(command.full_environment()["TRADEWIND_GATEWAY"])
    mounted = f"mount --bind {shlex.quote(str(disk))} {shlex.quote(str(copy))}"
    wrapper = command.home / "gateway"
    wrapper.write_text(
        "#!/bin/sh\n"
        f'case "$TRADEWIND_MACHINE" in *\'"{gateway}"\'*)\n'
        f'  exec unshare --mount sh -c \'{mounted} && exec "$0" "$@"\' {binary} "$@"\n'
        "esac\n"
        f'exec {binary} "$@"\n'
    )
    wrapper.chmod(0o755)
    command.environment["TRADEWIND_GATEWAY"] = str(wrapper)


def test_a_sink_whose_disk_hangs_does_not_hold_up_the_job(
    command: Command, tree: Path, disk: HangingDisk, tmp_path: Path
) -> None:
    """The other sink writes what it holds. The job ends although the disk still hangs."""
    copy = tmp_path / "copy"
    copy.mkdir()
    hide_the_disk_from_all_but(command, "sink-a", disk.path, copy)
    running = start(command, tree, copy, twin())
    assert "sink-a" in running.gateways()
    disk.freeze()
    done = running.finish().expect(0)
    progress = done.summary["progress"]
    assert progress["objects_done"] == COUNT and progress["retries"] == 0
    assert 0 < progress["duplicate_bytes"] <= WINDOW_BYTES
    notices = [event["message"] for event in done.events if event["event"] == "notice"]
    assert any("stands still; other routes also send what it holds" in message for message in notices), notices
    disk.thaw()
    command.wait_until_alone()
    elsewhere = assert_nothing_is_half_written(disk.path, tree)
    assert elsewhere > 0
    assert assert_nothing_is_half_written(copy, tree) + elsewhere >= COUNT


@pytest.mark.parametrize("topology", [None, chain()], ids=["one process", "gateways"])
def test_a_job_whose_only_disk_hangs_says_so_and_continues(
    command: Command, tree: Path, disk: HangingDisk, topology: Document | None
) -> None:
    write_tree(tree, {f"later/{number:03}": SIZE_BYTES for number in range(LATER_COUNT)})
    copy = disk.path / "copy"
    running = start(command, tree, copy, topology)
    disk.freeze()
    hangs = running.wait_for(lambda event: "was acknowledged for" in event.get("message", ""))
    assert "a disk, a store or a link hangs" in hangs["message"]
    disk.thaw()
    done = running.finish().expect(0)
    assert done.summary["progress"]["retries"] == 0
    assert any(event.get("message") == "answers arrive again" for event in done.events)
    assert tree_hashes(copy) == tree_hashes(tree)


def test_a_job_that_is_stopped_while_its_disk_hangs_ends_and_is_resumed(
    command: Command, tree: Path, disk: HangingDisk
) -> None:
    """The killed gateway stays in the kernel until the disk answers. The command does not wait for that."""
    copy = disk.path / "copy"
    running = start(command, tree, copy, chain())
    disk.freeze()
    running.signal(signal.SIGINT)
    stopped = running.finish()
    assert stopped.code != 0 and "jobs resume" in stopped.stderr
    disk.thaw()
    command.wait_until_alone()
    assert_nothing_is_half_written(copy, tree)
    (job,) = command.jobs()
    command.run("jobs", "resume", str(job["id"])).expect(0)
    assert tree_hashes(copy) == tree_hashes(tree)
