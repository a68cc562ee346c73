"""The grid: what one pair of machines moves between two regions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tradewind.model.origin import Origin
from tradewind.model.region import Region

__all__ = ["Grid", "Link", "LinkPart"]


@dataclass(frozen=True, slots=True)
class LinkPart:
    """What one layer of truth says of a link, and how much of the link's rate it makes up."""

    gbps: float
    weight: float
    """0 to 1; the weights of a link's parts add up to 1. A part of weight 0 is known and not believed."""
    origin: Origin


@dataclass(frozen=True, slots=True)
class Link:
    """Throughput of one machine pair at 64 TCP connections, and round-trip time."""

    gbps: float
    origin: Origin
    """Of the layer that counts most."""
    rtt_ms: float | None = None
    rtt_origin: Origin | None = None
    """Where the round-trip time is from, if not from where the rate is from."""
    parts: tuple[LinkPart, ...] = ()
    """What the rate was made of, the highest layer first; empty where there is one layer only."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Known links per ordered pair of regions. A pair that is absent is not used."""

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
