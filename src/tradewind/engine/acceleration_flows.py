"""The bytes and rates of the flows of an acceleration, and the comparison of proxies with the direct path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tradewind.acceleration.comparison import Comparison
from tradewind.acceleration.failures import AWAY_S, FAILED_MAX, FailedConnections
from tradewind.acceleration.restarting_counts import RestartingCounts
from tradewind.acceleration.wiring import LOCAL_WAYS, Wire, listener_key, sharing
from tradewind.model.acceleration import FlowState
from tradewind.model.flows import FlowsFile
from tradewind.model.records import replace

if TYPE_CHECKING:
    from tradewind.model.split import SplitStatus, SplitTraffic

__all__ = ["FlowCounts"]

MBITS_PER_BYTE = 8e-6
#: An entrance, the name of a listener, and a destination: flows with the same ones cannot be told apart.
Group = tuple[str, str, str]


#: Bytes up and down, connections, and failed ones.
NOTHING = RestartingCounts.since(0, 0, 0, 0)


class FlowCounts:
    """Counts of flows by way in and destination, from the status of their entrances. Times are seconds of one clock.

    `former` are the states of the same flows before the acceleration was resumed, which count on.
    """

    def __init__(self, flows: FlowsFile, now_s: float, former: Iterable[FlowState] = ()) -> None:
        self.flows = flows
        """The flows file, which says how often to compare."""
        self.aside: dict[str, str] = {}
        """Why new connections of a flow go direct, by name: proxies gain too little, its connections over them fail, or
        to compare."""
        self._comparisons: dict[Group, Comparison] = {}
        self._failures: dict[Group, FailedConnections] = {}
        #: Counts by group and path.
        self._carried: dict[Group, dict[tuple[str, ...], RestartingCounts]] = {}
        self._former = {flow.name: _totals_of(flow) for flow in former}
        self._counted_s = now_s

    def renewed(self, entrance: str) -> None:
        """Record that an entrance has a new gateway, which counts from zero."""
        for group in self._carried:
            if group[0] == entrance:
                self._carried[group] = {path: counts.renewed() for path, counts in self._carried[group].items()}

    def count(self, wires: Sequence[Wire], entrances: Mapping[str, SplitStatus], now_s: float) -> bool:
        """Take in the status of each entrance. Return whether other flows must go direct now."""
        elapsed_s, self._counted_s = now_s - self._counted_s, now_s
        for group in dict.fromkeys(map(_group, wires)):
            traffic = entrances[group[0]].traffic if group[0] in entrances else ()
            carried = self._carried.setdefault(group, {})
            for each in traffic:
                if (each.listener, each.destination) == group[1:]:
                    carried[each.through] = carried.get(each.through, NOTHING).seen(_counts_of(each))
            proxied = _sum(counts.totals for path, counts in carried.items() if path)
            direct = _sum(counts.totals for path, counts in carried.items() if not path)
            self._failures.setdefault(group, FailedConnections()).count(proxied[3], proxied[2], now_s)
            comparison = self._comparisons.setdefault(group, self._comparison(now_s))
            comparison.direct.count(direct[0] + direct[1], elapsed_s)
            comparison.proxied.count(proxied[0] + proxied[1], elapsed_s)
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
        carried = (counts.totals for counts in self._carried.get(_group(wire), {}).values())
        up, down, connections, failed = _sum([*carried, self._former.get(wire.name, (0, 0, 0, 0))])
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


def _counts_of(traffic: SplitTraffic) -> tuple[int, int, int, int]:
    return traffic.bytes_up, traffic.bytes_down, traffic.connections, traffic.failed


def _totals_of(flow: FlowState) -> tuple[int, int, int, int]:
    return flow.bytes_up, flow.bytes_down, flow.connections, flow.failed


def _sum(rows: Iterable[Sequence[int]]) -> tuple[int, int, int, int]:
    """Return the sums of the counts of several paths."""
    up, down, connections, failed = map(sum, zip((0, 0, 0, 0), *rows, strict=True))
    return up, down, connections, failed
