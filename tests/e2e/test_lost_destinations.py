"""A destination directory that is moved or unmounted while a job writes to it: no later object is written elsewhere."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from testbed.drive import Command, Finished
from testbed.trees import MIB, write_tree

FILES = {f"{number:02}": MIB for number in range(8)}
SLOW = ("--limit-rate", "2MB/s")


def copied_while(command: Command, source: Path, target: Path, lose: Callable[[], object]) -> Finished:
    """Copy slowly, and lose the destination when it has its first file."""
    running = command.start("cp", "-r", source, target, *SLOW)
    running.wait_for_objects(1)
    lose()
    return running.finish()


def test_a_destination_that_is_renamed_fails_the_rest(command: Command, tmp_path: Path) -> None:
    source, target, moved = tmp_path / "from", tmp_path / "to", tmp_path / "moved"
    write_tree(source, FILES)
    done = copied_while(command, source, target, lambda: target.rename(moved)).expect(4)
    failures = done.failures
    assert not target.exists()
    assert {failure["kind"] for failure in failures} == {"bucket_not_found"}
    assert all("was moved, removed or unmounted" in failure["message"] for failure in failures)
    assert {path.name for path in moved.iterdir()} == set(FILES) - {Path(one["source"]).name for one in failures}
    (job,) = command.jobs()
    command.run("jobs", "resume", job["id"]).expect(0)
    assert {path.name for path in target.iterdir()} == set(FILES)


def test_a_destination_that_is_unmounted_fails_the_rest(command: Command, tmp_path: Path, small_disk: Path) -> None:
    source, target = tmp_path / "from", small_disk / "to"
    write_tree(source, FILES)

    def unmount() -> None:
        subprocess.run(["umount", "--lazy", small_disk], check=True)

    try:
        done = copied_while(command, source, target, unmount).expect(4)
        assert "was moved, removed or unmounted" in done.failures[0]["message"]
        assert list(small_disk.iterdir()) == [], "nothing is written to the disk below the mount point"
    finally:
        # The fixture unmounts it once more.
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", small_disk], check=True)
