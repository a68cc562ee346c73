"""Distribution trees: the cheapest one for given link weights.

A tree leads from the source to every destination; each byte crosses each link of its tree once and is duplicated where
the tree branches. A feasible transfer is a packing of trees (`tree_columns.py`). Flows per destination that share links
(max instead of sum) sometimes promise more: the butterfly network carries 2 with them and 1.5 with trees, because
relays forward bytes and do not add them up.

The cheapest tree is found by dynamic programming over sets of destinations (Dreyfus and Wagner 1971, directed), in
O(3^k n + 2^k n² + n³) for k destinations and n regions.
"""

from __future__ import annotations

import numpy as np

from tradewind.planner.network import FloatArray, IntArray

__all__ = ["SINKS_MAX", "Edge", "Tree", "cheapest_tree"]

SINKS_MAX = 8
"""Maximum destinations of one plan. 3^8 steps of the dynamic program take some ten milliseconds."""

Edge = tuple[int, int]
Tree = frozenset[Edge]


def cheapest_tree(weights: FloatArray, root: int, sinks: tuple[int, ...]) -> tuple[float, Tree] | None:
    """Return the tree of least weight from ``root`` to all ``sinks``; ``None`` if one of them is unreachable.

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
        paths = distance + merged[None, :]
        meeting[group] = np.argmin(paths, axis=1)
        best[group] = paths[np.arange(len(weights)), meeting[group]]
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
    """Return the proper subsets of a set of bits."""
    found, part = [], (group - 1) & group
    while part:
        found.append(part)
        part = (part - 1) & group
    return found


def _shortest_paths(weights: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return distances and the next region on each shortest path (Floyd and Warshall)."""
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
    """Return one path to each destination within ``edges``: paths of equal weight may have met twice."""
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
