"""Places in the form of job lists, which is also the one by which an interrupted job is found again."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tradewind.model.units import format_count
from tradewind.model.url import parse_url

__all__ = ["shown", "shown_sources"]


def shown(place: str) -> str:
    """Return a place in the form of job lists: local paths are absolute, pasted addresses named by their store."""
    location = parse_url(place, cwd=os.getcwd())
    return _without_dots(location.key) if location.kind == "file" else str(location)


def shown_sources(sources: Sequence[str]) -> str:
    """Return a job's sources in the form of job lists: the first, and the number of others."""
    first = shown(sources[0])
    return first if len(sources) == 1 else f"{first} and {format_count(len(sources) - 1, 'more source')}"


def _without_dots(path: str) -> str:
    """Return an absolute path without its `.` parts. `..` stays: it means another folder after a symbolic link."""
    *parts, last = path.split("/")
    return "/".join([*(part for part in parts if part != "."), "" if last == "." else last])
