"""Probes that do not disturb each other."""

from itertools import permutations

import pytest

from tradewind.measure.schedule import rounds


@pytest.mark.parametrize("count", range(2, 16))
def test_all_pairs_once_no_machine_twice_and_few_rounds(count: int) -> None:
    names = [f"m{number:02}" for number in range(count)]
    pairs = list(permutations(names, 2))
    made = rounds(pairs)
    assert sorted(pair for of in made for pair in of) == sorted(pairs)
    for of in made:
        machines = [name for pair in of for name in pair]
        assert len(set(machines)) == len(machines)
    # Each machine is in 2 (n - 1) probes, one per round. The colouring needs at most one more round per direction.
    assert 2 * (count - 1) <= len(made) <= 2 * count


def test_shared_links_are_respected() -> None:
    pairs = [("a", "b"), ("c", "d"), ("e", "f")]
    assert len(rounds(pairs)) == 1
    made = rounds(pairs, {("a", "b"): ["uplink"], ("c", "d"): ["uplink", "other"], ("e", "f"): ["third"]})
    assert len(made) == 2
    assert not any(("a", "b") in of and ("c", "d") in of for of in made)


def test_no_pairs_and_repeated_pairs() -> None:
    assert rounds([]) == []
    assert rounds([("a", "b"), ("a", "b")]) == [(("a", "b"),)]
