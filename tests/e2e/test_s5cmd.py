"""Tradewind and s5cmd at the same bucket. s5cmd has no metadata of its own for times, but keeps and sets metadata."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import S3Place
from testbed.s5cmd import s5cmd_program
from testbed.servers import Server
from testbed.trees import write_tree

OLD_NS = 1_500_000_000_123_456_789
KEPT = "1500000000.123456789"
NAMES = {"a": 10, "d/b": 2_000}
OLD = dict.fromkeys(NAMES, OLD_NS)


class S5cmd:
    """s5cmd, at one server."""

    def __init__(self, server: Server) -> None:
        self._command = [str(s5cmd_program()), "--endpoint-url", server.endpoint]
        self._environment = {**os.environ, **server.environment, "AWS_CONFIG_FILE": os.devnull}

    def __call__(self, *words: str | Path) -> str:
        """Run a command; return its standard output: a line for each object that is copied."""
        done = subprocess.run(
            [*self._command, *map(str, words)], env=self._environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(params=["s3_server", pytest.param("minio_server", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest) -> Server:
    made: Server = request.getfixturevalue(request.param)
    return made


@pytest.fixture
def there(server: Server, command: Command) -> S3Place:
    return S3Place(server, command)


@pytest.fixture
def s5cmd(server: Server) -> S5cmd:
    return S5cmd(server)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Files that are old."""
    folder = tmp_path / "files"
    write_tree(folder, NAMES)
    for name in NAMES:
        os.utime(folder / name, ns=(OLD_NS, OLD_NS))
    return folder


def times(folder: Path) -> dict[str, int]:
    """Return the modification time of each file."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in found}


def synced(command: Command, there: S3Place, source: str | Path, target: str | Path) -> int:
    """Run `tradewind sync`; return the number of objects that it copied."""
    side = "dst" if isinstance(source, Path) else "src"
    done = command.run("sync", "--json", source, target, *there.flags(side)).expect(0)
    count: int = done.summary["progress"]["objects_done"]
    return count


def test_s5cmd_copies_nothing_again_that_tradewind_uploaded(
    command: Command, there: S3Place, s5cmd: S5cmd, files: Path
) -> None:
    command.run("cp", "-r", files, f"{there.url}/t", *there.flags("dst")).expect(0)
    assert s5cmd("sync", f"{files}/", f"{there.url}/t/") == ""
    assert json.loads(s5cmd("--json", "head", f"{there.url}/t/a"))["metadata"] == {"mtime": KEPT}


def test_times_that_tradewind_keeps_survive_copies_by_s5cmd(
    command: Command, there: S3Place, s5cmd: S5cmd, files: Path, tmp_path: Path
) -> None:
    command.run("cp", "-r", files, f"{there.url}/t", *there.flags("dst")).expect(0)
    s5cmd("cp", "--metadata-directive", "COPY", f"{there.url}/t/*", f"{there.url}/copy/")
    assert synced(command, there, f"{there.url}/copy", tmp_path / "back") == len(NAMES)
    assert times(tmp_path / "back") == OLD


def test_tradewind_restores_the_time_that_s5cmd_wrote_as_metadata(
    command: Command, there: S3Place, s5cmd: S5cmd, files: Path, tmp_path: Path
) -> None:
    s5cmd("cp", "--metadata", f"mtime={KEPT}", files / "a", f"{there.url}/t/a")
    command.run("cp", f"{there.url}/t/a", tmp_path / "back" / "a", *there.flags("src")).expect(0)
    assert times(tmp_path / "back") == {"a": OLD_NS}
    assert synced(command, there, f"{there.url}/t", tmp_path / "back") == 0


def test_neither_tool_moves_anything_back_after_a_sync_of_what_s5cmd_uploaded(
    command: Command, there: S3Place, s5cmd: S5cmd, files: Path, tmp_path: Path
) -> None:
    s5cmd("cp", f"{files}/", f"{there.url}/t/")
    assert synced(command, there, files, f"{there.url}/t") == 0
    back = tmp_path / "back"
    assert synced(command, there, f"{there.url}/t", back) == len(NAMES)
    for _ in range(2):
        assert s5cmd("sync", f"{there.url}/t/*", f"{back}/") == ""
        assert synced(command, there, f"{there.url}/t", back) == 0
        assert s5cmd("sync", f"{back}/", f"{there.url}/t/") == ""
        assert synced(command, there, back, f"{there.url}/t") == 0


def test_s5cmd_takes_files_with_restored_times_for_old_unless_it_compares_sizes(
    command: Command, there: S3Place, s5cmd: S5cmd, files: Path, tmp_path: Path
) -> None:
    """s5cmd compares the time of a file with that at which its object was written, and ignores the metadata."""
    command.run("cp", "-r", files, f"{there.url}/t", *there.flags("dst")).expect(0)
    back = tmp_path / "back"
    assert synced(command, there, f"{there.url}/t", back) == len(NAMES)
    assert times(back) == OLD
    assert s5cmd("sync", f"{back}/", f"{there.url}/t/") == ""
    assert s5cmd("sync", "--size-only", f"{there.url}/t/*", f"{back}/") == ""
    assert len(s5cmd("sync", f"{there.url}/t/*", f"{back}/").splitlines()) == len(NAMES)
    assert s5cmd("sync", f"{there.url}/t/*", f"{back}/") == ""
    assert synced(command, there, f"{there.url}/t", back) == 0
