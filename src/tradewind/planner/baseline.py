"""What others would do with the same network: direct, RON, and GridFTP. In closed form, without the solver.

- ``direct``: the link from source to destination, with as many machines as are allowed;
- ``ron``: the best single relay by the lesser of its two hops' rates, price ignored (Resilient Overlay Networks,
  SOSP'01, as §7.6 of the Skyplane paper implements it), all machines allowed;
- ``gridftp``: direct, one machine at each end.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from tradewind.model.goal import Fastest
from tradewind.model.overlay import OverlayPlan
from tradewind.planner.formulation import Formulation, build_formulation
from tradewind.planner.goals import Point
from tradewind.planner.network import IntArray
from tradewind.planner.plan import Transfer
from tradewind.planner.routes import overlay_plan
from tradewind.planner.solver import Answer

__all__ = ["direct", "gridftp", "ron", "ron_relay"]


def direct(transfer: Transfer, *, machines_max: int | None = None) -> OverlayPlan | None:
    """The direct link with all machines allowed; ``None`` where there is no such link."""
    formulation = transfer.formulation
    return _along(transfer, (formulation.source, formulation.sink), machines_max)


def gridftp(transfer: Transfer) -> OverlayPlan | None:
    """The direct link with one machine at each end."""
    return direct(transfer, machines_max=1)


def ron(transfer: Transfer) -> OverlayPlan | None:
    """The path that RON would take: one relay or none, whichever has the fastest tightest link."""
    formulation = transfer.formulation
    relay = ron_relay(formulation)
    middle = () if relay is None else (relay,)
    return _along(transfer, (formulation.source, *middle, formulation.sink), None)


def ron_relay(formulation: Formulation) -> int | None:
    """The region over which the lesser of the two links is fastest; ``None`` if the direct link is faster still."""
    network, links = formulation.network, formulation.links
    from_source = {
        int(network.head[e]): float(network.link_gbps[e]) for e in links if network.tail[e] == formulation.source
    }
    to_sink = {int(network.tail[e]): float(network.link_gbps[e]) for e in links if network.head[e] == formulation.sink}
    relays = {v: min(gbps, to_sink[v]) for v, gbps in from_source.items() if v in to_sink}
    best = max(relays, key=lambda v: relays[v], default=None)
    straight = from_source.get(formulation.sink, 0.0)
    return best if best is not None and relays[best] > straight else None


def _along(transfer: Transfer, path: tuple[int, ...], machines_max: int | None) -> OverlayPlan | None:
    """The fastest use of one path, with as few as needed of the fastest machines (the cheapest of these)."""
    network = transfer.network
    edges = [network.link_between(u, v) for u, v in itertools.pairwise(path)]
    links = np.array([e for e in edges if e is not None], dtype=np.int64)
    if len(links) < len(edges):
        return None
    options = [_option_along(transfer, path, links, at) for at in range(len(path))]
    limits = [min(int(network.machines_max[v]), machines_max or int(network.machines_max[v])) for v in path]
    rates = [_rate_per_machine(transfer, path, links, at, option) for at, option in enumerate(options)]
    rate = min(rate * limit for rate, limit in zip(rates, limits, strict=True))
    machines = np.zeros(len(network.options), dtype=np.int64)
    for option, per_machine in zip(options, rates, strict=True):
        machines[option] = max(1, math.ceil(rate / per_machine - 1e-9))
    formulation = build_formulation(network, path[0], path[-1], links=links)
    flow = np.full(len(links), rate)
    answer = Answer(flow, machines, rate, rate, optimal=True)
    return overlay_plan(formulation, transfer.job, Fastest(), Point.of(formulation, transfer.job, answer))


def _option_along(transfer: Transfer, path: tuple[int, ...], links: IntArray, at: int) -> int:
    options = [k for k, o in enumerate(transfer.network.options) if o.region_index == path[at]]
    return min(
        options,
        key=lambda k: (-_rate_per_machine(transfer, path, links, at, k), transfer.network.options[k].usd_per_s),
    )


def _rate_per_machine(transfer: Transfer, path: tuple[int, ...], links: IntArray, at: int, option: int) -> float:
    """Return the rate of one machine at a station of the path."""
    network, machine = transfer.network, transfer.network.options[option]
    into = min(float(network.link_gbps[links[at - 1]]), machine.ingress_gbps) if at > 0 else machine.read_gbps
    if at == len(path) - 1:
        return min(into, machine.write_gbps)
    return min(into, float(network.link_gbps[links[at]]), machine.egress_gbps)
