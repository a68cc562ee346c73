"""Configuration of all tests."""

from __future__ import annotations

import signal

import pytest

LONG_BEGUN_SHARE = 0.75
"""Share of a run over which the longest tests are spread, so that few run at once and none is left for the end."""


def pytest_configure() -> None:
    """Reset signal handlers as at a terminal: a background job starts with some ignored, and children inherit that."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group tests that share what they need, and order them. pytest-xdist reads the groups after this."""
    for item in items:
        if _shares_with_its_module(item):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items[:] = _ordered(items)


def _shares_with_its_module(item: pytest.Item) -> bool:
    """Return whether a test has a fixture for its module, such as a server. Each worker with such tests makes one."""
    assert isinstance(item, pytest.Function)
    fixtures = item._fixtureinfo.name2fixturedefs
    return any(fixtures[name][-1].scope == "module" for name in item.fixturenames if name in fixtures)


def _ordered(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return tests with those of skies early. They wait for links and take longest; the last ones most."""
    long = [item for item in items if item.path.parent.name == "sky" or item.path.name == "test_docs.py"][::-1]
    others = [item for item in items if item not in set(long)]
    apart = max(1, int(len(others) * LONG_BEGUN_SHARE) // max(1, len(long)))
    ordered: list[pytest.Item] = []
    for index, item in enumerate(others):
        if index % apart == 0 and index // apart < len(long):
            ordered.append(long[index // apart])
        ordered.append(item)
    return [*ordered, *(item for item in long if item not in set(ordered))]
