"""The grid: throughput of one pair of machines between two regions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tradewind.model.origin import Origin
from tradewind.model.region import Region

__all__ = ["Grid", "Link", "LinkPart"]


@dataclass(frozen=True, slots=True)
class LinkPart:
    """Figure of one layer for a link, and its share of the link's rate."""

    gbps: float
    weight: float
    """0 to 1; the weights of a link's parts add up to 1. A part of weight 0 is known but has no effect."""
    origin: Origin


@dataclass(frozen=True, slots=True)
class Link:
    """Throughput of one machine pair at 64 TCP connections, and round-trip time."""

    gbps: float
    origin: Origin
    """Origin of the layer with the largest weight."""
    rtt_ms: float | None = None
    rtt_origin: Origin | None = None
    """Origin of the round-trip time, if it differs from that of the rate."""
    parts: tuple[LinkPart, ...] = ()
    """Parts of the rate, the highest layer first; empty if there is one layer only."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Known links per ordered pair of regions. A pair without a link is not used."""

    links: Mapping[tuple[Region, Region], Link] = field(default_factory=dict)

    def link(self, src: Region, dst: Region) -> Link | None:
        """The link from ``src`` to ``dst``, if anything is known of it."""
        return self.links.get((src, dst))

    def regions(self) -> tuple[Region, ...]:
        """Every region that occurs, sorted."""
        return tuple(sorted({region for pair in self.links for region in pair}))

    def updated(self, links: Iterable[tuple[tuple[Region, Region], Link]]) -> Grid:
        """A grid in which ``links`` take the place of what was known."""
        return Grid({**self.links, **dict(links)})
