"""No control character reaches the terminal, wherever it comes from."""

from __future__ import annotations

import json
from pathlib import Path

from testbed.drive import Command

CSI = "\u009b"
"""The control sequence introducer of C1: terminals obey it like ESC [."""
NAME = f"a{CSI}31mb\x1b[2Jc\x7fd\u202e"


def raw_control_characters(text: str) -> set[str]:
    return {c for c in text if (ord(c) < 0x20 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0}


def test_listings_escape_names_and_json_reads_back_the_same(command: Command, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / NAME).write_bytes(b"x")
    for words in (
        ["ls"],
        ["ls", "-l"],
        ["ls", "--json"],
        ["rm", "-r", "--dry-run"],
        ["rm", "-r", "--dry-run", "--json"],
    ):
        done = command.run(*words, tmp_path / "tree").expect(0)
        assert not raw_control_characters(done.stdout + done.stderr), words
    listed = command.run("ls", "--json", tmp_path / "tree").stdout
    assert json.loads(listed)["key"] == NAME


def test_events_and_job_lists_escape_names(command: Command, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / NAME).symlink_to("nowhere")
    copy = tmp_path / f"copy{CSI}5m"
    done = command.run("cp", "-r", "--follow-symlinks", tmp_path / "tree", copy, "--json")
    assert done.code != 0
    (failure,) = done.failures
    assert failure["source"].endswith(NAME)
    for text in (
        done.stdout,
        done.stderr,
        command.run("jobs", "list").stdout,
        command.run("jobs", "list", "--json").stdout,
    ):
        assert not raw_control_characters(text)
    (job,) = command.jobs()
    assert job["destinations"] == [str(copy)]


def test_errors_escape_what_they_quote(command: Command, tmp_path: Path) -> None:
    table = tmp_path / f"table{CSI}.csv"
    table.write_text(f"src,dst{CSI},gbps\n")
    for words in (["catalog", "import", table], ["jobs", "show", f"x{CSI}"], ["fleet", "down", f"x{CSI}"], [f"x{CSI}"]):
        done = command.run(*words)
        assert done.code != 0
        assert not raw_control_characters(done.stdout + done.stderr), words
