"""Baselines of the Skyplane paper (direct, RON, GridFTP), and plans side by side as in its Table 2.

Baselines choose nothing: regions with a choice of network tiers send in the premium tier. They, too, are no faster than
the user's rate limit.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from tradewind.errors import InfeasibleGoal
from tradewind.model.goal import Cheapest, Fastest, Goal, MaxCost, MinThroughput
from tradewind.model.overlay import UnicastOverlay
from tradewind.model.records import dataclass
from tradewind.model.units import format_gbps, format_usd
from tradewind.planner.formulation import Formulation, build_formulation
from tradewind.planner.network import IntArray
from tradewind.planner.plan import Transfer, solve_overlay
from tradewind.planner.points import Point
from tradewind.planner.routes import build_overlay
from tradewind.planner.solver import Solution

__all__ = ["Alternative", "compare", "direct", "gridftp", "ron", "ron_relay"]


def direct(transfer: Transfer, *, machines_max: int | None = None) -> UnicastOverlay | None:
    """Plan the direct link with all allowed machines; return ``None`` if the link does not exist."""
    formulation = transfer.formulation
    return _along(transfer, (formulation.source, formulation.sink), machines_max)


def gridftp(transfer: Transfer) -> UnicastOverlay | None:
    """Plan the direct link with one machine at each end."""
    return direct(transfer, machines_max=1)


def ron(transfer: Transfer) -> UnicastOverlay | None:
    """Plan the path that RON would take: at most one relay, chosen for the fastest bottleneck link."""
    formulation = transfer.formulation
    relay = ron_relay(formulation)
    middle = () if relay is None else (relay,)
    return _along(transfer, (formulation.source, *middle, formulation.sink), None)


def ron_relay(formulation: Formulation) -> int | None:
    """Return the relay whose slower link is fastest; ``None`` if the direct link is faster still."""
    network = formulation.network
    links = [e for e in formulation.links if max(network.tail[e], network.head[e]) < network.region_count]
    from_source = {
        int(network.head[e]): float(network.link_gbps[e]) for e in links if network.tail[e] == formulation.source
    }
    to_sink = {int(network.tail[e]): float(network.link_gbps[e]) for e in links if network.head[e] == formulation.sink}
    relays = {v: min(gbps, to_sink[v]) for v, gbps in from_source.items() if v in to_sink}
    best = max(relays, key=lambda v: relays[v], default=None)
    straight = from_source.get(formulation.sink, 0.0)
    return best if best is not None and relays[best] > straight else None


def _along(transfer: Transfer, path: tuple[int, ...], machines_max: int | None) -> UnicastOverlay | None:
    """Plan the fastest use of one path, with as few as possible of the fastest machines (the cheapest of these)."""
    network = transfer.network
    edges = [network.link_between(u, v) for u, v in itertools.pairwise(path)]
    links = np.array([e for e in edges if e is not None], dtype=np.int64)
    if len(links) < len(edges):
        return None
    options = [_option_along(transfer, path, links, at) for at in range(len(path))]
    limits = [min(int(network.machines_max[v]), machines_max or int(network.machines_max[v])) for v in path]
    rates = [_rate_per_machine(transfer, path, links, at, option) for at, option in enumerate(options)]
    able = min(rate * limit for rate, limit in zip(rates, limits, strict=True))
    rate = min(able, transfer.demand.rate_max_gbps)
    machines = np.zeros(len(network.options), dtype=np.int64)
    for option, per_machine in zip(options, rates, strict=True):
        machines[option] = max(1, math.ceil(rate / per_machine - 1e-9))
    formulation = build_formulation(network, path[0], path[-1], links=links)
    flow = np.full(len(links), rate)
    solution = Solution(flow, machines, rate, rate, optimal=True)
    return build_overlay(formulation, transfer.demand, Fastest(), Point.of(formulation, transfer.demand, solution))


def _option_along(transfer: Transfer, path: tuple[int, ...], links: IntArray, at: int) -> int:
    return min(
        (k for k, option in enumerate(transfer.network.options) if option.pool == path[at]),
        key=lambda k: (-_rate_per_machine(transfer, path, links, at, k), transfer.network.options[k].usd_per_s),
    )


def _rate_per_machine(transfer: Transfer, path: tuple[int, ...], links: IntArray, at: int, option: int) -> float:
    """Return the rate of one machine in one region of the path."""
    network, machine = transfer.network, transfer.network.options[option]
    into = min(float(network.link_gbps[links[at - 1]]), machine.ingress_gbps) if at > 0 else machine.read_gbps
    if at == len(path) - 1:
        return min(into, machine.write_gbps)
    return min(into, float(network.link_gbps[links[at]]), machine.egress_gbps)


@dataclass(frozen=True)
class Alternative:
    """One line of the comparison."""

    name: str
    """Baselines: `gridftp (direct, 1 machine)`, `direct`, `ron`. Rows of the paper, compared with direct:
    `cost optimised`, `throughput optimised`. Others: `this plan`, `cheapest at any rate`, `fastest at any cost`."""
    plan: UnicastOverlay
    remark: str = ""
    """The goal of this line, if its name does not state it."""


def compare(transfer: Transfer, chosen: UnicastOverlay) -> list[Alternative]:
    """Return the baselines, the chosen plan, two plans that improve on direct, and the cheapest and fastest plans."""
    straight = direct(transfer)
    baselines = [("gridftp (direct, 1 machine)", gridftp(transfer)), ("direct", straight), ("ron", ron(transfer))]
    lines = [Alternative(name, plan) for name, plan in baselines if plan is not None]
    lines.append(Alternative("this plan", chosen, str(chosen.goal)))
    wanted: list[tuple[str, Goal, str]] = []
    if straight is not None:
        rate_gbps, usd = straight.throughput_gbps, straight.cost.total_usd
        at_its_rate = f"cheapest at direct's rate, {format_gbps(rate_gbps)} or more"
        for_its_cost = f"fastest for direct's cost, {format_usd(usd)} or less"
        wanted = [
            ("cost optimised", MinThroughput(rate_gbps), at_its_rate),
            ("throughput optimised", MaxCost(usd), for_its_cost),
        ]
    ends: list[Goal] = [Cheapest(), Fastest()]
    wanted += [(str(goal), goal, "") for goal in ends if goal != chosen.goal]
    for name, goal, remark in wanted:
        try:
            lines.append(Alternative(name, solve_overlay(transfer, goal), remark))
        except InfeasibleGoal:
            continue
    return lines
