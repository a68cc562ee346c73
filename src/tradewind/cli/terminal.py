"""Messages on standard error: live lines on a terminal, otherwise a plain line every few seconds."""

from __future__ import annotations

import os
import sys
import time
from typing import TextIO

from tradewind.cli.failures import Failures
from tradewind.cli.streams import write_codes
from tradewind.engine.report import ProgressLines, plain_line
from tradewind.errors import UsageError, with_paths
from tradewind.model.event import Event, Notice, ObjectFailed, Progress, WouldCopy, WouldDelete
from tradewind.model.units import format_bytes
from tradewind.model.url import as_typed

#: Interval of plain lines without a terminal.
PLAIN_EVERY_S = 10.0
#: Width of a terminal that does not report it.
COLUMNS_UNKNOWN = 80


class Terminal:
    """Messages to the user while a job runs. Data (`--dry-run` mappings) goes to standard output."""

    def __init__(self, *, quiet: bool, stream: TextIO | None = None) -> None:
        self.failures = Failures()
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._shown = 0
        self._lines = ProgressLines()
        self._next_plain_s = time.monotonic() + PLAIN_EVERY_S

    @property
    def _live(self) -> bool:
        """True if standard error is a terminal. Checked each time, because `--detach` releases the terminal."""
        return not self._quiet and self._stream.isatty() and os.environ.get("TERM") != "dumb"

    def say(self, *lines: str) -> None:
        """Print permanent lines, unless quiet."""
        if not self._quiet:
            self._write(lines)

    def warn(self, *lines: str) -> None:
        """Print permanent lines, even if quiet."""
        self._write(lines)

    def event(self, event: Event) -> None:
        """Show one event other than a summary."""
        if isinstance(event, Progress):
            self.live(self._lines.update(event), plain_line(event))
        elif isinstance(event, ObjectFailed):
            self._fail(self.failures.add(event))
        elif isinstance(event, Notice):
            self.say(with_paths(f"note: {event.message}"))
        elif isinstance(event, WouldCopy):
            source, destination = (escaped(as_typed(url)) for url in (event.source, event.destination))
            print(f"copy\t{source}\t{destination}\t{format_bytes(event.size_bytes)}")
        elif isinstance(event, WouldDelete):
            print(f"delete\t{escaped(as_typed(event.destination))}")

    def live(self, lines: list[str], plain: str) -> None:
        """Replace the live lines. Without a terminal, print `plain` every PLAIN_EVERY_S."""
        if self._live:
            self._erase()
            self._draw(lines)
        elif not self._quiet and time.monotonic() >= self._next_plain_s:
            self._next_plain_s = time.monotonic() + PLAIN_EVERY_S
            self._write((plain,))

    def end(self, final_message: str | None = None) -> None:
        """Remove the live lines, and show the remaining failures, except those in `final_message`."""
        self._erase()
        self._fail(self.failures.end(final_message))
        self._stream.flush()

    def _fail(self, lines: list[str]) -> None:
        if lines:
            self.warn(*map(with_paths, lines))

    def _write(self, lines: tuple[str, ...] | list[str]) -> None:
        self._erase()
        for line in lines:
            self._stream.write(f"{printable(line)}\n")
        self._stream.flush()

    def _draw(self, lines: list[str]) -> None:
        try:
            # Some terminals do not know their width and report 0.
            width = os.get_terminal_size(self._stream.fileno()).columns or COLUMNS_UNKNOWN
        except OSError:
            width = COLUMNS_UNKNOWN
        for line in lines:
            self._stream.write(f"{line[: max(1, width - 1)]}\n")
        self._shown = len(lines)
        self._stream.flush()

    def _erase(self) -> None:
        if self._shown:
            write_codes(self._stream, f"\x1b[{self._shown}A\x1b[J")
            self._shown = 0


def printable(line: str) -> str:
    """Return a line that is safe to print. Control characters are escaped and lone surrogates replaced: keys may have
    both.
    """
    shown = "".join(c if c.isprintable() or c == " " else _escape(c) for c in line)
    return shown.encode("utf-8", "replace").decode()


def escaped(name: str) -> str:
    """Return a name as `ls -b` shows it: on one line and unambiguous, with backslashes doubled."""
    return printable(name.replace("\\", "\\\\"))


def _escape(character: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    code = ord(character)
    return named or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def can_ask() -> bool:
    """Return whether there is a terminal to ask a question at."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, *, refused: str = "nothing was done") -> None:
    """Ask on the terminal. Raises UsageError with the message `refused` unless the answer is yes."""
    answer = ""
    try:
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
    finally:
        if not answer.endswith("\n"):  # Ctrl-C or Ctrl-D, which end no line.
            print(file=sys.stderr)
    if answer.strip().lower() not in ("y", "yes"):
        raise UsageError(refused, hint="pass -y to skip the question")
