"""Names of the stores of a job, and of the servers, as limits and bans use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tradewind.model.url import Location, parse_url
from tradewind.service.scheduler.jobs import SITE, Resource

__all__ = ["LOCAL", "SERVERS", "store_of", "stores_of"]

#: Store of local files.
LOCAL = "local"
#: The site of the servers' own processes: its active jobs are limited by `--jobs` of all of them.
SERVERS = Resource(SITE, "servers")


def store_of(place: Location) -> str:
    """Return the name of a place's store: its bucket as a URL, or `local`."""
    return LOCAL if place.kind == "file" else place.root


def stores_of(request: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return the stores that a job reads from and writes to."""
    ends = dict.fromkeys(store_of(parse_url(text, cwd="/")) for text in request["destination"])
    return store_of(parse_url(request["source"], cwd="/")), tuple(ends)
