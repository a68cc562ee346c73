"""A transfer that is ready to be planned, and its answer to one goal where costs are linear except for boot time."""

from __future__ import annotations

import numpy as np

from tradewind.model.catalog import Catalog
from tradewind.model.goal import Cheapest, Deadline, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.records import dataclass, replace
from tradewind.planner.formulation import Formulation, build_formulation
from tradewind.planner.goals import cheapest, cheapest_exactly, fastest, fastest_within, soonest
from tradewind.planner.multicast_formulation import build_multicast_formulation, shared_links
from tradewind.planner.network import FlowNetwork, PlanningLimits
from tradewind.planner.points import Demand, Point
from tradewind.planner.solver import SolverSettings

__all__ = ["Transfer", "by_boot_time", "solve_goal", "with_boot_within"]


@dataclass(frozen=True, slots=True, eq=False)
class Transfer:
    """A transfer ready to be planned for any goal."""

    catalog: Catalog
    limits: PlanningLimits
    network: FlowNetwork
    formulation: Formulation
    demand: Demand
    settings: SolverSettings

    @property
    def boot_given_s(self) -> float | None:
        """Return the start time of machines if it does not depend on their type; else None."""
        return self.demand.boot_s if self.demand.boot_given else None


def by_boot_time(transfer: Transfer) -> list[Transfer]:
    """Return the transfer once per boot time that its plan can have, with the machine types that start within it.

    A plan waits for its slowest machine. Among the machines that start within b seconds, plans whose slowest takes b
    are charged their true cost, and no other plan is undercharged: the best over all b is the best.
    """
    network, formulation, demand = transfer.network, transfer.formulation, transfer.demand
    ends = [network.boots_at(region) for region in (formulation.source, *formulation.sinks)]
    times = [] if demand.boot_given or not all(ends) else network.boot_times_s
    times_s = [boot_s for boot_s in times if boot_s >= max(boots[0] for boots in ends)]
    if len(times_s) < 2:
        return [transfer]
    settings = replace(transfer.settings, work_max=transfer.settings.work_max / len(times_s))
    return [with_boot_within(replace(transfer, settings=settings), boot_s) for boot_s in times_s]


def with_boot_within(transfer: Transfer, boot_s: float) -> Transfer:
    """Return the transfer with only the machine types that start within ``boot_s``."""
    demand = replace(transfer.demand, boot_s=boot_s)
    network, formulation = transfer.network.with_boot_within(boot_s), transfer.formulation
    if len(network.options) == len(transfer.network.options):
        return replace(transfer, demand=demand)
    several = formulation.shared is not None
    links = shared_links(formulation) if several else formulation.links
    offered = np.zeros(len(network.regions), dtype=bool)
    offered[network.pool_of_option] = True
    links = links[offered[network.tail[links]] & offered[network.head[links]]]
    if several:
        small = build_multicast_formulation(network, formulation.source, formulation.sinks, links=links)
    else:
        small = build_formulation(network, formulation.source, formulation.sink, links=links)
    return replace(transfer, network=network, formulation=small, demand=demand)


def solve_goal(transfer: Transfer, goal: Goal) -> Point | None:
    """Return the best point for a goal; ``None`` if nothing meets it."""
    formulation, demand, settings = transfer.formulation, transfer.demand, transfer.settings
    if isinstance(goal, MinThroughput):
        if goal.exactly:
            return cheapest_exactly(formulation, demand, goal.gbps, settings)
        return cheapest(formulation, demand, settings, rate_min_gbps=goal.gbps)
    if isinstance(goal, Deadline):
        left_s = goal.seconds - demand.boot_s
        return None if left_s <= 0 else cheapest(formulation, demand, settings, rate_min_gbps=demand.gbit / left_s)
    if isinstance(goal, MaxCost):
        return fastest_within(formulation, demand, goal.usd, settings)
    if isinstance(goal, Cheapest):
        return cheapest(formulation, demand, settings)
    if isinstance(goal, Soonest):
        return soonest(formulation, demand, settings)
    return fastest(formulation, demand, settings)
