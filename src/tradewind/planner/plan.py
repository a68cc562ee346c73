"""The planner's entry point: plans one transfer from a catalog, two regions, a volume and a goal, or says why not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import numpy as np

from tradewind.errors import InfeasibleGoal, InvalidPlan, UsageError
from tradewind.model.catalog import Catalog
from tradewind.model.goal import ASKED_DIGITS, Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.overlay import MulticastOverlay, UnicastOverlay
from tradewind.model.records import replace
from tradewind.model.region import Region
from tradewind.model.requests import ObjectSet, request_usd
from tradewind.model.units import BYTES_PER_GB, format_duration, format_gbps, format_usd
from tradewind.planner.check import violations
from tradewind.planner.explain import TIGHT, binding_limits
from tradewind.planner.formulation import build_formulation
from tradewind.planner.frontier import SOLVES_MAX, Frontier, trace_frontier
from tradewind.planner.network import GBPS_MIN, FlowNetwork, IntArray, PlanningLimits, build_network
from tradewind.planner.network_choices import solve_over_network_tiers
from tradewind.planner.points import PROVEN_GAP, RATE_UNBOUNDED_GBPS, Demand, Point
from tradewind.planner.route_limit import solve_within_routes
from tradewind.planner.routes import build_overlay
from tradewind.planner.small_flows import drop_small_flows
from tradewind.planner.solver import SolverSettings
from tradewind.planner.tier_choices import tier_formulations
from tradewind.planner.transfer import Transfer, by_boot_time, solve_goal, with_boot_within

__all__ = [
    "Transfer",
    "build_checked",
    "demand_of",
    "infeasible",
    "plan_transfer",
    "prepare",
    "refuse_ends",
    "solve_checked",
    "solve_goal",
    "solve_over_network_tiers",
    "solve_overlay",
    "trace_transfer",
]

ROUNDING = 1e-8
"""Relative; a solver's figure that is closer than this to a round figure is rounded to it."""
CEILINGS_MAX = 6
"""Maximum attempts, each with a lower ceiling, for a plan whose machines are billed their provider's minimum."""
CEILING_STEP = 1e-6
"""Relative; a ceiling is lowered by this much more than the missing amount."""
NEAREST_SLACK = 1e-9
"""Relative; the nearest goal is stated with this margin on the feasible side."""


def prepare(
    catalog: Catalog,
    source: Region,
    destination: Region,
    volume_gb: float,
    limits: PlanningLimits | None = None,
    *,
    network: FlowNetwork | None = None,
    boot_s: float | None = None,
    settings: SolverSettings | None = None,
    objects: int | None = None,
) -> Transfer:
    """Prepare a transfer for planning.

    Args:
        catalog: regions, prices and links.
        source: region of the source.
        destination: region of the destination.
        volume_gb: volume in GB.
        limits: the user's and the account's limits.
        network: a network of the same catalog and limits, to avoid building it again.
        boot_s: seconds until machines answer, instead of the catalog's.
        settings: of the solver.
        objects: number of objects, for the cost of requests; ``None``: objects of 16 MiB.

    Raises:
        UsageError: unknown region, or nothing to plan.
    """
    limits = limits or PlanningLimits()
    network = network or build_network(catalog, limits)
    refuse_ends(catalog, network, source, destination, volume_gb, limits)
    formulation = build_formulation(network, network.index[source], network.index[destination])
    demand = demand_of(catalog, network, source, [destination], volume_gb, limits, boot_s, objects)
    return Transfer(catalog, limits, network, formulation, demand, settings or SolverSettings())


def refuse_ends(
    catalog: Catalog,
    network: FlowNetwork,
    source: Region,
    destination: Region,
    volume_gb: float,
    limits: PlanningLimits,
) -> None:
    """Raise UsageError for an empty volume, an unknown region, or equal ends; InfeasibleGoal for ends without links."""
    if not volume_gb > 0:
        raise UsageError(f"a volume must be more than zero, not {volume_gb:g} GB")
    for region in (source, destination):
        if region not in network.index:
            if (error := _unconnected(catalog, source, destination)) is not None:
                raise error
            _refuse_region(catalog, region, limits)
    if source == destination:
        raise UsageError(
            f"source and destination are both {source}",
            hint="within a region there is nothing to plan; use `tradewind cp`",
        )


def demand_of(
    catalog: Catalog,
    network: FlowNetwork,
    source: Region,
    destinations: Sequence[Region],
    volume_gb: float,
    limits: PlanningLimits,
    boot_s: float | None,
    objects: int | None,
) -> Demand:
    """Return the demand of a transfer: volume, boot time, requests and the highest rate."""
    volume_bytes = volume_gb * BYTES_PER_GB
    moved = ObjectSet.of_chunk_size(volume_bytes) if objects is None else ObjectSet(objects, volume_bytes)
    requests_usd = _requests_usd(catalog, source, destinations, moved)
    longest_s = network.boot_s if boot_s is None else boot_s
    rate_max_gbps = RATE_UNBOUNDED_GBPS if limits.rate_max_gbps is None else max(GBPS_MIN, limits.rate_max_gbps)
    return Demand(volume_gb, longest_s, requests_usd, moved, rate_max_gbps, boot_given=boot_s is not None)


def _refuse_region(catalog: Catalog, region: Region, limits: PlanningLimits) -> None:
    """Raise UsageError for a region that no network has, and name the cause: user, account or catalog."""
    known = f"`tradewind catalog show {region}` shows what is known about it"
    if catalog.quotas.get(region) == 0:
        raise UsageError(f"the account's quota at {region} is 0 machines", hint=known)
    names = sorted({offer.machine.name for offer in catalog.machine_offers(region)})
    if limits.machine_types is not None and names and not set(names) & set(limits.machine_types):
        there = ", ".join(names)
        raise UsageError(f"none of the requested machine types is available in {region}", hint=f"there are {there}")
    if region in catalog.places or region in catalog.grid.regions():
        missing = "link or price" if names else "machine type"
        raise UsageError(f"{region} cannot be planned for: the catalog has no {missing} there", hint=known)
    near = catalog.nearest_names(region)
    hint = f"did you mean {' or '.join(near)}?" if near else "`tradewind catalog show` lists all regions"
    raise UsageError(f"unknown region {region}", hint=hint)


def _requests_usd(catalog: Catalog, source: Region, destinations: Sequence[Region], objects: ObjectSet) -> float:
    """Return the cost of requests: one read per object, and one write per destination."""
    read = catalog.stores.get(source.provider)
    usd = request_usd(objects.at_source(), read.request_prices) if read else 0.0
    for destination in destinations:
        write = catalog.stores.get(destination.provider)
        usd += request_usd(objects.at_destination(), write.request_prices) if write else 0.0
    return usd


def plan_transfer(
    catalog: Catalog,
    source: Region,
    destination: Region,
    volume_gb: float,
    goal: Goal,
    limits: PlanningLimits | None = None,
) -> UnicastOverlay:
    """Plan one transfer.

    Raises:
        UsageError: unknown region, or nothing to plan.
        InfeasibleGoal: no plan meets the goal.
    """
    return solve_overlay(prepare(catalog, source, destination, volume_gb, limits), goal)


def trace_transfer(
    transfer: Transfer, *, solves_max: int = SOLVES_MAX, known: Sequence[UnicastOverlay | MulticastOverlay] = ()
) -> Frontier:
    """Return the complete frontier between cost and rate. No plan in ``known`` beats it, even where it is unproven.

    Raises:
        InfeasibleGoal: the destination cannot be reached.
    """
    if known and not transfer.demand.boot_given:
        transfer = with_boot_within(transfer, max(plan.boot_s for plan in known))
    machines = [_machines_of(plan, transfer.network) for plan in known]
    formulations = tier_formulations(transfer, known)
    if formulations is None:
        raise _unreachable(transfer)
    frontier = trace_frontier(formulations, transfer.demand, transfer.settings, solves_max=solves_max, known=machines)
    if frontier is None:
        raise _unreachable(transfer)
    return frontier


def _machines_of(plan: UnicastOverlay | MulticastOverlay, network: FlowNetwork) -> IntArray:
    """Return the plan's machines per machine option of the network."""
    count = {(machines.region, machines.offer, machines.network_tier): machines.count for machines in plan.machines}
    keys = ((network.regions[option.pool], option.offer, option.network_tier) for option in network.options)
    return np.array([count.get(key, 0) for key in keys], dtype=np.int64)


def solve_overlay(transfer: Transfer, goal: Goal) -> UnicastOverlay:
    """Return the plan for one goal, checked.

    Raises:
        InfeasibleGoal: no plan meets the goal.
        InvalidPlan: the check refused the plan.
    """
    if transfer.limits.routes_max is None:
        return _solve_any(transfer, goal)
    return solve_within_routes(transfer, goal, transfer.limits.routes_max, _solve_any)


def _solve_any(transfer: Transfer, goal: Goal) -> UnicastOverlay:
    """Return the checked plan for one goal, with any number of routes."""
    return solve_checked(transfer, goal, build_checked)


AnyPlan = TypeVar("AnyPlan", UnicastOverlay, MulticastOverlay)


def solve_checked(transfer: Transfer, goal: Goal, write: Callable[[Transfer, Goal, Point], AnyPlan]) -> AnyPlan:
    """Answer a goal with a plan that ``write`` makes and checks. Raises InfeasibleGoal, InvalidPlan.

    The search does not know the minimum charge of a machine, so it may underestimate a plan's cost, but never
    overestimates it. If a plan exceeds the ceiling, the ceiling is lowered by the excess and the goal is solved again.
    """
    asked, rate_max_gbps = goal, math.inf
    for _ in range(CEILINGS_MAX):
        found = solve_over_network_tiers(transfer, asked)
        if found is None:
            break
        started, point = found
        point = drop_small_flows(started.formulation, started.demand, asked, point, started.settings)
        if not isinstance(asked, MaxCost) or not isinstance(goal, MaxCost):
            return _with_minimum(write(started, goal, point))
        if asked == goal:  # A bound under a lowered ceiling is no bound for the goal.
            rate_max_gbps = point.rate_gbps * (1 + point.gap)
        plan = write(started, Cheapest(), point)
        lacking_usd = plan.cost.total_usd - goal.usd * (1 + NEAREST_SLACK)
        if lacking_usd <= 0 or plan.minimum_usd == 0:
            plan = write(started, goal, point)
            gap = max(plan.gap, rate_max_gbps / plan.throughput_gbps - 1.0) if asked != goal else plan.gap
            return replace(plan, gap=gap, optimal=plan.optimal and gap <= PROVEN_GAP)
        asked = MaxCost(asked.usd - lacking_usd * (1 + CEILING_STEP))
        if asked.usd <= 0:
            break
    error = infeasible(transfer, goal, write)
    if isinstance(goal, MaxCost) and error.nearest is not None and error.nearest.cost.total_usd <= goal.usd:
        nearest = cast(AnyPlan, error.nearest)
        gap = rate_max_gbps / nearest.throughput_gbps - 1.0
        return replace(nearest, goal=goal, gap=gap, optimal=gap <= PROVEN_GAP)
    raise error


def _with_minimum(plan: AnyPlan) -> AnyPlan:
    """Return the plan with the gap by its true cost, if the goal is about cost."""
    if plan.minimum_usd == 0 or isinstance(plan.goal, (Fastest, Soonest)):
        return plan
    lower_bound_usd = (plan.cost.total_usd - plan.minimum_usd) * (1 - plan.gap)
    gap = 1 - lower_bound_usd / plan.cost.total_usd
    return replace(plan, gap=gap, optimal=plan.optimal and gap <= PROVEN_GAP)


def build_checked(transfer: Transfer, goal: Goal, point: Point) -> UnicastOverlay:
    """Write a point as a plan and check it."""
    binding = binding_limits(transfer.formulation, transfer.demand, point, goal)
    plan = build_overlay(transfer.formulation, transfer.demand, goal, point, binding=binding)
    wrong = violations(plan, transfer.catalog, transfer.limits, boot_s=transfer.boot_given_s)
    if wrong:
        raise InvalidPlan(f"the plan failed its check: {wrong[0]}", hint="report this with the problem file")
    return plan


def infeasible(
    transfer: Transfer, goal: Goal, write: Callable[[Transfer, Goal, Point], UnicastOverlay | MulticastOverlay]
) -> InfeasibleGoal:
    """Name the limit, and find the nearest goal that works; ``write`` makes a plan of a point."""
    if isinstance(goal, MaxCost):
        found = solve_over_network_tiers(transfer, Cheapest())
        if found is None:
            return _unreachable(transfer)
        transfer, best = found
        nearest = write(transfer, Cheapest(), best)
        nearest = replace(nearest, goal=MaxCost(nearest.cost.total_usd * (1 + NEAREST_SLACK)))
        return InfeasibleGoal(
            f"{format_usd(goal.usd)} is not enough: the cheapest plan costs {format_usd(nearest.cost.total_usd)} "
            f"({format_usd(nearest.cost.egress_usd)} of it for egress)",
            hint=f"raise the ceiling to {nearest.cost.total_usd + 0.005:.2f}USD",
            nearest=nearest,
        )
    found = _earliest(transfer) if isinstance(goal, Deadline) else solve_over_network_tiers(transfer, Fastest())
    if found is None:
        return _unreachable(transfer)
    transfer, best = found
    nearest = write(transfer, MinThroughput(best.rate_gbps * (1 - 1e-9)), best)
    limits = binding_limits(transfer.formulation, transfer.demand, best, Fastest())
    limit = limits[0] if limits else "the links"
    by_user = best.rate_gbps >= transfer.demand.rate_max_gbps * TIGHT
    more = "a higher --limit-rate" if by_user else f"more machines ({transfer.limits.machines_setting})"
    if isinstance(goal, Deadline):
        nearest = replace(nearest, goal=Deadline(nearest.time_s * (1 + NEAREST_SLACK)))
        boot = (
            f", including {format_duration(transfer.demand.boot_s)} for machines to start"
            if transfer.demand.boot_s
            else ""
        )
        return InfeasibleGoal(
            f"{format_duration(goal.seconds)} is too short: the earliest finish is "
            f"{format_duration(nearest.time_s)}{boot}; limited by {limit}",
            hint=f"allow {math.ceil(nearest.time_s * (1 - ROUNDING))}s, or {more}",
            nearest=nearest,
        )
    wanted = goal.gbps if isinstance(goal, MinThroughput) else best.rate_gbps
    return InfeasibleGoal(
        f"{format_gbps(wanted, ASKED_DIGITS)} is out of reach: "
        f"the fastest plan moves {format_gbps(nearest.throughput_gbps)}; limited by {limit}",
        hint=f"ask for at most {_rounded_down(nearest.throughput_gbps)}Gbit/s, or allow {more}",
        nearest=nearest,
    )


def _earliest(transfer: Transfer) -> tuple[Transfer, Point] | None:
    """Return the point that finishes first over all boot times, including the start of its machines."""
    solved = [(part, solve_goal(part, Fastest())) for part in by_boot_time(transfer)]
    found = [(part, point) for part, point in solved if point is not None]
    return min(found, key=lambda of: of[0].demand.boot_s + of[0].demand.gbit / of[1].rate_gbps, default=None)


def _rounded_down(gbps: float) -> str:
    """Return four digits, rounded down, so that a request for this rate can be met."""
    digits = 3 - math.floor(math.log10(gbps))
    return f"{math.floor(gbps * (1 + ROUNDING) * 10**digits) / 10**digits:.10g}"


def _unconnected(catalog: Catalog, source: Region, destination: Region) -> InfeasibleGoal | None:
    """Return the error for ends that cannot connect and that no relay joins; None if there may be another reason."""
    why = catalog.unconnected.get((source, destination))
    if why is None:
        return None
    return InfeasibleGoal(
        f"gateways in {source} and {destination} cannot connect, and no region joins them: {why}",
        hint="let gateways of one of them accept connections, join their networks, or add a region between them",
        nearest=None,
    )


def _unreachable(transfer: Transfer) -> InfeasibleGoal:
    source = transfer.network.regions[transfer.formulation.source]
    sinks = [transfer.network.regions[v] for v in transfer.formulation.sinks]
    for sink in sinks:
        if (error := _unconnected(transfer.catalog, source, sink)) is not None:
            return error
    return InfeasibleGoal(
        f"no links are known from {source} to {' and '.join(map(str, sinks))}",
        hint=f"import or measure a link: `tradewind catalog show {source} {sinks[0]}` says what is known",
        nearest=None,
    )
