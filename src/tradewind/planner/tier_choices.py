"""The models of a frontier whose costs have volume tiers: one per choice of a tier for each billing count."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from tradewind.model.goal import Cheapest, Fastest
from tradewind.model.overlay import Overlay
from tradewind.model.records import dataclass
from tradewind.planner.best import solve_over_boot_times
from tradewind.planner.frontier import FrontierFormulations
from tradewind.planner.goals import fastest
from tradewind.planner.pricing import keep_inside, priced, priced_at, volumes_gb
from tradewind.planner.tiers import Line, Span, TierCount
from tradewind.planner.transfer import Transfer

__all__ = ["tier_formulations"]

CHOICES_MAX = 8
"""Maximum models of one frontier. Beyond it, tiers of the counts with the least traffic are only bounded and may stay
unproven."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """Lines of one count: its charge, a lower bound of it, and the span in which they apply if a price rises."""

    price: Line
    bound: Line
    span: Span | None = None


def tier_formulations(transfer: Transfer, known: Iterable[Overlay] = ()) -> FrontierFormulations | None:
    """Return the models to trace; ``None`` if the destinations cannot be reached."""
    counts, demand = transfer.network.counts, transfer.demand
    if not counts:
        return FrontierFormulations((transfer.formulation,), (transfer.formulation,))
    copies = len(transfer.formulation.sinks)
    guess = priced(transfer.formulation, demand, [count.under((0.0, demand.volume_gb * copies)) for count in counts])
    top = fastest(guess, demand, transfer.settings)
    if top is None:
        return None
    volumes = volumes_gb(transfer.formulation, demand, top.solution.flow_gbps)
    wrong = math.fsum(
        count.usd(x) - count.under((0.0, demand.volume_gb * copies)).at(x)
        for count, x in zip(counts, volumes, strict=True)
    )
    # This plan is the fastest, so no plan of the frontier costs more.
    most_gb = [
        min(demand.volume_gb * copies * count.sources, count.volume_gb(top.cost_usd + max(0.0, wrong)))
        for count in counts
    ]
    seen = [volumes, *(_volumes_of(transfer, plan) for plan in known)]
    if any(step < most for count, most in zip(counts, most_gb, strict=True) for step in count.steps_gb):
        ends = [solve_over_boot_times(transfer, goal) for goal in (Cheapest(), Fastest())]
        seen += [volumes_gb(of.formulation, of.demand, point.solution.flow_gbps) for of, point in filter(None, ends)]
    most_seen = [max(of) for of in zip(*seen, strict=True)]
    chosen, complete = _choices(counts, most_gb, most_seen, rows=copies == 1)
    prices, bounds = [], []
    for choice in itertools.product(*chosen):
        spans = [of.span for of in choice]
        prices.append(keep_inside(priced(transfer.formulation, demand, [of.price for of in choice]), demand, spans))
        bounds.append(keep_inside(priced(transfer.formulation, demand, [of.bound for of in choice]), demand, spans))
    if not complete:
        prices += [priced_at(transfer.formulation, demand, of) for of in dict.fromkeys(seen)]
    return FrontierFormulations(tuple(prices), tuple(bounds))


def _volumes_of(transfer: Transfer, plan: Overlay) -> tuple[float, ...]:
    """Return the volume of a plan per count [GB]."""
    network = transfer.network
    flows = {(edge.src, edge.dst, plan.network_tier_of(edge)): edge.gbps for edge in plan.edges}
    volumes = []
    for count in network.counts:
        # Edges do not say which machines of a region receive.
        sent = ((network.tail[e], network.head[e]) for e in count.links if network.head[e] < network.region_count)
        ends = ((network.regions[u], network.regions[v], network.tiers[u]) for u, v in sent)
        carried_gbps = math.fsum(flows.get(pair, 0.0) for pair in ends)
        volumes.append(plan.volume_gb * carried_gbps / plan.throughput_gbps)
    return tuple(volumes)


def _choices(
    counts: Sequence[TierCount], most_gb: Sequence[float], seen: Sequence[float], *, rows: bool
) -> tuple[list[list[_Choice]], bool]:
    """Return the choices per count: each reachable tier of the busiest counts; and whether all are included."""
    chosen: list[list[_Choice]] = [[] for _ in counts]
    total, complete = 1, True
    for place in sorted(range(len(counts)), key=lambda place: -seen[place]):
        count, most = counts[place], most_gb[place]
        ends = [0.0, *(step for step in count.steps_gb if step < most), most]
        spans = list(itertools.pairwise(ends))
        exact = count.falls or rows
        if exact and total * len(spans) <= CHOICES_MAX:
            total *= len(spans)
            lines = [count.under(span) for span in spans]
            kept = [None if count.falls or len(spans) == 1 else span for span in spans]
            chosen[place] = [_Choice(line, line, span) for line, span in zip(lines, kept, strict=True)]
        else:
            complete = False
            price = count.under(spans[0]) if count.falls else count.over(most)
            chosen[place] = [_Choice(price, count.under((0.0, most)))]
    return chosen, complete
