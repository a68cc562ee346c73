"""The utilisation of links and of the servers, by which tariffs with an upper bound price transfers.

The scheduler says what is in use, and it is recorded smoothed: a price by the load of the moment would swing, since a
high price drives tenants away, and the next price is low. Tenants get it in steps of a quarter: exact figures would
show when others begin and end transfers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection, delete, insert, select, update

from tradewind.service.limits import UTILISATION_GAP_S
from tradewind.service.link_tables import utilisations
from tradewind.service.scheduler.jobs import LINK, Resource
from tradewind.service.stores import SERVERS

__all__ = ["has_utilisation", "link_shares", "price_utilisations", "record_utilisation", "smoothed", "stepped"]

#: Steps of the utilisation that tenants see, and that prices follow.
STEPS = 4
#: Part of the utilisation that is kept for an hour: the last hour has a weight of 1/8, as in the simulation.
KEPT_PER_HOUR = 7 / 8
MS_PER_HOUR = 3_600_000
#: A smaller utilisation is not kept.
SHARE_MIN = 0.001


def stepped(share: float) -> float:
    """Return a utilisation in the steps that tenants see, at most 1."""
    return min(1.0, round(share * STEPS) / STEPS)


def smoothed(before: float, now: float, passed_ms: int) -> float:
    """Return the utilisation after some time at `now`. It is between the two."""
    kept: float = KEPT_PER_HOUR ** (max(0, passed_ms) / MS_PER_HOUR)
    return now + (before - now) * kept


def record_utilisation(connection: Connection, used: Mapping[Resource, float], now_ms: int) -> None:
    """Record what is in use of links and the servers. Those that are not in `used` are idle.

    After a pause of all servers, most of the time until now was idle: the load of this moment must not set the price.
    """
    known = {Resource(row.kind, row.name): row for row in connection.execute(select(utilisations))}
    for resource in sorted({*known, *(one for one in used if one.kind == LINK or one == SERVERS)}):
        row, share = known.get(resource), min(1.0, used.get(resource, 0.0))
        this = (utilisations.c.kind == resource.kind) & (utilisations.c.name == resource.name)
        if row is None:
            values = {"kind": resource.kind, "name": resource.name, "share": 0.0, "at_unix_ms": now_ms}
            connection.execute(insert(utilisations).values(**values))
            continue
        passed_ms = now_ms - row.at_unix_ms
        counted_ms = min(passed_ms, round(UTILISATION_GAP_S * 1000))
        after = smoothed(smoothed(row.share, 0.0, passed_ms - counted_ms), share, counted_ms)
        if after < SHARE_MIN and resource not in used:
            connection.execute(delete(utilisations).where(this))
        else:
            connection.execute(update(utilisations).where(this).values(share=after, at_unix_ms=now_ms))


def has_utilisation(connection: Connection) -> bool:
    """Return whether anything was in use lately."""
    return connection.execute(select(utilisations.c.name).limit(1)).first() is not None


def link_shares(connection: Connection, names: Collection[str] | None = None) -> dict[str, float]:
    """Return the utilisation of each link that was used lately, of some or of all."""
    query = select(utilisations.c.name, utilisations.c.share).where(utilisations.c.kind == LINK)
    if names is not None:
        query = query.where(utilisations.c.name.in_(names))
    return {str(row.name): float(row.share) for row in connection.execute(query)}


def price_utilisations(connection: Connection, links: Sequence[Sequence[str]]) -> list[float]:
    """Return the utilisation that prices each pair of regions, in steps.

    `links` has the scheduler's links of each pair. All transfers use the servers, so the highest of these counts.
    """
    shares = link_shares(connection, {name for names in links for name in names})
    servers = select(utilisations.c.share).where(
        utilisations.c.kind == SERVERS.kind, utilisations.c.name == SERVERS.name
    )
    least = connection.execute(servers).scalar() or 0.0
    return [stepped(max([least, *(shares.get(name, 0.0) for name in names)])) for names in links]
