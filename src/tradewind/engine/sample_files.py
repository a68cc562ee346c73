"""The files of a demo: a part of the real files of this machine, and the comparison of a copy with them."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from tradewind.errors import UsageError
from tradewind.model.records import dataclass
from tradewind.model.units import format_bytes

__all__ = ["SampleFiles", "affordable_bytes", "choose_sample", "compare", "trees_of"]

#: Maximum fraction of the volume for large files, so that thousands of small ones fit.
LARGE_PART = 0.7
#: Files of at least the first fraction of the volume are large, files up to the second one small; others are left out.
LARGE_FILE_PART, SMALL_FILE_PART = 1 / 24, 1 / 1000
COMPARE_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SampleFiles:
    """Files to move: names relative to `/`, with sizes."""

    names: list[str]
    sizes: list[int]
    large: int
    """Number of large files."""

    @property
    def bytes(self) -> int:
        """Total size."""
        return sum(self.sizes)

    def __str__(self) -> str:
        are = "is" if self.large == 1 else "are"
        return (
            f"{len(self.names):,} real files of this machine, {format_bytes(self.bytes)} in all;"
            f" {self.large} of them {are} large, up to {format_bytes(max(self.sizes))}"
        )


def choose_sample(trees: list[Path], budget_bytes: int) -> SampleFiles:
    """Return readable regular files below the trees: large ones up to LARGE_PART of the volume, then small ones. Raises
    UsageError.
    """
    large: list[tuple[str, int]] = []
    small: list[tuple[str, int]] = []
    room_large, room_small = int(budget_bytes * LARGE_PART), int(budget_bytes * (1 - LARGE_PART))
    large_bytes, small_bytes = int(budget_bytes * LARGE_FILE_PART), int(budget_bytes * SMALL_FILE_PART)
    for name, size in _files(trees):
        if size >= large_bytes:
            if size <= room_large:
                large.append((name, size))
                room_large -= size
        elif size <= min(small_bytes, room_small):
            small.append((name, size))
            room_small -= size
        if room_large < large_bytes and room_small < 4096:
            break
    chosen = sorted(large + small)
    if not chosen:
        sizes = f"of at least {format_bytes(large_bytes)} or at most {format_bytes(small_bytes)}"
        raise UsageError(
            f"no readable files {sizes} found for the demo",
            hint="name a folder with such files: tradewind demo --tree DIR, or change the volume: --size",
        )
    return SampleFiles([name for name, _ in chosen], [size for _, size in chosen], len(large))


def compare(sample: SampleFiles, copy: Path) -> Iterator[str]:
    """Return the differences between the originals and the copy, one line each."""
    for name in sample.names:
        try:
            if not _same(Path("/") / name, copy / name):
                yield f"/{name}"
        except OSError as error:
            yield f"/{name}: {error.strerror}"
    expected = set(sample.names)
    for folder, _, files in os.walk(copy):
        for file in files:
            name = os.path.relpath(os.path.join(folder, file), copy)
            if name not in expected:
                yield f"{name}: not among the originals"


def _same(one: Path, other: Path) -> bool:
    with one.open("rb", buffering=0) as left, other.open("rb", buffering=0) as right:
        while True:
            piece = left.read(COMPARE_BUFFER_BYTES)
            if piece != right.read(COMPARE_BUFFER_BYTES):
                return False
            if not piece:
                return True


def _files(trees: list[Path]) -> Iterator[tuple[str, int]]:
    """Yield names relative to `/` and sizes, without links and without names that a list cannot hold."""
    seen: set[str] = set()
    for tree in trees:
        for folder, folders, files in os.walk(tree):
            folders.sort()
            for file in sorted(files):
                path = os.path.join(folder, file)
                if path in seen or not _listable(path):
                    continue
                seen.add(path)
                try:
                    entry = os.lstat(path)
                except OSError:
                    continue
                if stat.S_ISREG(entry.st_mode) and os.access(path, os.R_OK):
                    yield path.lstrip("/"), entry.st_size


def _listable(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return "\n" not in path and "\r" not in path


def trees_of(named: list[str] | None) -> list[Path]:
    """Return the given trees; by default the folders of toolchains, libraries and documentation."""
    if named:
        return [Path(tree).resolve() for tree in named]
    rustup = Path(os.environ.get("RUSTUP_HOME", Path.home() / ".rustup")) / "toolchains"
    usual = [rustup, Path("/usr/share/doc"), Path("/usr/lib"), Path(sys.base_prefix) / "lib", Path("/usr/share")]
    return [tree.resolve() for tree in usual if tree.is_dir()]


def affordable_bytes(wanted_bytes: int, place: Path, copies: int) -> int:
    """Return the wanted volume, or less if the copies would leave the disk too little room."""
    free = shutil.disk_usage(place).free
    return wanted_bytes if free >= copies * wanted_bytes * 3 // 2 else free // (3 * copies)
