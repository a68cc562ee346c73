"""Sites of the service: names for places, so that users need no path or bucket of the service.

The operator names them with `tradewind serve --site NAME=PLACE`. A tenant's data of a site is below PLACE, where
`{tenant}` stands for the tenant's name; without that, below `PLACE/TENANT`. With `connection:NAME/PATH`, it is in the
connection that each tenant has by this name, which is the tenant's own already.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tradewind.errors import UsageError
from tradewind.service.connections import is_of_connection
from tradewind.service.limits import SITES_MAX
from tradewind.service.places import allowed_place
from tradewind.service.settings import TENANT, ServiceSettings

__all__ = ["parse_sites", "tenant_place"]

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
CONNECTION = re.compile(rf"connection:{NAME.pattern}(/[^\x00-\x1f\x7f]*)?")


def parse_sites(entries: Sequence[str], settings: ServiceSettings) -> dict[str, str]:
    """Return the place of each site of `NAME=PLACE` entries, with `{tenant}`.

    Raises UsageError, also if tenants may not use their parts of one.
    """
    if len(entries) > SITES_MAX:
        raise UsageError(f"--site: at most {SITES_MAX} sites")
    sites: dict[str, str] = {}
    for entry in entries:
        name, _, place = entry.partition("=")
        if not NAME.fullmatch(name) or not place:
            raise UsageError(f"--site {entry}: not NAME=PLACE", hint="for example dublin=/data/dublin")
        if name in sites:
            raise UsageError(f"--site {entry}: the site {name} is named twice")
        if is_of_connection(place):
            sites[name] = _place_of_connection(entry, place)
            continue
        # The name of a tenant has no braces, so the text itself stands for any tenant.
        sites[name] = allowed_place(place if TENANT in place else f"{place.rstrip('/')}/{TENANT}", settings, TENANT)
    return sites


def _place_of_connection(entry: str, place: str) -> str:
    """Return a place in a connection of each tenant. Raises UsageError."""
    if not CONNECTION.fullmatch(place) or {".", ".."}.intersection(place.split("/")):
        raise UsageError(f"--site {entry}: not connection:NAME or connection:NAME/PATH")
    return place.rstrip("/")


def tenant_place(sites: Mapping[str, str], site: str, tenant: str) -> str:
    """Return where a tenant's data of a site is."""
    return sites[site].replace(TENANT, tenant).rstrip("/")
