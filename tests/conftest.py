"""Configuration of all tests."""

from __future__ import annotations

import gc
import itertools
import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.grouping import GroupedScheduling, has_shared_fixture
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
    """Start long tests early.

    The demo of clouds is first. It has a Kubernetes cluster of its own, and waits for those of other tests, which end
    with the run. Groups follow, because a group runs in one worker. Tests of skies wait for links and take longest;
    the longest of them are in the last files.
    """
    mark_repetitions(items)
    demo = [item for item in items if item.path.name == "test_cloud_demo.py"]
    first = dict.fromkeys([*demo, *(item for item in items if has_shared_fixture(item.path))])
    later = [item for item in items if item not in first]
    long = dict.fromkeys(item for item in reversed(later) if is_long(item))
    others = [item for item in later if item not in long]
    apart = max(1, int(len(others) * LONG_BEGUN_SHARE) // max(1, len(long)))
    waiting = iter(long)
    ordered = list(first)
    for index, item in enumerate(others):
        if index % apart == 0:
            ordered += itertools.islice(waiting, 1)
        ordered.append(item)
    items[:] = [*ordered, *waiting]


def pytest_collection_finish() -> None:
    """Leave the collected tests, which stay until the end, out of each collection of garbage."""
    gc.collect()
    gc.freeze()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupedScheduling | None:
    """With `--dist loadscope`, give workers groups of tests."""
    return GroupedScheduling(config, log) if config.getoption("dist") == "loadscope" else None


def is_long(item: pytest.Item) -> bool:
    """Return whether a test is of a kind of which some take very long."""
    return item.path.parent.name == "sky" or item.path.name == "test_docs.py"
