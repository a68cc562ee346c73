"""Configuration of all tests."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.variants import mark_repetitions
from tradewind.errors import name_options

LONG_BEGUN_SHARE = 0.75
"""Share of a run over which the longest tests are spread, so that few run at once and none is left for the end."""


# No test fails because the machine is busy.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")


def pytest_configure() -> None:
    """Reset signal handlers as at a terminal: a background job starts with some ignored, and children inherit that.

    Messages are those of the command line, except in the tests of those for callers in Python.
    """
    name_options()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start tests of skies early. They wait for links and take longest; the longest of them are in the last files.

    The demo of clouds is first. It has a Kubernetes cluster of its own, and waits for those of other tests, which end
    with the run.
    """
    mark_repetitions(items)
    first = [item for item in items if item.path.name == "test_cloud_demo.py"]
    later = [item for item in items if item not in set(first)]
    long = [item for item in later if item.path.parent.name == "sky" or item.path.name == "test_docs.py"][::-1]
    others = [item for item in later if item not in set(long)]
    apart = max(1, int(len(others) * LONG_BEGUN_SHARE) // max(1, len(long)))
    ordered = first
    for index, item in enumerate(others):
        if index % apart == 0 and index // apart < len(long):
            ordered.append(long[index // apart])
        ordered.append(item)
    items[:] = [*ordered, *(item for item in long if item not in set(ordered))]
