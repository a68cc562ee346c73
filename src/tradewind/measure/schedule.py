"""Which probes run at the same time: no machine and no shared link is in two of them. Pure.

The machines are the vertices of a graph and the probes its edges; a set of probes that disturb each other nowhere is a
colour. For all pairs of n machines the classes (i + j) mod n are a colouring with n colours, at most one more than any
colouring has (Vizing); filling rounds in that order keeps it, and leaves out what shared links forbid.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

__all__ = ["Pair", "rounds"]

Pair = tuple[str, str]
"""From one machine to another, by name."""


def rounds(pairs: Iterable[Pair], shared: Mapping[Pair, Iterable[Hashable]] | None = None) -> list[tuple[Pair, ...]]:
    """The probes in rounds, each pair once.

    Args:
        pairs: ordered; both directions are two probes, and never at the same time.
        shared: what else a probe uses that others may use too: links, uplinks.
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
    """Into the first round that has all of it free."""
    for members, taken in filled:
        if not needed & taken:
            members.append(pair)
            taken |= needed
            return
    filled.append(([pair], set(needed)))
