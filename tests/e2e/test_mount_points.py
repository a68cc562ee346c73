"""Directories that cannot be removed, because they are mount points or on a read-only file system."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.trees import write_tree

#: Time limit of a removal that cannot succeed, and must not be retried. Retries took at least 22 s.
PROMPT_S = 10.0
MakeMountPoint = Callable[..., None]


@pytest.fixture
def make_mount_point() -> Iterator[MakeMountPoint]:
    """Mounts a directory on itself, which needs root."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a directory on itself")
    made: list[Path] = []

    def mount(folder: Path, *options: str) -> None:
        done = subprocess.run(["mount", "--bind", folder, folder], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"this machine lets nobody mount: {done.stderr.strip()}")
        made.append(folder)
        for option in options:
            subprocess.run(["mount", "-o", f"remount,bind,{option}", folder], check=True)

    yield mount
    for folder in reversed(made):
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_mv_reports_an_emptied_mount_point_at_once(
    command: Command, tmp_path: Path, make_mount_point: MakeMountPoint
) -> None:
    source = tmp_path / "source"
    write_tree(source, {"d/a": 10, "b": 10})
    make_mount_point(source / "d")
    began_s = time.monotonic()
    done = command.run("mv", "-r", source, tmp_path / "there").expect(0)
    assert time.monotonic() - began_s < PROMPT_S
    assert f"cannot remove an emptied directory: delete {source}/d/: it is a mount point" in done.stderr
    assert list((source / "d").iterdir()) == []


def test_sync_reports_an_emptied_mount_point_at_once(
    command: Command, tmp_path: Path, make_mount_point: MakeMountPoint
) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    write_tree(source, {"a": 10, "b": 10})
    write_tree(there, {"d/old": 10})
    make_mount_point(there / "d")
    began_s = time.monotonic()
    done = command.run("sync", "--delete", "-y", source, there).expect(0)
    assert time.monotonic() - began_s < PROMPT_S
    assert done.stderr.count("cannot remove an emptied directory") == 1


def test_a_read_only_directory_with_content_is_not_called_empty(
    command: Command, tmp_path: Path, make_mount_point: MakeMountPoint
) -> None:
    source = tmp_path / "source"
    write_tree(source, {"d/a": 10, "b": 10})
    make_mount_point(source / "d", "ro")
    done = command.run("mv", "-r", source, tmp_path / "there").expect(4)
    assert "Read-only file system" in done.stderr
    assert "emptied directory" not in done.stderr
