"""A disk that hangs: an ext4 file system in a file, frozen with ``fsfreeze``, which only root can do.

A process that writes to a frozen file system waits in the kernel, where not even SIGKILL ends it, as at a broken disk.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

PROGRAMS = ("mkfs.ext4", "mount", "umount", "fsfreeze")
_GUARD = (
    'while read word; do fsfreeze "$word" "$0" && echo done || echo failed; done; fsfreeze -u "$0"; umount --lazy "$0"'
)
"""Freezes (``-f``) and thaws (``-u``) on request. However this process ends, it then thaws and unmounts the disk."""


class DiskError(RuntimeError):
    """This machine has no disk to freeze."""


class HangingDisk:
    """A file system of `size_bytes` at ``folder/disk``. Raises DiskError where it cannot be made or frozen."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if missing or os.geteuid() != 0:
            raise DiskError(f"no {missing[0]} on this machine" if missing else "only root can mount a disk to freeze")
        self.path, image = folder / "disk", folder / "disk.image"
        self.path.mkdir()
        with image.open("wb") as file:
            file.truncate(size_bytes)
        _run("mkfs.ext4", "-q", image)
        _run("mount", "-o", "loop", image, self.path)
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, self.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
            start_new_session=True,
        )

    def freeze(self) -> None:
        """Let every write wait. Raises DiskError where the file system cannot be frozen."""
        self._ask("-f")

    def thaw(self) -> None:
        """Let the writes continue. Raises DiskError unless it was frozen."""
        self._ask("-u")

    def __enter__(self) -> HangingDisk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Thaw it if it is frozen, and unmount it."""
        assert self._guard.stdin is not None and self._guard.stdout is not None
        self._guard.stdin.close()
        self._guard.wait()
        self._guard.stdout.close()

    def _ask(self, word: str) -> None:
        assert self._guard.stdin is not None and self._guard.stdout is not None
        self._guard.stdin.write(f"{word}\n")
        if self._guard.stdout.readline() != "done\n":
            raise DiskError(f"fsfreeze {word} {self.path} fails on this machine")


def _run(*words: str | Path) -> None:
    done = subprocess.run(list(words), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DiskError(f"{words[0]}: {done.stderr.strip()}")
