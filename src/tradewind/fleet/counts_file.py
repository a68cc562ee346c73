"""Files in the folder of a job with one count, which no reader finds half written."""

from __future__ import annotations

import os
from pathlib import Path

from tradewind.model.files import open_private

__all__ = ["recorded_count", "write_count"]


def recorded_count(file: Path) -> int | None:
    """Return the count of a file; None without one."""
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def write_count(file: Path, count: int) -> None:
    """Replace the count of a file. Raises OSError."""
    fresh = file.with_suffix(".new")
    with open(fresh, "w", encoding="ascii", opener=open_private) as text:
        text.write(str(count))
    os.replace(fresh, file)
