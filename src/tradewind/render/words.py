"""Plans for the terminal: a few lines, a diagram of the routes, and tables, fitted to a given width."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tradewind.model.overlay import Overlay, OverlayRoute, UnicastOverlay
from tradewind.model.units import format_count, format_duration, format_gbps, format_usd, format_volume

if TYPE_CHECKING:
    from tradewind.model.catalog import Catalog
    from tradewind.planner.baseline import Alternative
    from tradewind.planner.frontier import Frontier
    from tradewind.planner.whatif import Improvement

__all__ = [
    "COLUMNS",
    "against_direct_lines",
    "compare_lines",
    "explain_lines",
    "figure_lines",
    "frontier_lines",
    "machine_lines",
    "plan_lines",
    "share_bar",
    "without_machines_lines",
    "wrapped",
]

COLUMNS = 80
"""Default width of the text."""
BAR_CHARACTERS = 10
"""Characters of a bar that stands for all bytes."""
SHORTEST_S = 0.1
"""Minimum time shown: durations have one decimal."""
SHARE_SHOWN_MIN = 0.0005
GAP_WORTH_SAYING = 1e-6
GAP_SHOWN_MIN = 1e-4
"""Minimum gap shown: a gap is never shown smaller than it is."""
UNCONNECTED_MAX = 5
"""Most pairs of regions that are shown as unable to connect."""


def plan_lines(plan: UnicastOverlay, columns: int = COLUMNS) -> list[str]:
    """Return headline, figures, routes and machines."""
    lines = [
        f"{plan.source} → {plan.destination}, {format_volume(plan.volume_gb)}: {plan.goal}",
        "",
        *figure_lines(plan),
        "",
        "  routes (connections per hop)",
    ]
    for route in plan.routes:
        lines += _route_lines(plan, route, columns)
    return [*lines, *machine_lines(plan, columns)]


def without_machines_lines(direct: UnicastOverlay, columns: int = COLUMNS) -> list[str]:
    """Return the note that a copy ends before machines would start; `direct` has one machine at each end."""
    return wrapped(
        "a copy without machines may finish earlier, and pays for none: the direct path moves "
        f"{format_volume(direct.volume_gb)} in {format_duration(max(direct.transfer_s, SHORTEST_S))}, and machines "
        f"take {format_duration(direct.boot_s)} to start",
        columns,
        2,
    )


def figure_lines(plan: Overlay, of_rate: str = "") -> list[str]:
    """Return rate (`of_rate` is its suffix), time, cost, and the proven gap."""
    boot = f", {format_duration(plan.boot_s)} of it for machines to start" if plan.boot_s else ""
    certain = plan.optimal and plan.gap < GAP_WORTH_SAYING
    proof = "proven optimal" if certain else f"within {max(plan.gap, GAP_SHOWN_MIN):.2%} of the best"
    and_requests = f", requests {format_usd(plan.cost.requests_usd)}" if plan.cost.requests_usd else ""
    return [
        f"  rate      {format_gbps(plan.throughput_gbps)}{of_rate}",
        f"  time      {format_duration(plan.time_s)}{boot}",
        f"  cost      {format_usd(plan.cost.total_usd)}: egress {format_usd(plan.cost.egress_usd)}, "
        f"machines {format_usd(plan.cost.machines_usd)}{and_requests}",
        *request_lines(plan),
        f"  plan      {proof}, in {plan.solve_s:.2f} s",
    ]


def request_lines(plan: Overlay) -> list[str]:
    """Return the requests to object stores and their cost; nothing if they are free."""
    if plan.objects is None or not plan.cost.requests_usd:
        return []
    objects = format_count(plan.objects.count, "object")
    return [f"  requests  {format_usd(plan.cost.requests_usd)}: {plan.requests} for {objects}"]


def machine_lines(plan: Overlay, columns: int) -> list[str]:
    """Return the machines by region and type, and the tightest limit of the plan."""
    lines = ["", "  machines"]
    name_width = max((len(m.offer.name) for m in plan.machines), default=0)
    region_width = max((len(str(m.region)) for m in plan.machines), default=0)
    lines += [
        f"    {m.count:>3} × {m.offer.name:<{name_width}}  {m.region!s:<{region_width}}  "
        f"{format_usd(m.offer.usd_per_hour)}/h each{', standard network tier' * (m.network_tier == 'standard')}"
        for m in plan.machines
    ]
    if plan.binding:
        lines += ["", *wrapped(f"limited by {plan.binding[0]}", columns, 2)]
    return lines


def _route_lines(plan: UnicastOverlay, route: OverlayRoute, columns: int) -> Iterator[str]:
    """Yield share, rate and path of a route; a long path continues on the next line."""
    connections = {(e.src, e.dst, e.network_tier): e.connections for e in plan.edges}
    line = f"    {share_bar(route.share)} {format_gbps(route.gbps):>12}  "
    indent = len(line)
    line += str(route.regions[0])
    for src, dst, tier in zip(route.regions, route.regions[1:], route.tiers, strict=False):
        hop = f" ─{connections[src, dst, tier]}→ {dst}{' (standard tier)' if tier == 'standard' else ''}"
        if len(line) + len(hop) > columns:
            yield line
            line = " " * indent + hop
        else:
            line += hop
    yield line


def share_bar(share: float) -> str:
    """Return a share of the bytes in per cent, and as a bar."""
    bar = "█" * max(1, round(BAR_CHARACTERS * share))
    much = f"{share:.1%}" if share >= SHARE_SHOWN_MIN else "<0.1%"
    return f"{much:>6} {bar:<{BAR_CHARACTERS}}"


def explain_lines(
    plan: Overlay, offers: Sequence[Improvement], columns: int = COLUMNS, *, catalog: Catalog
) -> list[str]:
    """Return the binding limits, the changes that would help, and the network tiers with their prices and rates."""
    lines = ["", "  limits"]
    for phrase in plan.binding or ("nothing",):
        lines += wrapped(phrase, columns, 4)
    lines += ["", "  what would help"]
    said = [f"{offer.change}: {offer.gain}" for offer in offers] or ["neither one more machine nor 10% more money"]
    for phrase in said:
        lines += wrapped(phrase, columns, 4)
    return [*lines, *_network_tier_lines(plan, catalog, columns), *_unconnected_lines(plan, catalog, columns)]


def _unconnected_lines(plan: Overlay, catalog: Catalog, columns: int) -> list[str]:
    """Return the hops that the plan does without because neither end can dial: first those from source to sink."""
    found = catalog.unconnected
    pairs = [pair for pair in found if pair[0] < pair[1] or pair[::-1] not in found]
    ranked = sorted(pairs, key=lambda pair: (-len(plan.ends.intersection(pair)), pair))
    lines = ["", "  cannot connect"] if ranked else []
    for pair in ranked[:UNCONNECTED_MAX]:
        lines += wrapped(f"{pair[0]} and {pair[1]}: {found[pair]}", columns, 4)
    more = len(ranked) - UNCONNECTED_MAX
    return [*lines, *([f"    and {more} more pairs"] if more > 0 else [])]


def _network_tier_lines(plan: Overlay, catalog: Catalog, columns: int) -> list[str]:
    """Return tier, price and rate of each hop to another cloud; nothing if all machines send in the premium tier."""
    if not (plan.standard_at or plan.mixed_at):
        return []
    lines = ["", "  network tiers"]
    for edge in plan.edges:
        known, tier = plan.known_to(catalog, edge), plan.network_tier_of(edge)
        if tier is None or edge.src.provider == edge.dst.provider:
            continue
        name = f" ({known.standard_tiers[edge.src.provider].name})" if tier == "standard" else ""
        price, link = known.egress(edge.src, edge.dst), known.grid.links[edge.src, edge.dst]
        lines += wrapped(f"{edge.src} → {edge.dst}: {tier}{name}", columns, 4)
        lines += wrapped(f"price {edge.usd_per_gb:.3g} USD/GB: {price.origin if price else 'unknown'}", columns, 6)
        lines += wrapped(f"rate {format_gbps(link.gbps)} per machine pair: {link.origin}", columns, 6)
    return lines


def wrapped(phrase: str, columns: int, indent: int) -> list[str]:
    """Return the lines of a phrase; lines after the first are indented further."""
    from textwrap import wrap

    first, other = " " * indent, " " * (indent + 4)
    return wrap(phrase, max(columns, 40), initial_indent=first, subsequent_indent=other, break_on_hyphens=False)


def against_direct_lines(plan: UnicastOverlay, direct: UnicastOverlay | None) -> list[str]:
    """Return the plan's figures compared with the direct path, if it exists and differs from the plan."""
    if direct is None:
        return ["", "  there is no direct path: no link between the two is known"]
    if all(len(route.regions) == 2 for route in plan.routes) and plan.throughput_gbps == direct.throughput_gbps:
        return ["", "  the plan is the direct path"]
    more_usd = plan.cost.total_usd - direct.cost.total_usd
    costs = f"{'+' if more_usd >= 0 else '−'}{format_usd(abs(more_usd))}"
    return [
        "",
        "  against direct",
        f"    rate      {format_gbps(plan.throughput_gbps)} instead of {format_gbps(direct.throughput_gbps)}",
        f"    time      {format_duration(plan.time_s)} instead of {format_duration(direct.time_s)}",
        f"    cost      {format_usd(plan.cost.total_usd)} instead of {format_usd(direct.cost.total_usd)} ({costs})",
    ]


def compare_lines(alternatives: Sequence[Alternative], columns: int = COLUMNS) -> list[str]:
    """Return Table 2 of the Skyplane paper for this transfer; relays are at the end of a line, or below it."""
    width = max(len(alternative.name) for alternative in alternatives)
    lines = ["", f"  {'plan':<{width}}  {'machines':>8}  {'time':>11}  {'rate':>12}  {'cost':>9}"]
    for alternative in alternatives:
        plan = alternative.plan
        machines = sum(m.count for m in plan.machines)
        line = (
            f"  {alternative.name:<{width}}  {machines:>8}  {format_duration(plan.time_s):>11}"
            f"  {format_gbps(plan.throughput_gbps):>12}  {format_usd(plan.cost.total_usd):>9}"
        )
        lines.append(line)
        relays = ", ".join(sorted({str(r) for route in plan.routes for r in route.regions[1:-1]}))
        via = f"via {relays}" if relays else ""
        if alternative.remark:
            lines += wrapped("; ".join(filter(None, (alternative.remark, via))), columns, 6)
        elif via and len(line) + 2 + len(via) <= columns:
            lines[-1] += f"  {via}"
        elif via:
            lines += wrapped(via, columns, 6)
    return lines


def frontier_lines(frontier: Frontier) -> list[str]:
    """Return the frontier's segments, from the cheapest to the fastest."""
    lines = ["", "  frontier: each line is one set of machines", f"  {'cost':>21}  {'rate':>29}  machines"]
    for machines, group in itertools.groupby(frontier.segments, key=lambda segment: segment.machines):
        pieces = list(group)
        costs = _span(format_usd(pieces[0].cost_from_usd), format_usd(pieces[-1].cost_to_usd))
        rates = _span(format_gbps(pieces[0].rate_from_gbps), format_gbps(pieces[-1].rate_to_gbps))
        gap = max(piece.gap for piece in pieces)
        proof = f"within {max(gap, GAP_SHOWN_MIN):.2%}" if gap < float("inf") else "not proven"
        mark = "" if all(piece.proven for piece in pieces) else f"  {proof}"
        lines.append(f"  {costs:>21}  {rates:>29}  {sum(machines):>8}{mark}")
    return lines


def _span(low: str, high: str) -> str:
    """Return both ends with the unit once, or one figure if they look the same."""
    if low == high:
        return low
    unit = low.partition(" ")[2]
    return f"{low.removesuffix(' ' + unit) if unit and high.endswith(' ' + unit) else low} … {high}"
