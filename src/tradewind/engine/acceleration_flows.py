"""The bytes and rates of the flows of an acceleration, and the comparison of proxies with the direct path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tradewind.acceleration.comparison import Comparison
from tradewind.acceleration.failures import AWAY_S, FAILED_MAX, FailedConnections
from tradewind.acceleration.wiring import LOCAL_WAYS, Wire, listener_key, sharing
from tradewind.model.acceleration import FlowState
from tradewind.model.flows import FlowsFile
from tradewind.model.records import replace

if TYPE_CHECKING:
    from tradewind.model.split import SplitStatus

__all__ = ["FlowCounts"]

MBITS_PER_BYTE = 8e-6
#: An entrance, the name of a listener, and a destination: flows with the same ones cannot be told apart.
Group = tuple[str, str, str]


class FlowCounts:
    """Counts of flows by way in and destination, from the status of their entrances. Times are seconds of one clock."""

    def __init__(self, flows: FlowsFile, now_s: float) -> None:
        self.flows = flows
        """The flows file, which says how often to compare."""
        self.aside: dict[str, str] = {}
        """Why new connections of a flow go direct, by name: proxies gain too little, its connections over them fail, or
        to compare."""
        self._comparisons: dict[Group, Comparison] = {}
        self._failures: dict[Group, FailedConnections] = {}
        self._carried: dict[Group, tuple[int, int, int, int]] = {}
        self._counted_s = now_s

    def count(self, wires: Sequence[Wire], entrances: Mapping[str, SplitStatus], now_s: float) -> bool:
        """Take in the status of each entrance. Return whether other flows must go direct now."""
        elapsed_s, self._counted_s = now_s - self._counted_s, now_s
        for group in dict.fromkeys(map(_group, wires)):
            traffic = entrances[group[0]].traffic if group[0] in entrances else ()
            mine = [each for each in traffic if (each.listener, each.destination) == group[1:]]
            self._carried[group] = (
                sum(each.bytes_up for each in mine),
                sum(each.bytes_down for each in mine),
                sum(each.connections for each in mine),
                sum(each.failed for each in mine),
            )
            over_proxies = [each for each in mine if each.through]
            self._failures.setdefault(group, FailedConnections()).count(
                sum(each.failed for each in over_proxies), sum(each.connections for each in over_proxies), now_s
            )
            comparison = self._comparisons.setdefault(group, self._comparison(now_s))
            total = [0, 0]
            for each in mine:
                total[bool(each.through)] += each.bytes_up + each.bytes_down
            comparison.direct.count(total[0], elapsed_s)
            comparison.proxied.count(total[1], elapsed_s)
        aside = {}
        for wire in wires:
            comparison = self._comparisons[_group(wire)]
            is_direct = comparison.at(now_s)
            if wire.through and self._failures[_group(wire)].are_too_many(now_s):
                aside[wire.name] = f"its last {FAILED_MAX} connections over proxies failed; direct for {AWAY_S:g} s"
            elif wire.through and is_direct:
                aside[wire.name] = comparison.bypass or "compared with the direct path for a moment"
        has_changed, self.aside = aside != self.aside, aside
        return has_changed

    def states(
        self,
        wires: Sequence[Wire],
        paths: Mapping[str, tuple[tuple[str, ...], str | None]],
        listening: Mapping[str, str],
    ) -> tuple[FlowState, ...]:
        """Return the state of each flow. `paths` are those of new connections with a reason, by the flow's name."""
        return tuple(
            replace(
                self._state(wire, paths.get(wire.name, (wire.through, None)), listening.get(wire.name, wire.listen)),
                shared_with=sharing(wire, wires),
            )
            for wire in wires
        )

    def _state(self, wire: Wire, path: tuple[tuple[str, ...], str | None], listen: str) -> FlowState:
        compared = self._comparisons.get(_group(wire)) or self._comparison(0.0)
        up, down, connections, failed = self._carried.get(_group(wire), (0, 0, 0, 0))
        achieved_mbps = (compared.proxied if wire.through else compared.direct).mbps
        return FlowState(
            wire.name,
            wire.target,
            listen,
            wire.way_in if wire.way_in in LOCAL_WAYS else wire.way,
            wire.through,
            path[0],
            wire.predicted_mbps,
            wire.direct_mbps,
            achieved_mbps,
            compared.direct.mbps,
            up,
            down,
            connections,
            path[1],
            predicted_s=wire.predicted_s,
            achieved_s=wire.period_bytes * MBITS_PER_BYTE / achieved_mbps if achieved_mbps else None,
            failed=failed,
            region=wire.entrance_region,
        )

    def _comparison(self, now_s: float) -> Comparison:
        return Comparison(now_s, every_s=self.flows.compare_every_s, trial_s=self.flows.compare_s)


def _group(wire: Wire) -> Group:
    return wire.entrance, listener_key(wire).name, wire.target
