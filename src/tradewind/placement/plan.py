"""The plan of a placement: the path of each flow, the instances, cost and total completion time."""

from __future__ import annotations

from typing import Any

from tradewind.model.records import dataclass
from tradewind.placement.assignment import Assignment
from tradewind.placement.paths import DIRECT

__all__ = ["FlowPlan", "PlacedProxy", "PlacementPlan", "ProxyLoad", "plan_of"]


@dataclass(frozen=True, slots=True)
class PlacedProxy:
    """A proxy on a flow's path: its region, and its number among the instances of the region."""

    region: str
    instance: int


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """The path of one flow, with its predicted rate and completion time."""

    id: str
    path: tuple[PlacedProxy, ...]
    """Its proxies in order; empty if it goes direct."""
    fct_s: float
    rate_mbps: float
    direct_fct_s: float
    cents: float
    """Price of its traffic, without the setup of instances, which flows share."""


@dataclass(frozen=True, slots=True)
class ProxyLoad:
    """An instance, and the rates of its flows together."""

    region: str
    instance: int
    load_mbps: float


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """A placement that can be carried out."""

    algorithm: str
    total_fct_s: float
    direct_total_fct_s: float
    cost_cents: float
    budget_cents: float
    gap: float | None
    """No placement has a total below (1 - gap) times this one's. None for an algorithm that proves nothing."""
    solve_s: float
    flows: tuple[FlowPlan, ...]
    instances: tuple[ProxyLoad, ...]

    @property
    def acceleration(self) -> float:
        """Total completion time without proxies, as a multiple of that with them."""
        return self.direct_total_fct_s / self.total_fct_s if self.total_fct_s > 0 else 1.0

    def document(self) -> dict[str, Any]:
        """Return the plan as a JSON object, with unrounded figures."""
        return {
            "algorithm": self.algorithm,
            "total_fct_s": self.total_fct_s,
            "direct_total_fct_s": self.direct_total_fct_s,
            "acceleration": self.acceleration,
            "cost_cents": self.cost_cents,
            "gap": self.gap,
            "solve_s": round(self.solve_s, 4),
            "flows": [
                {
                    "id": flow.id,
                    "path": [{"region": proxy.region, "instance": proxy.instance} for proxy in flow.path],
                    "fct_s": flow.fct_s,
                    "rate_mbps": flow.rate_mbps,
                }
                for flow in self.flows
            ],
            "instances": [
                {"region": load.region, "instance": load.instance, "load_mbps": load.load_mbps}
                for load in self.instances
            ],
        }


def plan_of(assignment: Assignment, algorithm: str, bound_s: float | None, solve_s: float) -> PlacementPlan:
    """Return the plan of an assignment. `bound_s` is a total that no placement beats; None if none is proven."""
    paths = assignment.paths
    regions = paths.problem.regions
    # Instances in use are numbered from 0 without gaps.
    numbers: dict[tuple[int, int], int] = {}
    seen = [0] * len(regions)
    for region, instance in sorted(assignment.loads_mbps):
        numbers[region, instance] = seen[region]
        seen[region] += 1
    flows = []
    for number, flow in enumerate(paths.problem.flows):
        path = assignment.path_of[number]
        proxies = tuple(
            PlacedProxy(regions[region].name, numbers[region, instance])
            for region, instance in assignment.instances_of[number]
        )
        fct_s, rate_mbps = float(paths.fct_s[number, path]), float(paths.rate_mbps[number, path])
        direct_s, cents = float(paths.fct_s[number, DIRECT]), float(paths.egress_cents[number, path])
        flows.append(FlowPlan(flow.id, proxies, fct_s, rate_mbps, direct_s, cents))
    total_s = sum(flow.fct_s for flow in flows)
    gap = None if bound_s is None else max(0.0, 1 - bound_s / total_s) if total_s > 0 else 0.0
    return PlacementPlan(
        algorithm,
        total_s,
        sum(flow.direct_fct_s for flow in flows),
        sum(flow.cents for flow in flows) + sum(regions[region].setup_cents for region, _ in numbers),
        paths.problem.budget_cents,
        gap,
        solve_s,
        tuple(flows),
        tuple(
            ProxyLoad(regions[region].name, numbers[region, instance], load)
            for (region, instance), load in sorted(assignment.loads_mbps.items())
        ),
    )
