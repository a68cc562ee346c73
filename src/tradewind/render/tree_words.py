"""Plans for several destinations in the terminal: trees drawn region by region, and the alternatives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tradewind.model.overlay import DistributionTree, MulticastOverlay, Pool
from tradewind.model.region import Region
from tradewind.model.units import format_duration, format_gbps, format_usd, format_volume
from tradewind.render.words import COLUMNS, figure_lines, machine_lines, share_bar, wrapped

if TYPE_CHECKING:
    from tradewind.planner.multicast import MulticastAlternative

__all__ = ["alternative_lines", "tree_lines"]

TREES_SHOWN_MAX = 6
"""Minimum share of a tree that is drawn; smaller ones are only counted."""


def tree_lines(plan: MulticastOverlay, columns: int = COLUMNS) -> list[str]:
    """Return headline, figures, trees and machines."""
    lines = [
        *wrapped(f"{plan.source} → {', '.join(map(str, plan.destinations))}", columns, 0),
        f"{format_volume(plan.volume_gb)} to each: {plan.goal}",
        "",
        *figure_lines(plan, " to each"),
        "",
        "  trees (connections per hop; ● destination, ×2 copied there)",
    ]
    for number, tree in enumerate(plan.trees[:TREES_SHOWN_MAX]):
        lines += [""] if number else []
        lines += [
            f"    {share_bar(tree.share)} {format_gbps(tree.gbps):>12}",
            f"      {_marked(plan, tree, plan.source)}",
        ]
        starts = dict.fromkeys(start for start, _ in tree.pooled_hops if start[0] == plan.source)
        lines += _branches(plan, tree, tuple(starts), "      ")
    others = plan.trees[TREES_SHOWN_MAX:]
    if others:
        count = f"{len(others)} more tree{'s' if len(others) > 1 else ''}"
        lines += ["", f"    {share_bar(sum(tree.share for tree in others))} {count}; --json has all"]
    return [*lines, *machine_lines(plan, columns)]


def _branches(plan: MulticastOverlay, tree: DistributionTree, at: Sequence[Pool], indent: str) -> Iterator[str]:
    """Yield the part of a tree below the machines of a region, one region per line."""
    connections = {(e.src, e.network_tier, e.dst): e.connections for e in plan.edges}
    onward = [(start, end) for start, end in tree.pooled_hops if start in at]
    for number, ((src, tier), end) in enumerate(onward):
        last = number == len(onward) - 1
        hop = f"{'└' if last else '├'}─{connections[src, tier, end[0]]}→ {_marked(plan, tree, end[0])}"
        yield f"{indent}{hop}{' (standard tier)' if tier == 'standard' else ''}"
        yield from _branches(plan, tree, (end,), indent + ("   " if last else "│  "))


def _marked(plan: MulticastOverlay, tree: DistributionTree, region: Region) -> str:
    """Return a region, marked if it is a destination, and with the number of copies made there."""
    count = tree.copies(plan.destinations).get(region)
    return f"{region}{' ●' if region in plan.destinations else ''}{f' ×{count}' if count else ''}"


def alternative_lines(alternatives: Sequence[MulticastAlternative], columns: int = COLUMNS) -> list[str]:
    """Return the plan and its alternatives for all destinations; remarks are below their line."""
    width = max(len(alternative.name) for alternative in alternatives)
    lines = ["", f"  {'plan':<{width}}  {'machines':>8}  {'time':>11}  {'rate to each':>12}  {'cost':>9}"]
    for alternative in alternatives:
        lines.append(
            f"  {alternative.name:<{width}}  {alternative.machines:>8}  {format_duration(alternative.time_s):>11}"
            f"  {format_gbps(alternative.average_gbps):>12}  {format_usd(alternative.cost_usd):>9}"
        )
        if alternative.remark:
            lines += wrapped(alternative.remark, columns, 6)
    return lines
