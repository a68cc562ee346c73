"""A transcript of the commands that a test runs: what a user would type, and what the commands print."""

from __future__ import annotations

import os
import re
import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path

__all__ = ["TRANSCRIPT", "record_command", "record_output", "record_step"]

TRANSCRIPT = "TESTBED_TRANSCRIPT"
"""Environment variable that names the file to which transcripts are appended. Without it nothing is recorded."""
COLUMNS = 118
#: Folders of tests and of this checkout, which differ from run to run.
_FOLDERS = re.compile(r"/[\w./-]*/(?:pytest-of-\w+/pytest-\d+/[\w-]+|tw-[\w-]+)")


def record_command(words: Sequence[str | Path]) -> None:
    """Record a command as a user would type it, with each option on the line of its value."""
    lines = ["$ tradewind"]
    for option in shlex.join(map(str, words)).replace(" -", "\0-").split("\0"):
        if len(lines[-1]) + len(option) > COLUMNS:
            lines.append("     ")
        lines[-1] += f" {option}"
    _append(" \\\n".join(lines))


def record_output(text: str) -> None:
    """Record what a command has printed. Long lines are wrapped."""
    if TRANSCRIPT not in os.environ:
        return
    for line in filter(None, text.splitlines()):
        _append("\n".join(textwrap.wrap(line, COLUMNS, subsequent_indent="    ", break_on_hyphens=False)))


def record_step(text: str) -> None:
    """Record what the test does between two commands."""
    _append(f"# {text}")


def _append(text: str) -> None:
    if path := os.environ.get(TRANSCRIPT):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(_FOLDERS.sub("~", text) + "\n")
