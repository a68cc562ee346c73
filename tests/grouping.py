"""Tests that share what their module sets up run in one worker: otherwise each worker would set it up again."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parent.parent


class GroupedScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives workers whole modules that have a shared fixture, and single tests of all others."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """Return the name of a test's group: its file, or the test itself."""
    file = nodeid.partition("::")[0]
    return file if has_shared_fixture(ROOT / file) else nodeid


@cache
def has_shared_fixture(file: Path) -> bool:
    """Return whether a file has a fixture for all tests of its module."""
    return 'scope="module"' in file.read_text(encoding="utf-8")
