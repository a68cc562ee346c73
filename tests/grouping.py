"""Tests that share what a module sets up run in one worker: otherwise each worker would set it up again."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def group_by_shared_fixtures(items: Iterable[pytest.Item]) -> None:
    """Group the tests of a module that use a fixture of the module's scope (`pytest --dist loadgroup`)."""
    for item in items:
        if isinstance(item, pytest.Function) and shares_a_fixture(item):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def shares_a_fixture(item: pytest.Function) -> bool:
    """Return whether a test uses a fixture that the tests of its module share."""
    return any(made[-1].scope == "module" for made in item._fixtureinfo.name2fixturedefs.values())
