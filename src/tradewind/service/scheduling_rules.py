"""The rules of operators for the scheduler, in the database: limits, weights, bans, stores that are down, and the
bandwidth that tenants have bought.

`RuleReader` reads them, and returns the events that tell the scheduler of each change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, or_, select

from tradewind.model.records import replace
from tradewind.service.auction_tables import HOUR_MS, SLICES_PER_GBPS, auctions, bids
from tradewind.service.limits import BANS_MAX, RESOURCE_LIMITS_MAX, WEIGHTS_MAX
from tradewind.service.scheduler.bans import Ban, Bans
from tradewind.service.scheduler.events import (
    BandwidthSold,
    BanLifted,
    BanSet,
    LimitSet,
    SchedulerEvent,
    StoreDown,
    StoreUp,
    WeightSet,
)
from tradewind.service.scheduler.jobs import LINK, STORE_IN, STORE_OUT, Resource
from tradewind.service.scheduler.limits import NO_LIMIT, ResourceLimit
from tradewind.service.scheduling_tables import bans, down_stores, resource_limits, weights
from tradewind.service.stores import SERVERS

__all__ = [
    "STORE",
    "RuleReader",
    "bandwidth_sold_now",
    "bans_in_force",
    "closed_now",
    "limits_of_resources",
]

#: Kind of a ban on both the reads and the writes of a store.
STORE = "store"


class RuleReader:
    """The rules as the scheduler knows them."""

    def __init__(self) -> None:
        self._limits: dict[Resource, ResourceLimit] = {}
        self._weights: dict[tuple[str, str], float] = {}
        self._bans: dict[str, Ban] = {}
        self._down: dict[tuple[str, str], str] = {}
        self._sold: set[BandwidthSold] = set()

    def changes(self, connection: Connection, clock_ms: int, servers_jobs_max: int) -> list[SchedulerEvent]:
        """Return what has changed since the last call. All servers together may run `servers_jobs_max` jobs.

        `clock_ms` is the Unix time by the database's clock [ms], as are the ends of bans and the hours that were sold.
        """
        return [
            *self._limit_changes(connection, servers_jobs_max),
            *self._weight_changes(connection),
            *self._ban_changes(connection, clock_ms),
            *self._store_changes(connection),
            *self._sold_changes(connection, clock_ms),
        ]

    def _limit_changes(self, connection: Connection, servers_jobs_max: int) -> list[SchedulerEvent]:
        now = limits_of_resources(connection)
        own = now.get(SERVERS, NO_LIMIT)
        active = servers_jobs_max if own.active is None else min(own.active, servers_jobs_max)
        now[SERVERS] = replace(own, active=active)
        changed: list[SchedulerEvent] = [
            LimitSet(one, limit) for one, limit in now.items() if self._limits.get(one) != limit
        ]
        changed += [LimitSet(one, NO_LIMIT) for one in self._limits.keys() - now.keys()]
        self._limits = now
        return changed

    def _weight_changes(self, connection: Connection) -> list[SchedulerEvent]:
        query = select(weights.c.tenant, weights.c.activity, weights.c.weight).limit(WEIGHTS_MAX)
        now = {(tenant, activity): weight for tenant, activity, weight in connection.execute(query)}
        gone = dict.fromkeys(self._weights.keys() - now.keys(), 1.0)
        changed = {**{key: weight for key, weight in now.items() if self._weights.get(key) != weight}, **gone}
        self._weights = now
        return [WeightSet(tenant, weight, activity or None) for (tenant, activity), weight in changed.items()]

    def _ban_changes(self, connection: Connection, clock_ms: int) -> list[SchedulerEvent]:
        now = {ban.id: ban for ban in _bans(connection, clock_ms)}
        changed: list[SchedulerEvent] = [BanSet(ban) for ban in now.values() if self._bans.get(ban.id) != ban]
        changed += [BanLifted(name) for name in self._bans.keys() - now.keys()]
        self._bans = now
        return changed

    def _store_changes(self, connection: Connection) -> list[SchedulerEvent]:
        now = {(row["store"], row["tenant"]): _where(row) for row in connection.execute(select(down_stores)).mappings()}
        changed: list[SchedulerEvent] = [
            *(StoreDown(*one, where) for one, where in now.items() if self._down.get(one) != where),
            *(StoreUp(*one) for one in self._down.keys() - now.keys()),
        ]
        self._down = now
        return changed

    def _sold_changes(self, connection: Connection, clock_ms: int) -> list[BandwidthSold]:
        now = _sold(connection, clock_ms // HOUR_MS)
        new = [one for one in now if one not in self._sold]
        self._sold = set(now)
        return new


def limits_of_resources(connection: Connection) -> dict[Resource, ResourceLimit]:
    """Return the limits that operators have set."""
    query = select(resource_limits).limit(RESOURCE_LIMITS_MAX)
    return {Resource(row["kind"], row["name"]): _limit(row) for row in connection.execute(query).mappings()}


def closed_now(connection: Connection, clock_ms: int, limits: Mapping[Resource, ResourceLimit]) -> set[Resource]:
    """Return what is closed at a Unix time by the database's clock [ms]: by a ban, or one of the limits."""
    banned = {ban.resource for ban in _bans(connection, clock_ms) if ban.start_s * 1000 <= clock_ms}
    return banned | {one for one, limit in limits.items() if limit.is_closed}


def bans_in_force(connection: Connection, clock_ms: int) -> Bans:
    """Return all bans that have not ended at a Unix time by the database's clock [ms]."""
    found = Bans()
    for ban in _bans(connection, clock_ms):
        found.add(ban)
    return found


def _bans(connection: Connection, clock_ms: int) -> list[Ban]:
    not_over = or_(bans.c.end_unix_ms.is_(None), bans.c.end_unix_ms > clock_ms)
    query = select(bans).where(not_over).order_by(bans.c.id).limit(BANS_MAX)
    return [ban for row in connection.execute(query).mappings() for ban in _bans_of(row)]


def _bans_of(row: Mapping[Any, Any]) -> list[Ban]:
    """Return the bans of a row: two for a store."""
    kinds = {row["id"]: row["kind"]}
    if row["kind"] == STORE:
        kinds = {row["id"]: STORE_IN, f"{row['id']}-reads": STORE_OUT}
    end_ms = row["end_unix_ms"]
    return [
        Ban(
            name,
            Resource(kind, row["name"]),
            row["reason"],
            start_s=row["start_unix_ms"] / 1000,
            end_s=math.inf if end_ms is None else end_ms / 1000,
            stops_jobs=bool(row["stops_jobs"]),
            refuses_jobs=bool(row["refuses_jobs"]),
        )
        for name, kind in kinds.items()
    ]


def _where(row: Mapping[Any, Any]) -> str:
    """Return where a tenant's connection reaches a store, in words; nothing for a store of the server."""
    if not row["tenant"]:
        return ""
    parts = (row["endpoint"] and f"at {row['endpoint']}", row["region"] and f"in region {row['region']}")
    return " ".join(part for part in parts if part) or "at the public cloud"


def _limit(row: Mapping[Any, Any]) -> ResourceLimit:
    rate, usd = row["rate_gbps"], row["usd_per_day"]
    return ResourceLimit(row["active"], math.inf if rate is None else rate, math.inf if usd is None else usd)


def bandwidth_sold_now(connection: Connection, now_ms: int) -> list[BandwidthSold]:
    """Return what tenants have bought for the hour of `now_ms`."""
    end_s = (now_ms // HOUR_MS + 1) * HOUR_MS / 1000
    return [one for one in _sold(connection, now_ms // HOUR_MS) if one.until_s == end_s]


def _sold(connection: Connection, hour: int) -> list[BandwidthSold]:
    """Return what tenants have bought for an hour."""
    query = (
        select(bids.c.link, bids.c.tenant, bids.c.hour, bids.c.won_slices, auctions.c.cleared_unix_ms)
        .join(auctions, (auctions.c.link == bids.c.link) & (auctions.c.hour == bids.c.hour))
        .where(bids.c.state == "won", bids.c.hour >= hour)
        .order_by(bids.c.number)
    )
    return [
        BandwidthSold(
            Resource(LINK, link), tenant, won / SLICES_PER_GBPS, cleared_ms / 1000, (hour + 1) * HOUR_MS / 1000
        )
        for link, tenant, hour, won, cleared_ms in connection.execute(query)
    ]
