"""How much `sync --delete` deletes without being asked, and what it asks on a terminal."""

from __future__ import annotations

import json
import os
import pty
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import FilePlace


@pytest.fixture
def sides(tmp_path: Path) -> tuple[FilePlace, FilePlace]:
    """Of the destination's 5 objects, of 10 bytes each, the source has 2."""
    source, there = FilePlace(tmp_path / "source"), FilePlace(tmp_path / "there")
    for key in "abcde":
        there.put(key, b"0123456789")
    for key in "ab":
        source.put(key, b"0123456789")
    return source, there


def test_more_than_half_of_a_destination_needs_consent(command: Command, sides: tuple[FilePlace, FilePlace]) -> None:
    source, there = sides
    refused = command.run("sync", "--delete", source.url, there.url).expect(1)
    assert "3 of the 5 objects" in refused.stderr
    assert "--dry-run" in refused.stderr
    assert set(there.sizes()) == set("abcde")
    command.run("sync", "--delete", "--max-delete", "2", source.url, there.url).expect(1)
    assert set(there.sizes()) == set("abcde")
    command.run("sync", "--delete", "--max-delete", "3", source.url, there.url).expect(0)
    assert set(there.sizes()) == set("ab")
    there.put("c", b"x")
    command.run("sync", "--delete", source.url, there.url).expect(0)
    assert set(there.sizes()) == set("ab")


def test_yes_is_consent(command: Command, sides: tuple[FilePlace, FilePlace]) -> None:
    source, there = sides
    command.run("sync", "--delete", "-y", source.url, there.url).expect(0)
    assert set(there.sizes()) == set("ab")


def test_a_dry_run_totals_what_would_be_deleted(command: Command, sides: tuple[FilePlace, FilePlace]) -> None:
    source, there = sides
    said = command.run("sync", "--delete", "-y", "--dry-run", source.url, there.url).expect(0)
    assert "would delete 3 objects, 30 B" in said.stdout + said.stderr
    told = command.run("sync", "--delete", "-y", "--dry-run", "--json", source.url, there.url).expect(0)
    assert told.summary["to_delete"] == {"objects": 3, "bytes": 30}
    assert set(there.sizes()) == set("abcde")


def on_terminal(command: Command, answer: str, *words: str) -> tuple[int, str]:
    """Runs the command on a terminal of its own, answers its question, and returns exit code and output."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(command.binary, [str(command.binary), *words], command.full_environment())
    said = b""
    answered = False
    while True:
        try:
            more = os.read(terminal, 4096)
        except OSError:  # The other end is closed.
            break
        if not more:
            break
        said += more
        if not answered and b"[y/N]" in said:
            os.write(terminal, answer.encode() + b"\n")
            answered = True
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode()


def test_a_terminal_is_asked_with_number_and_bytes(command: Command, sides: tuple[FilePlace, FilePlace]) -> None:
    source, there = sides
    source.put("new", b"x")
    code, said = on_terminal(command, "n", "sync", "--delete", source.url, there.url)
    assert "Delete 3 objects (30 B)" in said
    assert code == 2
    assert set(there.sizes()) == {*"abcde", "new"}
    code, said = on_terminal(command, "y", "sync", "--delete", source.url, there.url)
    assert (code, set(there.sizes())) == (0, {*"ab", "new"}), said
    assert json.loads(command.run("jobs", "list", "--json").stdout.splitlines()[-1])["state"] == "done"
    code, said = on_terminal(command, "", "sync", "--delete", source.url, there.url)
    assert (code, "Delete" in said) == (0, False), said
