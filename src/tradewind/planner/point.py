"""A job, an answer with its true figures, and the best use of given machines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tradewind.model.amounts import BITS_PER_BYTE
from tradewind.model.overlay import RegionMachines
from tradewind.model.requests import ObjectSet
from tradewind.planner.formulation import Ask, Formulation
from tradewind.planner.solver import Answer, SolverSettings, solve_flows

__all__ = [
    "RATE_UNBOUNDED_GBPS",
    "STEPS_MAX",
    "Job",
    "Point",
    "cheapest_for_machines",
    "cost_rate",
    "fastest_for_machines",
]

RATE_UNBOUNDED_GBPS = 1e6
PROVEN_GAP = 2e-6
"""Relative; an answer with a smaller gap counts as proven."""
STEPS_MAX = 30
"""Maximum steps of Dinkelbach's method. Never reached: it converges superlinearly, in two to five steps here."""


@dataclass(frozen=True, slots=True)
class Job:
    """Volume and boot time of a transfer, as far as costs depend on them."""

    volume_gb: float
    boot_s: float = 0.0
    requests_usd: float = 0.0
    objects: ObjectSet | None = None
    """The objects for which requests are counted."""
    boot_given: bool = False
    """True if all machines take ``boot_s`` to start; otherwise ``boot_s`` is the longest wait that a plan may have."""

    def boot_of(self, machines: Iterable[RegionMachines]) -> float:
        """Seconds until the slowest of these machines answers."""
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
        """Weight of machine prices in R that pays boot time too, at one rate."""
        return 1.0 + rate_gbps * self.boot_s / self.gbit


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """An answer with its true rate and cost, and its maximum gap to the best."""

    answer: Answer
    rate_gbps: float
    cost_usd: float
    gap: float = 0.0

    @property
    def proven(self) -> bool:
        """True if nothing better exists: the search says so, and so does the gap."""
        return self.answer.optimal and self.gap <= PROVEN_GAP

    @classmethod
    def of(cls, formulation: Formulation, job: Job, answer: Answer, gap: float = 0.0) -> Point:
        """Evaluate an answer as it truly is."""
        rate = float(answer.flow_gbps[formulation.out_of_source].sum())
        machines_usd_per_s = float(formulation.machine_usd_per_s @ answer.machines)
        egress_usd_per_s = float(formulation.egress_usd_per_s @ answer.flow_gbps)
        time_s = job.gbit / rate
        cost = egress_usd_per_s * time_s + machines_usd_per_s * (time_s + job.boot_s) + job.requests_usd
        return cls(answer, rate, cost, gap)


def cost_rate(formulation: Formulation, answer: Answer, factor: float) -> float:
    """R [USD/s], machines counted ``factor`` times."""
    machines = float(formulation.machine_usd_per_s @ answer.machines)
    return float(formulation.egress_usd_per_s @ answer.flow_gbps) + machines * factor


def cheapest_for_machines(
    formulation: Formulation, job: Job, settings: SolverSettings, answer: Answer, rate_min_gbps: float
) -> Point:
    """The cheapest use of one set of machines at at least a rate. Their boot is then a constant: plain Dinkelbach."""
    best = Point.of(formulation, job, answer)
    for _ in range(STEPS_MAX):
        ratio = cost_rate(formulation, best.answer, 1.0) / best.rate_gbps
        ask = Ask(rate_min_gbps, RATE_UNBOUNDED_GBPS, usd_per_gbit=ratio)
        found = solve_flows(formulation, ask, answer.machines, settings)
        if found is None:
            break
        point = Point.of(formulation, job, found)
        if point.cost_usd >= best.cost_usd * (1 - settings.relative_gap):
            break
        best = point
    return best


def fastest_for_machines(
    formulation: Formulation, job: Job, settings: SolverSettings, answer: Answer, ceiling_usd_per_gbit: float
) -> Point | None:
    """The fastest use of one set of machines under the ceiling, their boot paid first."""
    boot_usd = float(formulation.machine_usd_per_s @ answer.machines) * job.boot_s
    left = ceiling_usd_per_gbit - boot_usd / job.gbit
    if left <= 0.0:
        return None
    ask = Ask(0.0, RATE_UNBOUNDED_GBPS, maximise_rate=True, ceiling_usd_per_gbit=left)
    found = solve_flows(formulation, ask, answer.machines, settings)
    return None if found is None or found.objective <= 0.0 else Point.of(formulation, job, found)
