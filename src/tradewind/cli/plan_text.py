"""Plans for the terminal: a few lines, a diagram of the routes, and tables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tradewind.model.amounts import format_gbps, format_usd, format_volume
from tradewind.model.overlay import OverlayPlan
from tradewind.model.units import format_duration

if TYPE_CHECKING:
    from tradewind.planner.compare import Alternative
    from tradewind.planner.frontier import Frontier
    from tradewind.planner.whatif import Offer

#: A bar of this many characters stands for all bytes.
BAR_CHARACTERS = 20


def plan_lines(plan: OverlayPlan) -> list[str]:
    """Headline, routes and machines."""
    boot = f", {format_duration(plan.boot_s)} of it for machines to start" if plan.boot_s else ""
    proof = "proven optimal" if plan.optimal and plan.gap < 1e-6 else f"within {plan.gap:.2%} of the best"
    lines = [
        f"{plan.source} → {plan.destination}, {format_volume(plan.volume_gb)}: {plan.goal}",
        "",
        f"  rate      {format_gbps(plan.throughput_gbps)}",
        f"  time      {format_duration(plan.time_s)}{boot}",
        f"  cost      {format_usd(plan.cost.total_usd)}: egress {format_usd(plan.cost.egress_usd)}, "
        f"machines {format_usd(plan.cost.machines_usd)}"
        + (f", requests {format_usd(plan.cost.requests_usd)}" if plan.cost.requests_usd else ""),
        f"  plan      {proof}, in {plan.solve_s:.2f} s",
        "",
        "  routes",
    ]
    for route in plan.routes:
        bar = "█" * max(1, round(BAR_CHARACTERS * route.share))
        lines.append(f"    {route.share:6.1%} {bar:<{BAR_CHARACTERS}} {_way(plan, route.regions)}")
    lines += ["", "  machines"]
    lines += [
        f"    {m.count:>3} × {m.offer.name:<22} {m.region!s:<28} {format_usd(m.offer.usd_per_hour)}/h each"
        for m in plan.machines
    ]
    if plan.binding:
        lines += ["", f"  limited by {plan.binding[0]}"]
    return lines


def _way(plan: OverlayPlan, regions: Sequence[object]) -> str:
    connections = {(e.src, e.dst): e.connections for e in plan.edges}
    way = str(regions[0])
    for src, dst in itertools.pairwise(regions):
        way += f" ─{connections[src, dst]}→ {dst}"  # type: ignore[index]
    return way


def explain_lines(plan: OverlayPlan, offers: Sequence[Offer]) -> list[str]:
    """What binds, and what would help."""
    lines = ["", "  what binds"]
    lines += [f"    {phrase}" for phrase in plan.binding] or ["    nothing"]
    lines += ["", "  what would help"]
    lines += [f"    {offer.change}: {offer.gain}" for offer in offers] or [
        "    neither a machine more nor 10% more money"
    ]
    return lines


def compare_lines(alternatives: Sequence[Alternative]) -> list[str]:
    """Table 2 of the Skyplane paper, for this transfer."""
    width = max(len(a.name) for a in alternatives)
    lines = ["", f"  {'way':<{width}}  {'machines':>8}  {'time':>13}  {'rate':>13}  {'cost':>10}  relays"]
    for alternative in alternatives:
        plan = alternative.plan
        relays = sorted({str(r) for route in plan.routes for r in route.regions[1:-1]})
        machines = sum(m.count for m in plan.machines)
        lines.append(
            f"  {alternative.name:<{width}}  {machines:>8}  {format_duration(plan.time_s):>13}"
            f"  {format_gbps(plan.throughput_gbps):>13}  {format_usd(plan.cost.total_usd):>10}  {', '.join(relays)}"
        )
    return lines


def frontier_lines(frontier: Frontier) -> list[str]:
    """The frontier's segments, from the cheapest to the fastest."""
    lines = ["", "  frontier: each line a set of machines", f"  {'cost':>21}  {'rate':>31}  machines"]
    for segment in frontier.segments:
        costs = f"{format_usd(segment.cost_from_usd)} … {format_usd(segment.cost_to_usd)}"
        rates = f"{format_gbps(segment.rate_from_gbps)} … {format_gbps(segment.rate_to_gbps)}"
        mark = "" if segment.proven else "  (not proven)"
        lines.append(f"  {costs:>21}  {rates:>31}  {sum(segment.machines)}{mark}")
    return lines
