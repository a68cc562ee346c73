"""Which variants of a test `make test` runs, if the test has all combinations of the values of several parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

import pytest

#: Folders with tests that start processes, of which each variant takes seconds.
COSTLY = ("e2e", "fleet", "sky")

Values = frozenset[Hashable]
"""The values of a variant: one for each decorator or fixture that has parameters."""


def mark_repetitions(items: Iterable[pytest.Item]) -> None:
    """Mark variants of costly tests as slow, except as many as contain each value of each parameter."""
    tests: dict[Hashable, dict[pytest.Item, Values]] = {}
    for item in items:
        costly = any(folder in item.path.parts for folder in COSTLY)
        if costly and isinstance(item, pytest.Function) and item.get_closest_marker("slow") is None:
            tests.setdefault((item.path, item.originalname), {})[item] = values_of(item)
    for variants in tests.values():
        quick = set(covering(list(variants.values())))
        for item, values in variants.items():
            if values not in quick:
                item.add_marker(pytest.mark.slow)


def values_of(item: pytest.Function) -> Values:
    """Return the values of a variant. Values of one decorator belong together: its author chose the combinations."""
    call = getattr(item, "callspec", None)
    if call is None:
        return frozenset(["the only one"])
    left = {name: id(value) for name, value in call.params.items()}
    values: list[Hashable] = []
    for marker in item.iter_markers("parametrize"):
        names = marker.args[0] if marker.args else marker.kwargs["argnames"]
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        values.append(tuple((name, left.pop(name)) for name in names if name in left))
    return frozenset([*values, *left.items()])


def covering(variants: list[Values]) -> list[Values]:
    """Return few variants with all values of all: repeatedly the one with the most missing values.

    Of several, it is the one whose values were chosen least, so that all values of a short list take turns.
    """
    missing = set().union(*variants)
    uses: Counter[Hashable] = Counter()
    chosen = []
    while missing:
        best = max(variants, key=lambda variant: (len(variant & missing), -sum(uses[value] for value in variant)))
        chosen.append(best)
        uses.update(best)
        missing -= best
    return chosen
