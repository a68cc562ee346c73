"""Which variants of a test `make test` runs."""

from __future__ import annotations

import pytest

from tests.variants import covering, mark_repetitions

pytest_plugins = ["pytester"]

MARKERS = """
[pytest]
markers =
    slow: as in the project
"""
SUITE = """
import pytest

@pytest.fixture(params=["s3", "gcs", "azure"])
def store(request):
    return request.param

@pytest.mark.parametrize("verb", ["cp", "mv"])
@pytest.mark.parametrize(("given", "wanted"), [(1, 2), (1, 3), (2, 3)])
def test_product(store, verb, given, wanted):
    pass

@pytest.mark.parametrize("value", [1, 1, 2])
def test_list(value):
    pass

@pytest.mark.parametrize("one", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("other", [1, 2])
def test_partly_slow(one, other):
    pass
"""


@pytest.fixture
def items(pytester: pytest.Pytester) -> list[pytest.Item]:
    pytester.makeini(MARKERS)
    folder = pytester.mkdir("e2e")
    (folder / "test_made.py").write_text(SUITE, encoding="utf-8")
    made, _ = pytester.inline_genitems("e2e")
    return made


def quick(items: list[pytest.Item], name: str) -> list[str]:
    """Return the ids of the variants that are not slow."""
    return [
        item.name.partition("[")[2].rstrip("]")
        for item in items
        if item.name.startswith(name) and not item.get_closest_marker("slow")
    ]


def test_each_value_of_each_parameter_stays_in_a_variant_that_is_not_slow(items: list[pytest.Item]) -> None:
    mark_repetitions(items)
    kept = quick(items, "test_product")
    assert len(kept) == 3
    for part in ("s3", "gcs", "azure", "cp", "mv", "1-2", "1-3", "2-3"):
        assert any(part in one for one in kept), (part, kept)


def test_all_values_of_one_parameter_are_kept(items: list[pytest.Item]) -> None:
    mark_repetitions(items)
    assert {one[0] for one in quick(items, "test_list")} == {"1", "2"}


def test_a_slow_variant_stands_for_no_value(items: list[pytest.Item]) -> None:
    mark_repetitions(items)
    assert len(quick(items, "test_partly_slow")) == 2


def test_variants_of_other_folders_all_stay(pytester: pytest.Pytester) -> None:
    pytester.makeini(MARKERS)
    pytester.makepyfile(SUITE)
    items, _ = pytester.inline_genitems()
    before = [quick(items, name) for name in ("test_product", "test_list")]
    mark_repetitions(items)
    assert [quick(items, name) for name in ("test_product", "test_list")] == before


def test_the_variant_with_most_missing_values_is_next() -> None:
    one, two, three = frozenset("ab"), frozenset("bcd"), frozenset("a")
    assert covering([one, two, three]) == [two, three]


def test_values_that_occur_again_take_turns() -> None:
    ports, contents = ["control", "data"], range(6)
    chosen = covering([frozenset([port, content]) for port in ports for content in contents])
    assert len(chosen) == len(contents)
    assert all(sum(port in variant for variant in chosen) == len(contents) / len(ports) for port in ports)
