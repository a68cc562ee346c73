"""Regions of connections: a wrong one makes a store's address that nobody answers, so it is refused."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from tradewind.engine.sides import PROVIDERS
from tradewind.errors import UsageError
from tradewind.model.sites import Sites

__all__ = ["known_regions", "require_region"]

#: Regions of Amazon's other partitions, which the catalog does not have, are not checked.
OTHER_PARTITIONS = ("aws:cn-", "aws:us-gov-")
NEWER = "leave out one that is newer than this version"


def known_regions(sites: Sites, in_grid: Iterable[str]) -> set[str]:
    """Return the regions of the packaged catalog, of the grid, and of the operator's providers."""
    from tradewind.catalog.packaged import read_packaged

    of_clouds = (region for cloud in sites.clouds for region in cloud.regions)
    return {*map(str, read_packaged().places), *in_grid, *sites.hosts.regions, *of_clouds}


def require_region(region: str | None, kind: str, endpoint: str | None, known: set[str]) -> None:
    """Raise UsageError for a region of a new connection that does not exist.

    A bare name at a compatible server is that of the server itself, which only it knows; so are those of R2.
    """
    if region is None:
        return
    named = region
    if ":" not in region:
        if endpoint is not None or kind not in PROVIDERS:
            return
        named = f"{PROVIDERS[kind]}:{region}"
    if named in known or named.startswith(OTHER_PARTITIONS):
        return
    similar = get_close_matches(named, sorted(known), 3)
    shown = [name if ":" in region else name.partition(":")[2] for name in similar]
    raise UsageError(
        f"region {region}: neither the catalog nor the operator's providers have it",
        hint=f"a similar one is {' or '.join(shown)}; {NEWER}"
        if shown
        else "leave it out if the store reports its region",
    )
