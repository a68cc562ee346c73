"""Provision a planned transfer: its gateways, their memory, the chunk size, and the rate limit."""

from __future__ import annotations

from collections import Counter

from tradewind.errors import InfeasibleGoal
from tradewind.model.catalog import Catalog
from tradewind.model.goal import Fastest, Goal, MaxCost, MinThroughput
from tradewind.model.job import DEFAULT_CHUNK_BYTES
from tradewind.model.overlay import UnicastOverlay
from tradewind.model.plan import Plan
from tradewind.model.program import GatewayLimits
from tradewind.model.records import replace
from tradewind.model.region import Region
from tradewind.planner.baseline import direct, gridftp
from tradewind.planner.gateways import assign_gateways
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import Transfer, prepare, solve_overlay

__all__ = [
    "CHUNKS_PER_CONNECTION",
    "GATEWAY_BYTES_MAX",
    "PACE",
    "RETRY_RESERVE",
    "chunk_bytes_for",
    "pace_bytes_per_s",
    "plan_beside_direct",
    "plan_gateways",
    "usual_goal",
    "with_memory_for",
]

#: Part of a cost ceiling that is reserved for bytes that must be sent twice and machines that run longer, so that a
#: transfer planned for a ceiling is not stopped by it.
RETRY_RESERVE = 0.02
#: Maximum rate, as a multiple of the planned rate, of a plan whose routes have different prices. Without a limit its
#: routes would carry all they can, whatever their shares, at another cost than predicted.
PACE = 1.05
#: Machines that start within this time [s] do not change the choice of the fastest plan.
LONG_BOOT_S = 10.0
#: Part of the machines' start by which a plan may end later than the fastest one, if it is cheaper.
BOOT_PART = 0.1
#: If machines are a smaller part of the cost, no cheaper plan is looked for: egress decides.
MACHINES_PART = 0.1
#: Relative; times that differ by less are equal.
SAME = 1e-6
#: Chunks that a source holds per connection until their last byte is sent: one in flight, one being read.
CHUNKS_PER_CONNECTION = 2
#: Maximum memory for chunks of a gateway, whatever the connections and chunk size of its plan.
GATEWAY_BYTES_MAX = 1 << 30


def plan_gateways(
    catalog: Catalog,
    source: Region,
    destination: Region,
    volume_gb: float,
    goal: Goal,
    limits: PlanningLimits,
    *,
    objects: int | None = None,
) -> Plan:
    """Plan a transfer, and split the plan into gateways. The lead is in the source's region, beside its first gateway.

    ``objects`` determines the cost of requests; ``None`` assumes objects of 16 MiB.

    Raises UsageError, InfeasibleGoal.
    """
    if isinstance(goal, MaxCost):
        goal = MaxCost(goal.usd * (1 - RETRY_RESERVE))
    transfer = prepare(catalog, source, destination, volume_gb, limits, objects=objects)
    overlay = solve_overlay(transfer, goal)
    if isinstance(goal, (Fastest, MaxCost)) and overlay.boot_s >= LONG_BOOT_S:
        overlay = _thrifty(transfer, overlay)
    return assign_gateways(overlay, lead_region=str(source))


def usual_goal(
    catalog: Catalog,
    source: Region,
    destination: Region,
    volume_gb: float,
    limits: PlanningLimits,
    *,
    objects: int | None = None,
) -> Goal:
    """Return the goal for `plan_gateways` of a transfer for which the user set none: the fastest for the cost of the
    direct path. Arguments and errors are those of `plan_gateways`.
    """
    from tradewind.engine.planning import goal_of_direct

    goal = goal_of_direct(prepare(catalog, source, destination, volume_gb, limits, objects=objects))
    # `plan_gateways` keeps a reserve below a ceiling, and this is no ceiling that a user set.
    return MaxCost(goal.usd / (1 - RETRY_RESERVE)) if isinstance(goal, MaxCost) else goal


def _thrifty(transfer: Transfer, fastest: UnicastOverlay) -> UnicastOverlay:
    """Return the cheapest plan that ends at most BOOT_PART of the machines' start later than the fastest one.

    A ceiling is no wish to spend it: twenty machines do not move 40 MB any sooner than three, if all take a minute to
    start.
    """
    later_s = fastest.transfer_s + BOOT_PART * fastest.boot_s
    alone = gridftp(transfer)
    if alone is not None and _is_better(alone, fastest, later_s):
        return replace(alone, goal=fastest.goal)  # No other plan has fewer machines, and the search takes seconds.
    if fastest.cost.machines_usd < MACHINES_PART * fastest.cost.total_usd:
        return fastest
    try:
        cheaper = solve_overlay(transfer, MinThroughput(transfer.demand.gbit / later_s))
    except InfeasibleGoal:
        return fastest
    return replace(cheaper, goal=fastest.goal) if _is_better(cheaper, fastest, later_s) else fastest


def _is_better(plan: UnicastOverlay, fastest: UnicastOverlay, transfer_s_max: float) -> bool:
    """Return whether a plan is cheaper than the fastest one and takes at most `transfer_s_max` after its start."""
    in_time = plan.boot_s + plan.transfer_s <= fastest.boot_s + transfer_s_max * (1 + SAME)
    return in_time and plan.cost.total_usd < fastest.cost.total_usd


def plan_beside_direct(
    catalog: Catalog,
    source: Region,
    destination: Region,
    volume_gb: float,
    *,
    cost_factor: float,
    machines_per_region: int,
) -> tuple[Plan, Plan]:
    """Plan the direct path, and the fastest overlay for `cost_factor` times its cost.

    Raises UsageError, and InfeasibleGoal where the regions have no direct link.
    """
    transfer = prepare(catalog, source, destination, volume_gb, PlanningLimits(machines_per_region))
    straight = direct(transfer)
    if straight is None:
        raise InfeasibleGoal(f"no link is known from {source} to {destination}", hint=None, nearest=None)
    overlay = solve_overlay(transfer, MaxCost(straight.cost.total_usd * cost_factor))
    return assign_gateways(straight, lead_region=str(source)), assign_gateways(overlay, lead_region=str(source))


def pace_bytes_per_s(plan: Plan) -> int | None:
    """Return the rate at which the routes keep their shares; None if shares do not affect the cost."""
    if plan.prediction is None or len({route.usd_per_gb for route in plan.routes}) == 1:
        return None
    return round(plan.prediction.throughput_gbps * PACE * 1e9 / 8)


def chunk_bytes_for(plan: Plan, scale: float, least_bytes: int) -> int:
    """Return the chunk size on a sky of this scale: scaled like rates, so that a chunk takes as long as in reality.

    It is small enough that no connection of the busiest gateway waits for memory, but at least `least_bytes`, the
    minimum part size of the destination's store.
    """
    busiest = max(_connections(plan).values(), default=1)
    room_bytes = GatewayLimits().memory_bytes // (CHUNKS_PER_CONNECTION * busiest)
    return max(least_bytes, min(DEFAULT_CHUNK_BYTES, round(DEFAULT_CHUNK_BYTES * scale), room_bytes))


def with_memory_for(plan: Plan, chunk_bytes: int) -> Plan:
    """Return the plan with memory for chunks of this size on all connections, at most GATEWAY_BYTES_MAX per gateway."""
    connections = _connections(plan)
    gateways = []
    for gateway in plan.gateways:
        wanted_bytes = min(GATEWAY_BYTES_MAX, CHUNKS_PER_CONNECTION * connections[gateway.name] * chunk_bytes)
        memory_bytes = max(gateway.limits.memory_bytes, wanted_bytes)
        gateways.append(replace(gateway, limits=replace(gateway.limits, memory_bytes=memory_bytes)))
    return replace(plan, gateways=tuple(gateways))


def _connections(plan: Plan) -> Counter[str]:
    """Return the number of connections per gateway: outgoing or incoming, whichever is larger."""
    dialled: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    for hop in plan.hops:
        dialled[hop.start] += hop.connections
        accepted[hop.end] += hop.connections
    return dialled | accepted
