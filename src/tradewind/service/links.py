"""The links of a transfer: pairs of regions, as far as the addresses say them. Tariffs are chosen by them."""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.engine.sides import known_region
from tradewind.model.store import Access
from tradewind.model.url import parse_url

__all__ = ["HERE", "UNKNOWN", "transfer_links"]

#: Region of local files, and of a store whose address does not name its region: only tariffs for `*` apply to it.
HERE = "site:local"
UNKNOWN = "unknown"


def transfer_links(source: str, destinations: Sequence[str]) -> list[tuple[str, str]]:
    """Return one pair of regions for each destination. Asks no store."""
    start = _region(source)
    return [(start, _region(end)) for end in destinations]


def _region(text: str) -> str:
    place = parse_url(text, cwd="/")
    if place.kind == "file":
        return HERE
    side = known_region(place, Access())
    return UNKNOWN if side.region is None else str(side.region)
