"""Files that a user names: those that cannot be read, are too long, or never end are refused at once with code 2."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.drive import Command
from tradewind.catalog.tables import TABLE_BYTES_MAX
from tradewind.model.files import USER_FILE_BYTES_MAX

READERS = {
    "rules": ("cp", "-r", "source", "copy", "--filter-from", "{}"),
    "configuration": ("ls", "source", "--config", "{}"),
    "topology": ("cp", "-r", "source", "copy", "--topology", "{}"),
    "problem": ("plan", "--problem", "{}"),
    "table": ("catalog", "import", "{}"),
}
RUN_S = 60.0
RULES = b"- *.tmp\n"


def written(folder: Path, kind: str, bytes_max: int) -> Path:
    """Return the path of a file of one kind."""
    path = folder / "named"
    if kind == "an endless file":
        return Path("/dev/zero")
    if kind == "a folder":
        path.mkdir()
    elif kind == "a pipe without a writer":
        os.mkfifo(path)
    elif kind == "a file that is too long":
        path.touch()
        os.truncate(path, bytes_max + 1)
    return path


@pytest.mark.parametrize("kind", ["an endless file", "a folder", "a pipe without a writer", "a file that is too long"])
@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_cannot_be_used_is_refused_at_once(
    command: Command, tmp_path: Path, reader: str, kind: str
) -> None:
    (command.home / "source").mkdir()
    path = written(tmp_path, kind, TABLE_BYTES_MAX if reader == "table" else USER_FILE_BYTES_MAX)
    limit = "128 MiB" if reader == "table" else "4 MiB"
    reasons = {
        "an endless file": "not a regular file" if reader == "table" else f"longer than {limit}",
        "a folder": "not a regular file" if reader == "table" else "Is a directory",
        "a pipe without a writer": "not a regular file" if reader == "table" else "no program writes to this pipe",
        "a file that is too long": f"longer than {limit}",
    }
    refused = command.run(*(word.format(path) for word in READERS[reader]), timeout_s=RUN_S).expect(2)
    error, hint = refused.stderr.splitlines()
    assert error.startswith("error: ") and error.endswith(f"{path}: {reasons[kind]}")
    assert hint.startswith("hint: ")


def test_rules_are_read_from_a_pipe(command: Command, tmp_path: Path) -> None:
    (command.home / "source").mkdir()
    for name in ("kept", "left.tmp"):
        (command.home / "source" / name).write_bytes(b"x")
    command.run("cp", "-r", "source/", "copy/", "--filter-from", "/dev/stdin", stdin=RULES).expect(0)
    assert [path.name for path in (command.home / "copy").iterdir()] == ["kept"]
