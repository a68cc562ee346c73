"""Decide whether flows fit a number of equal instances: bin packing, exactly for the few flows of a region."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["FITS", "STEPS_MAX", "PackingUndecided", "fewest", "packed", "smallest_misfit"]

FITS = 1 + 1e-9
"""Factor by which a load or a cost may exceed its limit: rounding, not use."""
STEPS_MAX = 50_000
"""Most steps of one exact search; beyond it the question is undecided."""
SETS_MAX = 5_000
"""Most sets of flows beside one flow."""
EXACT_FLOWS_MAX = 200
"""Most flows of one exact search, which recurses once for each."""


class PackingUndecided(Exception):
    """The exact search reached its limit: the flows may fit or not."""


def fewest(
    rates_mbps: Sequence[float], capacity_mbps: float, most: int, steps_max: int = STEPS_MAX
) -> list[int] | None:
    """Return the instance of each flow, with as few instances as first-fit decreasing needs, or exactly `most` if it
    needs more; None if the flows do not fit `most`. Raises PackingUndecided.
    """
    places = _first_fit_decreasing(rates_mbps, capacity_mbps)
    if places is None:
        return None
    return places if max(places, default=-1) < most else packed(rates_mbps, capacity_mbps, most, steps_max)


def packed(
    rates_mbps: Sequence[float], capacity_mbps: float, count: int, steps_max: int = STEPS_MAX
) -> list[int] | None:
    """Return the instance of each flow, or None if the flows do not fit `count` instances. Raises PackingUndecided."""
    most = capacity_mbps * FITS
    if sum(rates_mbps) > most * count:
        return None
    places = _first_fit_decreasing(rates_mbps, capacity_mbps)
    if places is None or max(places, default=-1) < count:
        return places
    if len(rates_mbps) > EXACT_FLOWS_MAX:
        raise PackingUndecided
    return _search(rates_mbps, most, count, steps_max)


def smallest_misfit(rates_mbps: Sequence[float], capacity_mbps: float, count: int) -> list[int]:
    """Return positions of flows that do not fit together, and of which each is needed for that.

    The flows as a whole must not fit. Raises PackingUndecided.
    """
    kept = sorted(range(len(rates_mbps)), key=lambda flow: rates_mbps[flow])
    for flow in list(kept):
        fewer = [other for other in kept if other != flow]
        if packed([rates_mbps[other] for other in fewer], capacity_mbps, count) is None:
            kept = fewer
    return kept


def _first_fit_decreasing(rates_mbps: Sequence[float], capacity_mbps: float) -> list[int] | None:
    """Return the instance of each flow by the rule of thumb; None if a flow alone exceeds the capacity."""
    most = capacity_mbps * FITS
    free: list[float] = []
    places = [0] * len(rates_mbps)
    for flow in sorted(range(len(rates_mbps)), key=lambda one: -rates_mbps[one]):
        rate_mbps = rates_mbps[flow]
        if rate_mbps > most:
            return None
        number = next((number for number, room in enumerate(free) if room >= rate_mbps), len(free))
        if number == len(free):
            free.append(most)
        free[number] -= rate_mbps
        places[flow] = number
    return places


def _search(rates_mbps: Sequence[float], most: float, count: int, steps_max: int) -> list[int] | None:
    """Fill one instance after the other: the largest flow that is left, and others beside it.

    Instances that stay partly empty use up the spare capacity, so nearly full ones are tried first. Sets of flows that
    are known not to fit are not tried again.
    """
    order = sorted(range(len(rates_mbps)), key=lambda flow: -rates_mbps[flow])
    rates = [rates_mbps[flow] for flow in order]
    places = [0] * len(rates)
    misfits: set[tuple[int, ...]] = set()
    steps = 0

    def fill(left: tuple[int, ...], instance: int, spare: float) -> bool:
        nonlocal steps
        if not left:
            return True
        if instance == count or left in misfits:
            return False
        for chosen in sorted(_beside(rates, left, most), key=lambda one: -one[0]):
            steps += 1
            if steps > steps_max:
                raise PackingUndecided
            waste = most - chosen[0]
            if waste > spare:
                break
            rest = tuple(item for item in left if item not in chosen[1])
            if fill(rest, instance + 1, spare - waste):
                for item in chosen[1]:
                    places[order[item]] = instance
                return True
        misfits.add(left)
        return False

    every = tuple(range(len(rates)))
    return places if fill(every, 0, most * count - sum(rates)) else None


def _beside(rates: Sequence[float], left: tuple[int, ...], most: float) -> list[tuple[float, frozenset[int]]]:
    """Return the sets with the largest flow to which no other flow can be added, with their sums. Equal sets once."""
    first, others = left[0], left[1:]
    found: list[tuple[float, frozenset[int]]] = []
    seen: set[tuple[float, ...]] = set()

    def extend(at: int, total: float, items: tuple[int, ...]) -> None:
        if len(found) >= SETS_MAX:
            raise PackingUndecided
        grown = False
        last = None
        for position in range(at, len(others)):
            rate = rates[others[position]]
            if total + rate <= most and rate != last:
                grown, last = True, rate
                extend(position + 1, total + rate, (*items, others[position]))
        if not grown:
            figures = tuple(rates[item] for item in items)
            if figures not in seen:
                seen.add(figures)
                found.append((total, frozenset(items)))

    extend(0, rates[first], (first,))
    return found
