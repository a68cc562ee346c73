"""The links of a transfer: pairs of regions, as far as the addresses say them. Tariffs are chosen by them.

The scheduler has a link of its own for a store whose region is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from tradewind.engine.sides import known_region
from tradewind.model.store import Access
from tradewind.model.url import parse_url
from tradewind.service.stores import LOCAL, SERVERS, is_elsewhere, store_and_path

__all__ = ["HERE", "UNKNOWN", "link_end", "scheduled_links", "sites_on", "transfer_links"]

#: Region of local files, and of a store whose address does not name its region: only tariffs for `*` apply to it.
HERE = "site:local"
UNKNOWN = "unknown"
#: Stores whose end is kept in memory.
STORES_KEPT = 10_000


def transfer_links(source: str, destinations: Sequence[str]) -> list[tuple[str, str]]:
    """Return one pair of regions for each destination. Asks no store."""
    start = _region(source)
    return [(start, _region(end)) for end in destinations]


def scheduled_links(request: Mapping[str, Any]) -> list[tuple[str]]:
    """Return the scheduler's name of the direct link to each destination of a job."""
    named = (request.get("connections") or {}).get("stores")
    source, *ends = named or [store_and_path(text)[0] for text in (request["source"], *request["destination"])]
    return [(f"{link_end(source)}>{link_end(end)}",) for end in ends]


@lru_cache(maxsize=STORES_KEPT)
def link_end(store: str) -> str:
    """Return the end of a link: the region of a store, or the store if its address does not name one."""
    if store == LOCAL:
        return HERE
    if is_elsewhere(store):
        return store
    region = known_region(parse_url(store, cwd="/"), Access()).region
    return store if region is None else str(region)


def sites_on(ends: Iterable[str], links: Iterable[str]) -> tuple[str, ...]:
    """Return the sites of a job with these ends and links, each once, with that of the servers."""
    passed = [*ends, *(name for link in links for name in link.split(">"))]
    return tuple(dict.fromkeys([SERVERS.name, *(name for name in passed if "://" not in name)]))


def _region(text: str) -> str:
    place = parse_url(text, cwd="/")
    if place.kind == "file":
        return HERE
    side = known_region(place, Access())
    return UNKNOWN if side.region is None else str(side.region)
