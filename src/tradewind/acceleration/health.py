"""The health of proxies, and the path of each flow among healthy ones. Pure: observations in, decisions out.

A proxy is healthy if its gateway answers, and if its neighbours on paths can connect to its data port: they probe it
every few seconds, and count the connections of flows that they cannot open.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from tradewind.acceleration.wiring import Wire, entrances_of, hops_of

if TYPE_CHECKING:
    from tradewind.model.split import SplitStatus

__all__ = [
    "FAILURES_UNTIL_UNHEALTHY",
    "HOP_FAILURES",
    "SUCCESSES_UNTIL_HEALTHY",
    "Health",
    "cut_off",
    "paths_now",
    "unreached",
]

HOP_FAILURES = 2
"""Consecutive connections that a neighbour cannot open; then the proxy has failed a look."""

FAILURES_UNTIL_UNHEALTHY = 2
"""Consecutive failed checks after which a proxy gets no new flows."""
SUCCESSES_UNTIL_HEALTHY = 4
"""Consecutive looks that succeed until it gets new flows again: more, so that a proxy in doubt does not flap."""


class Health:
    """The health of some proxies with hysteresis. A new proxy is healthy."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.unhealthy: dict[str, str] = {}
        """Why a proxy is unhealthy, by name."""
        self._run: dict[str, int] = dict.fromkeys(names, 0)

    def look(self, name: str, failure: str | None) -> None:
        """Record one check of a proxy: why it failed, or None."""
        run = self._run.get(name, 0)
        if failure is None:
            self._run[name] = run + 1 if run > 0 else 1
            if self._run[name] >= SUCCESSES_UNTIL_HEALTHY:
                self.unhealthy.pop(name, None)
            return
        self._run[name] = run - 1 if run < 0 else -1
        if self._run[name] <= -FAILURES_UNTIL_UNHEALTHY or name in self.unhealthy:
            self.unhealthy[name] = failure

    def dead(self, name: str, failure: str) -> None:
        """Take in that the machine of a proxy has ended."""
        self.unhealthy[name], self._run[name] = failure, -FAILURES_UNTIL_UNHEALTHY

    def fresh(self, name: str) -> None:
        """Take in that a proxy has a new machine."""
        self.unhealthy.pop(name, None)
        self._run[name] = 0

    def forget(self, name: str) -> None:
        """Forget a proxy that is no longer wanted."""
        self.unhealthy.pop(name, None)
        self._run.pop(name, None)


def unreached(wires: Iterable[Wire], looks: Mapping[str, SplitStatus | str]) -> dict[str, str]:
    """Return the proxies to which a proxy before it, or all entrances that use it, cannot connect, and why.

    `looks` has the status of each gateway, or why it did not answer. If only some entrances cannot connect, the fault
    is theirs: see `cut_off`.
    """
    wires = tuple(wires)
    entrances, failing = entrances_of(wires), dict(_failing(wires, looks))
    found: dict[str, str] = {}
    for (start, end), why in failing.items():
        others = (hop for hop in sorted(hops_of(wires)) if hop[1] == end and hop[0] in entrances)
        answering = (hop for hop in others if not isinstance(looks.get(hop[0], ""), str))
        if start not in entrances or all(hop in failing for hop in answering):
            found[end] = f"{start} cannot connect to it: {why}"
    return found


def cut_off(wires: Iterable[Wire], looks: Mapping[str, SplitStatus | str]) -> dict[tuple[str, str], str]:
    """Return the pairs of an entrance and a proxy to which it cannot connect, and why."""
    wires = tuple(wires)
    entrances = entrances_of(wires)
    return {hop: why for hop, why in _failing(wires, looks) if hop[0] in entrances}


def _failing(wires: Iterable[Wire], looks: Mapping[str, SplitStatus | str]) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the pairs of neighbours on placed paths of which the first cannot connect to the second, and why."""
    for start, end in sorted(hops_of(wires)):
        status = looks.get(start)
        hop = None if status is None or isinstance(status, str) else status.hops.get(end)
        if hop is not None and hop.failures >= HOP_FAILURES:
            yield (start, end), hop.failure or "no reason is known"


def paths_now(
    wires: Iterable[Wire],
    unhealthy: Mapping[str, str],
    unreachable: Collection[str],
    regions: Mapping[str, str],
    cut: Mapping[tuple[str, str], str] = MappingProxyType({}),
) -> dict[str, tuple[tuple[str, ...], str | None]]:
    """Return the path of new connections of each flow, and why it is not the placed one.

    A path with an unhealthy proxy is replaced by one over healthy proxies in the same regions that another flow was
    placed on, else by the direct path: no prediction says that other regions help this flow. `unreachable` proxies have
    no address yet, and `cut` are pairs of an entrance and a proxy to which it cannot connect.
    """
    wires = tuple(wires)
    bad = unhealthy.keys() | set(unreachable)
    good = [wire.through for wire in wires if wire.through and not bad & set(wire.through)]
    found: dict[str, tuple[tuple[str, ...], str | None]] = {}
    for wire in wires:
        failed = [f"{name}: {unhealthy.get(name, 'it is starting')}" for name in wire.through if name in bad]
        for name in wire.through[:1]:
            if (wire.entrance, name) in cut:
                failed.append(f"{name}: {wire.entrance} cannot connect to it: {cut[wire.entrance, name]}")
        if not failed:
            found[wire.name] = wire.through, None
            continue
        where = [regions.get(name) for name in wire.through]
        usable = [path for path in good if (wire.entrance, path[0]) not in cut]
        others = [path for path in usable if [regions.get(name) for name in path] == where]
        reason = failed[0]
        found[wire.name] = (others[0] if others else ()), reason
    return found
