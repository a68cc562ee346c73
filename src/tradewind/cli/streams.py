"""Standard input, output and error of the command, protected against surprises.

- A descriptor that was closed at the start (`<&-`, `>&-`) is opened on the null device. Otherwise the next file that
  we open would get its number, and be used as standard input or output.
- If the reader of standard output or error goes away (`| head -1`), the rest of the output is discarded. The command
  still runs to its end and returns its true exit code.
- Control characters are escaped in all output: a name from a bucket, a CSV file or another user must not control the
  terminal.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from tradewind.errors import UsageError

__all__ = [
    "SafeOutput",
    "require_input",
    "require_output",
    "settle_output",
    "standard_streams",
    "write_codes",
]

#: C0 except newline and tab, DEL and C1, and invisible characters that change the order or look of others, as the
#: gateway's own output escapes them. The form `\u009b` is also right inside a JSON string.
_ESCAPED = (
    *(code for code in range(0x20) if code not in (0x09, 0x0A)),
    *range(0x7F, 0xA0),
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    0xFEFF,
)
_ESCAPES = {code: f"\\u{code:04x}" for code in _ESCAPED}

#: Name of the error handler of the streams, and the plain forms of characters of our own.
PLAIN = "tradewind-plain"
_PLAIN_FORMS = {"→": "->", "≥": ">=", "…": "...", "×": "x", "─": "-", "█": "#"}
#: Descriptors 0 to 2 that were closed when the process began.
_closed_at_start: set[int] = set()


class SafeOutput:
    """A text stream that escapes control characters and tolerates a reader that goes away. Otherwise like `stream`."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self._name = name

    def write(self, text: str) -> int:
        """Write text with its control characters escaped."""
        return self._write(text.translate(_ESCAPES))

    def write_codes(self, codes: str) -> int:
        """Write terminal control sequences of our own, unescaped."""
        return self._write(codes)

    def flush(self) -> None:
        """Flush. Raises OSError, except if the reader has gone away."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._discard()
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._name) from None

    def end(self) -> None:
        """Flush, or discard output that cannot be written: Python would retry at exit and print an error."""
        try:
            self.flush()
        except OSError:
            self._discard()

    def _write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._discard()
            return len(text)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._name) from None

    def _discard(self) -> None:
        """Redirect the descriptor to the null device, which also swallows the rest of the stream's buffer."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def standard_streams() -> Iterator[None]:
    """Keep descriptors 0 to 2 open, and replace standard output and error by SafeOutput, within the context."""
    _open_closed_descriptors()
    codecs.register_error(PLAIN, _in_plain_characters)
    before = sys.stdout, sys.stderr
    for stream in before:
        if hasattr(stream, "reconfigure"):
            # A name that the terminal's encoding cannot show must not stop the command.
            stream.reconfigure(errors=PLAIN)
    output, errors = SafeOutput(before[0], "standard output"), SafeOutput(before[1], "standard error")
    sys.stdout, sys.stderr = cast(TextIO, output), cast(TextIO, errors)
    try:
        yield
    finally:
        output.end()
        errors.end()
        sys.stdout, sys.stderr = before


def _in_plain_characters(error: UnicodeError) -> tuple[str, int]:
    """Return what stands for characters that the encoding of a stream does not have. `codecs` calls this."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_PLAIN_FORMS.get(c) or c.encode("ascii", "backslashreplace").decode() for c in missing), error.end


def require_input() -> None:
    """Raise UsageError if standard input was closed at the start: there is nothing to read."""
    if 0 in _closed_at_start:
        raise UsageError("standard input is closed", hint="pipe data into the command, or use < FILE")


def require_output() -> None:
    """Raise UsageError if standard output was closed at the start: the data would be lost."""
    if 1 in _closed_at_start:
        raise UsageError("standard output is closed", hint="pipe it into another command, or use > FILE")


def settle_output() -> None:
    """Flush standard output. Raises OSError also for what a file system reports only when a file is closed."""
    sys.stdout.flush()
    try:
        os.close(os.dup(1))
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from None


def write_codes(stream: TextIO, codes: str) -> None:
    """Write terminal control sequences, which SafeOutput would otherwise escape."""
    getattr(stream, "write_codes", stream.write)(codes)


def _open_closed_descriptors() -> None:
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # `open` returns the lowest free number, which is this one because of the ascending order.
            os.open(os.devnull, os.O_RDONLY if descriptor == 0 else os.O_WRONLY)
            # It must be open in the gateway program too.
            os.set_inheritable(descriptor, True)
            _closed_at_start.add(descriptor)
    # Python has no stream for a descriptor that was closed.
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
