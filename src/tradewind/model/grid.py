"""The grid: what one pair of machines moves between two regions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tradewind.model.origin import Origin
from tradewind.model.region import Region

__all__ = ["Grid", "Link"]


@dataclass(frozen=True, slots=True)
class Link:
    """Throughput of one machine pair at 64 TCP connections, and round-trip time."""

    gbps: float
    origin: Origin
    rtt_ms: float | None = None


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
