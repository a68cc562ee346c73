"""The demand of a transfer, and answers of the solver at their true rate and cost."""

from __future__ import annotations

from collections.abc import Iterable

from tradewind.model.overlay import RegionMachines
from tradewind.model.records import dataclass
from tradewind.model.requests import ObjectSet
from tradewind.model.units import BITS_PER_BYTE
from tradewind.planner.formulation import Formulation, Subproblem
from tradewind.planner.solver import (
    Solution,
    SolverSettings,
    solve_flows,
)

__all__ = [
    "DINKELBACH_STEPS_MAX",
    "PROVEN_GAP",
    "RATE_UNBOUNDED_GBPS",
    "Demand",
    "Point",
    "cheapest_for_machines",
    "cost_rate",
    "fastest_for_machines",
]

RATE_UNBOUNDED_GBPS = 1e6
"""Above every rate."""
PROVEN_GAP = 2e-6
"""Relative; an answer with a smaller gap counts as proven."""
DINKELBACH_STEPS_MAX = 30
"""Maximum steps of Dinkelbach's method. Never reached: it converges superlinearly, in two to five steps here."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Volume and boot time of a transfer, as far as costs depend on them."""

    volume_gb: float
    boot_s: float = 0.0
    requests_usd: float = 0.0
    objects: ObjectSet | None = None
    """The objects whose requests are charged."""
    rate_max_gbps: float = RATE_UNBOUNDED_GBPS
    """No plan is faster: the user limits the rate."""
    boot_given: bool = False
    """True if all machines take ``boot_s`` to start; otherwise ``boot_s`` is the longest permitted wait of a plan."""

    def boot_of(self, machines: Iterable[RegionMachines]) -> float:
        """Return the seconds until the slowest of these machines answers."""
        return self.boot_s if self.boot_given else max((m.offer.machine.boot_s for m in machines), default=0.0)

    @property
    def gbit(self) -> float:
        """Volume in Gbit."""
        return BITS_PER_BYTE * self.volume_gb

    @property
    def object_count(self) -> int | None:
        """Number of objects, if it is known or assumed."""
        return None if self.objects is None else self.objects.count

    def machine_factor(self, rate_gbps: float) -> float:
        """Return the weight of machine prices in R that also pays for boot time at one rate."""
        return 1.0 + rate_gbps * self.boot_s / self.gbit


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """An answer with its true rate and cost, and its maximum gap to the optimum."""

    solution: Solution
    rate_gbps: float
    cost_usd: float
    gap: float = 0.0

    @property
    def proven(self) -> bool:
        """True if the answer is proven optimal: complete search and closed gap."""
        return self.solution.optimal and self.gap <= PROVEN_GAP

    @classmethod
    def of(cls, formulation: Formulation, demand: Demand, solution: Solution, gap: float = 0.0) -> Point:
        """Evaluate an answer at its true rate and cost."""
        rate = float(solution.flow_gbps[formulation.out_of_source].sum())
        machines_usd_per_s = float(formulation.machine_usd_per_s @ solution.machines)
        egress_usd_per_s = float(formulation.egress_usd_per_s @ solution.flow_gbps)
        time_s = demand.gbit / rate
        cost = egress_usd_per_s * time_s + machines_usd_per_s * (time_s + demand.boot_s) + demand.requests_usd
        return cls(solution, rate, cost, gap)


def cost_rate(formulation: Formulation, solution: Solution, factor: float) -> float:
    """R [USD/s], machines counted ``factor`` times."""
    machines = float(formulation.machine_usd_per_s @ solution.machines)
    return float(formulation.egress_usd_per_s @ solution.flow_gbps) + machines * factor


def cheapest_for_machines(
    formulation: Formulation, demand: Demand, settings: SolverSettings, solution: Solution, rate_min_gbps: float
) -> Point:
    """Return the cheapest use of one set of machines at a minimum rate. Their boot is then a constant: plain
    Dinkelbach.
    """
    best = Point.of(formulation, demand, solution)
    for _ in range(DINKELBACH_STEPS_MAX):
        ratio = cost_rate(formulation, best.solution, 1.0) / best.rate_gbps
        subproblem = Subproblem(rate_min_gbps, demand.rate_max_gbps, usd_per_gbit=ratio)
        found = solve_flows(formulation, subproblem, solution.machines, settings)
        if found is None:
            break
        point = Point.of(formulation, demand, found)
        if point.cost_usd >= best.cost_usd * (1 - settings.relative_gap):
            break
        best = point
    return best


def fastest_for_machines(
    formulation: Formulation, demand: Demand, settings: SolverSettings, solution: Solution, ceiling_usd_per_gbit: float
) -> Point | None:
    """Return the fastest use of one set of machines under the ceiling, after their boot is paid."""
    boot_usd = float(formulation.machine_usd_per_s @ solution.machines) * demand.boot_s
    left = ceiling_usd_per_gbit - boot_usd / demand.gbit
    if left <= 0.0:
        return None
    subproblem = Subproblem(0.0, demand.rate_max_gbps, maximise_rate=True, ceiling_usd_per_gbit=left)
    found = solve_flows(formulation, subproblem, solution.machines, settings)
    return None if found is None or found.objective <= 0.0 else Point.of(formulation, demand, found)
