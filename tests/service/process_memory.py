"""The memory of a process, to look for what it must not know. Only root may read it."""

from __future__ import annotations

import mmap
import re
from array import array
from pathlib import Path

__all__ = ["memory_of"]

#: Entries of /proc/PID/pagemap: their size, and the bits of pages that are present or swapped.
ENTRY_BYTES, IN_MEMORY = 8, 3 << 62


def memory_of(pid: int) -> bytes:
    """Return the pages that a process has written. Most of its reserved memory has none."""
    parts = []
    folder, page = Path(f"/proc/{pid}"), mmap.PAGESIZE
    with (folder / "pagemap").open("rb", 0) as pages, (folder / "mem").open("rb", 0) as memory:
        for start, end in re.findall(r"^(\w+)-(\w+) rw", (folder / "maps").read_text(), re.M):
            first, count = int(start, 16) // page, (int(end, 16) - int(start, 16)) // page
            pages.seek(first * ENTRY_BYTES)
            entries = array("Q", pages.read(count * ENTRY_BYTES))
            for number in (first + place for place, entry in enumerate(entries) if entry & IN_MEMORY):
                memory.seek(number * page)
                parts.append(memory.read(page))
    return b"".join(parts)
