"""Schedule of probes: which run at the same time. No machine or shared link is in two of them. Pure.

In a graph with machines as vertices and probes as edges, a round is a colour: a set of probes that do not disturb each
other. For all pairs of n machines the classes (i + j) mod n are a colouring with n colours, at most one more than the
minimum (Vizing). Rounds are filled in that order, except for probes that shared links exclude.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

__all__ = ["Pair", "rounds"]

Pair = tuple[str, str]
"""From one machine to another, by name."""


def rounds(pairs: Iterable[Pair], shared: Mapping[Pair, Iterable[Hashable]] | None = None) -> list[tuple[Pair, ...]]:
    """Return the probes in rounds, each pair once.

    Args:
        pairs: ordered; the two directions are two probes and never run at the same time.
        shared: other resources of a probe that several may use: links, uplinks.
    """
    wanted = list(dict.fromkeys(pairs))
    names = {name: number for number, name in enumerate(sorted({name for pair in wanted for name in pair}))}

    def place(pair: Pair) -> tuple[bool, int, str]:
        src, dst = names[pair[0]], names[pair[1]]
        return src > dst, (src + dst) % len(names), pair[0]

    filled: list[tuple[list[Pair], set[Hashable]]] = []
    for pair in sorted(wanted, key=place):
        needed: set[Hashable] = {("machine", name) for name in pair}
        needed |= {("link", link) for link in (shared or {}).get(pair, ())}
        _add(filled, pair, needed)
    return [tuple(members) for members, _ in filled]


def _add(filled: list[tuple[list[Pair], set[Hashable]]], pair: Pair, needed: set[Hashable]) -> None:
    """Add a probe to the first round in which its resources are free."""
    for members, taken in filled:
        if not needed & taken:
            members.append(pair)
            taken |= needed
            return
    filled.append(([pair], set(needed)))
