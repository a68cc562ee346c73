"""Which tests run in one worker."""

from __future__ import annotations

import pytest

from tests.grouping import group_by_shared_fixtures

pytest_plugins = ["pytester"]

SUITE = """
import pytest

@pytest.fixture(scope="module")
def server():
    pass

@pytest.fixture
def bucket(server):
    pass

def test_direct(server):
    pass

def test_indirect(bucket):
    pass

def test_without(tmp_path):
    pass
"""


def test_only_tests_with_a_fixture_of_their_module_are_grouped(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_made=SUITE)
    items, _ = pytester.inline_genitems()
    group_by_shared_fixtures(items)
    groups = {item.name: marker.args for item in items if (marker := item.get_closest_marker("xdist_group"))}
    assert groups == {"test_direct": ("test_made",), "test_indirect": ("test_made",)}
