"""Commands whose output has a maximum length: a host decides how much it sends."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

__all__ = ["OUTPUT_BYTES_MAX", "run_bounded"]

#: The output of a command, and its standard error, are truncated to their last bytes.
OUTPUT_BYTES_MAX = 1 << 20
PIECE_BYTES = 1 << 16
#: Maximum wait for the rest of the output of a process that has ended.
REST_S = 1.0


def run_bounded(
    words: Sequence[str], given: bytes, timeout_s: float, environment: Mapping[str, str] | None = None
) -> tuple[int, bytes, bytes]:
    """Run a command with this standard input; return its exit code, and the end of its output and standard error.

    Raises OSError, and TimeoutExpired after killing it.
    """
    pipes = subprocess.PIPE
    process = subprocess.Popen(words, stdin=pipes, stdout=pipes, stderr=pipes, env=environment)
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    out, errors = _End(process.stdout), _End(process.stderr)
    threading.Thread(target=_write, args=(process.stdin, given), daemon=True).start()
    try:
        code = process.wait(timeout_s)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return code, out.read(), errors.read()


def _write(stream: IO[bytes], given: bytes) -> None:
    with suppress(OSError), stream:  # The process may end before it has read all.
        stream.write(given)


class _End:
    """The last bytes of a stream, which a thread reads to its end."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._found = bytearray()
        self._thread = threading.Thread(target=self._keep, args=(stream,), daemon=True)
        self._thread.start()

    def _keep(self, stream: IO[bytes]) -> None:
        with suppress(OSError), stream:
            while piece := stream.read1(PIECE_BYTES):  # type: ignore[attr-defined]
                self._found += piece
                del self._found[:-OUTPUT_BYTES_MAX]

    def read(self) -> bytes:
        """Return the last bytes of a process that has ended."""
        self._thread.join(REST_S)
        return bytes(self._found)
