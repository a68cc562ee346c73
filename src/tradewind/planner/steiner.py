"""Distribution trees: the cheapest one for given link weights, and packings of many into given capacities.

A tree leads from the source to every destination; each byte that takes it crosses each of its links once and is
duplicated where it branches. What can be sent at all is a packing of trees. Flows per destination that share links
(max instead of sum) promise more at times: the butterfly network carries 2 that way and 1.5 with trees, because relays
forward bytes and do not add them up.

The cheapest tree is found by dynamic programming over sets of destinations (Dreyfus and Wagner 1971, directed), in
O(3^k n + 2^k n² + n³) for k destinations and n regions. A packing is a linear programme with one column per tree, made
as needed: the columns that are missing are those of less weight than one under the duals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from tradewind.planner.network import FloatArray, IntArray

__all__ = ["PACKED", "SINKS_MAX", "Edge", "Packing", "Tree", "cheapest_tree", "pack_trees"]

SINKS_MAX = 8
"""Destinations of one plan. 3^8 steps of the dynamic programme are some ten milliseconds."""
TREES_MAX = 2000
"""Columns of one packing; never reached on measured grids, which need some ten."""
PACKED = 1e-7
"""Relative; a packing that misses the rate by less has reached it."""

Edge = tuple[int, int]
Tree = frozenset[Edge]


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Trees with rates within capacities; where they stay below the rate wanted, the proof."""

    trees: tuple[tuple[Tree, float], ...]
    weights: FloatArray
    """Matrix over regions: Σ weight · capacity / ``least_weight`` is no less than any packing's rate."""
    least_weight: float
    """Of any tree."""

    @property
    def rate_gbps(self) -> float:
        """Of all trees together."""
        return float(sum(rate for _, rate in self.trees))


def cheapest_tree(weights: FloatArray, root: int, sinks: tuple[int, ...]) -> tuple[float, Tree] | None:
    """The tree of least weight from ``root`` to all ``sinks``; ``None`` if one of them is out of reach.

    Args:
        weights: matrix over regions, at least zero; infinite where there is no link.
    """
    distance, following = _shortest_paths(weights)
    full = (1 << len(sinks)) - 1
    best = {1 << i: distance[:, sink] for i, sink in enumerate(sinks)}
    split: dict[int, IntArray] = {}
    meeting: dict[int, IntArray] = {}
    for group in range(1, full + 1):
        if group in best:
            continue
        parts = [part for part in _parts(group) if part < group ^ part]
        sums = np.array([best[part] + best[group ^ part] for part in parts])
        chosen = np.argmin(sums, axis=0)
        split[group] = np.array(parts, dtype=np.int64)[chosen]
        merged = sums[chosen, np.arange(len(weights))]
        ways = distance + merged[None, :]
        meeting[group] = np.argmin(ways, axis=1)
        best[group] = ways[np.arange(len(weights)), meeting[group]]
    if not np.isfinite(best[full][root]):
        return None
    edges: set[Edge] = set()
    open_groups = [(full, root)]
    while open_groups:
        group, at = open_groups.pop()
        if group in split:
            branch = int(meeting[group][at])
            part = int(split[group][branch])
            open_groups += [(part, branch), (group ^ part, branch)]
        else:
            branch = sinks[group.bit_length() - 1]
        while at != branch:
            step = int(following[at, branch])
            edges.add((at, step))
            at = step
    tree = _as_tree(edges, root, sinks)
    return float(sum(weights[u, v] for u, v in tree)), tree


def _parts(group: int) -> list[int]:
    """The proper subsets of a set of bits."""
    found, part = [], (group - 1) & group
    while part:
        found.append(part)
        part = (part - 1) & group
    return found


def _shortest_paths(weights: FloatArray) -> tuple[FloatArray, IntArray]:
    """Floyd and Warshall: distances, and the next region on the way."""
    count = len(weights)
    distance = weights.copy()
    np.fill_diagonal(distance, 0.0)
    following: IntArray = np.broadcast_to(np.arange(count), (count, count)).copy()
    for middle in range(count):
        around = distance[:, middle, None] + distance[None, middle, :]
        shorter = around < distance
        distance[shorter] = around[shorter]
        following[shorter] = np.broadcast_to(following[:, middle, None], (count, count))[shorter]
    return distance, following


def _as_tree(edges: set[Edge], root: int, sinks: tuple[int, ...]) -> Tree:
    """One way to each destination within ``edges``: paths of equal weight may have met twice."""
    out: dict[int, list[int]] = {}
    for u, v in sorted(edges):
        out.setdefault(u, []).append(v)
    parent = {root: root}
    order = [root]
    for u in order:
        for v in out.get(u, []):
            if v not in parent:
                parent[v] = u
                order.append(v)
    kept: set[Edge] = set()
    for sink in sinks:
        at = sink
        while at != root:
            kept.add((parent[at], at))
            at = parent[at]
    return frozenset(kept)


def pack_trees(
    capacity: Mapping[Edge, float], count: int, root: int, sinks: tuple[int, ...], wanted_gbps: float
) -> Packing:
    """Trees of ``wanted_gbps`` together within the capacities, or the proof that there are none.

    Args:
        capacity: per link [Gbit/s]; others carry nothing.
        count: number of regions.
        root: source.
        sinks: destinations, at most `SINKS_MAX`.
        wanted_gbps: stop there; no more is packed.
    """
    edges = list(capacity)
    row_of = {edge: row for row, edge in enumerate(edges)}
    tails, heads = np.array([u for u, _ in edges]), np.array([v for _, v in edges])
    limits = np.array([capacity[edge] for edge in edges])
    highs = _packing_model(limits, wanted_gbps)
    trees: list[Tree] = []
    duals = 1 / limits
    rates: list[float] = []
    while True:
        weights = np.full((count, count), np.inf)
        weights[tails, heads] = duals
        found = cheapest_tree(weights, root, sinks)
        packed = sum(rates)
        if found is None or packed >= wanted_gbps * (1 - PACKED) or len(trees) == TREES_MAX:
            break
        least, tree = found
        proven = least > 0 and float(duals @ limits) <= least * wanted_gbps * (1 - 2 * PACKED)
        if proven or tree in trees:
            break
        trees.append(tree)
        rows = np.array([*(row_of[edge] for edge in tree), len(edges)], dtype=np.int32)
        highs.addCol(-1.0, 0.0, highspy.kHighsInf, len(rows), rows, np.ones(len(rows)))
        highs.run()
        solution = highs.getSolution()
        rates = list(solution.col_value)
        duals = np.maximum(-np.array(solution.row_dual)[: len(edges)], 0.0)
    used = tuple((tree, rate) for tree, rate in zip(trees, rates, strict=True) if rate > PACKED * wanted_gbps)
    return Packing(used, weights, found[0] if found else np.inf)


def _packing_model(limits: FloatArray, wanted_gbps: float) -> Any:
    """A row per link with its capacity, one that holds the sum to what is wanted, and no column yet."""
    highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("primal_feasibility_tolerance", 1e-9)
    highs.setOptionValue("dual_feasibility_tolerance", 1e-9)
    for limit in [*limits, wanted_gbps]:
        highs.addRow(-highspy.kHighsInf, float(limit), 0, [], [])
    return highs
