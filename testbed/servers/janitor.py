"""Delete folders after this process has ended in whatever way, in a small child process that outlives it briefly.

Servers die with their parent by themselves (``guarded.py``), but a killed test run would leave their data behind. The
janitor reads folder names from its stdin. At end of file, which means that this process has ended, it deletes them.
"""

from __future__ import annotations

import atexit
import contextlib
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import IO

_GRACE_S = 0.5
"""Time for the servers, which are killed at the same moment, to end: until then they may still write."""


def delete_when_gone(folder: Path) -> None:
    """Register ``folder`` to be deleted after the end of this process, if it still exists."""
    stream = _start()
    stream.write(f"{folder}\n".encode())
    stream.flush()


@cache
def _start() -> IO[bytes]:
    program = [sys.executable, "-I", "-S", __file__]
    janitor = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    if janitor.stdin is None:
        raise RuntimeError("a piped stdin is missing")
    atexit.register(_end, janitor)
    return janitor.stdin


def _end(janitor: subprocess.Popen[bytes]) -> None:
    """Wait for the janitor to finish, at an orderly end of this process."""
    if janitor.stdin is not None:
        janitor.stdin.close()
    janitor.wait()


def main() -> None:
    """Collect names until the end of the stream, then delete the folders."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folders = [line.rstrip("\n") for line in sys.stdin]
    if any(Path(folder).exists() for folder in folders):
        time.sleep(_GRACE_S)
    for folder in folders:
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
