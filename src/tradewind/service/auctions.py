"""Auctions of the idle bandwidth of links: bids, and their clearing at the start of the hour.

`tradewind.market.auction` decides who wins at what price. A bid reserves what it may cost in the tenant's budget. The
replica that schedules clears each auction: in one transaction it writes the result, charges the winners and releases
all reservations, so an auction is cleared once. The database's clock decides when an auction closes.

Only a link with a limit of its rate has an auction: on all others, bandwidth is not scarce.
"""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from fractions import Fraction
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, tuple_, update

from tradewind.engine.market import MACHINE_USD_PER_HOUR
from tradewind.market.auction import SLICES_MAX, Bid, Lot, clear, reserve_usd_micros
from tradewind.market.charge import auction_charges
from tradewind.market.margins import PAPER_RATIOS, margin
from tradewind.market.money import exact
from tradewind.service.auction_tables import HOUR_MS, SLICES_PER_GBPS, auctions, bids
from tradewind.service.auth import Sender
from tradewind.service.bindings import RATE_GBPS_UNKNOWN
from tradewind.service.budgets import require_room
from tradewind.service.database import database_unix_ms, record_change
from tradewind.service.limits import (
    AUCTIONS_READ_MAX,
    BID_HOURS_MAX,
    BIDS_PER_AUCTION_MAX,
    BIDS_PER_TENANT_MAX,
    CLEARING_LATE_S,
    PAGE_MAX,
)
from tradewind.service.money_tables import charges
from tradewind.service.problems import ApiProblem
from tradewind.service.scheduler.jobs import LINK, Resource
from tradewind.service.scheduling_rules import bans_in_force
from tradewind.service.scheduling_tables import resource_limits
from tradewind.service.tables import ACTIVE, jobs

__all__ = [
    "are_auctions_due",
    "clear_auctions",
    "open_links",
    "past_auctions",
    "place_bid",
    "reserve_per_gbps",
    "withdraw_bid",
]

#: 0.1 Gbit/s for an hour.
SLICE_GB = Fraction(45)
#: Extra machines in the margin whose lower bound is the reserve. The bound does not depend on them.
EXTRA_NODES = 5


def is_shown(link: str, stores: Collection[str]) -> bool:
    """Return whether a tenant may learn of a link. It may name a store, which only tenants may learn that use it:
    `stores` are those of the tenant.
    """
    return all("://" not in end or end in stores for end in link.split(">"))


def open_links(connection: Connection, stores: Collection[str], after: str, now_ms: int) -> Iterator[str]:
    """Yield the links with open auctions that a tenant may learn of, by name after a name, without those that are
    closed now. `stores` are those of the tenant.
    """
    closed = bans_in_force(connection, now_ms)
    is_sold = resource_limits.c.kind == LINK, resource_limits.c.rate_gbps.is_not(None), resource_limits.c.name > after
    names = connection.execute(select(resource_limits.c.name).where(*is_sold).order_by(resource_limits.c.name))
    for link in names.scalars():
        if is_shown(link, stores) and closed.in_force((Resource(LINK, link),), now_ms / 1000) is None:
            yield link


def past_auctions(
    connection: Connection, stores: Collection[str], before: tuple[int, str] | None, limit: int
) -> tuple[list[Mapping[Any, Any]], tuple[int, str] | None]:
    """Return up to `limit` auctions that are over and that a tenant may learn of, latest first, and where those after
    them begin; None after the last one. `before` is such a place: hour and link. `stores` are those of the tenant.

    At most `AUCTIONS_READ_MAX` are read, and the rest of an hour: the place between hours names no hidden link.
    """
    query = select(auctions).order_by(auctions.c.hour.desc(), auctions.c.link.desc())
    if before is not None:
        query = query.where(tuple_(auctions.c.hour, auctions.c.link) < before)
    shown: list[Mapping[Any, Any]] = []
    hour = 0
    found = connection.execute(query.execution_options(yield_per=PAGE_MAX)).mappings()
    for number, row in enumerate(found):
        if number >= AUCTIONS_READ_MAX and row["hour"] != hour:
            return shown, (hour, "")
        hour = row["hour"]
        if not is_shown(row["link"], stores):
            continue
        if len(shown) == limit:
            return shown, (shown[-1]["hour"], shown[-1]["link"])
        shown.append(row)
    return shown, None


def reserve_per_gbps(link: str, known_gbps: Callable[[str, str], float | None]) -> int:
    """Return the lowest price that 1 Gbit/s on a link can have for an hour [micro-dollars]."""
    src, _, dst = link.partition(">")
    return _reserve_usd_micros(known_gbps(src, dst) or RATE_GBPS_UNKNOWN) * SLICES_PER_GBPS


def place_bid(
    connection: Connection,
    sender: Sender,
    link: str,
    hour: int,
    slices: int,
    usd_micros: int,
    stores: Collection[str] = (),
) -> Mapping[str, Any]:
    """Record a bid, reserve what it may cost, and return its row. `usd_micros` is for one slice; `stores` are those of
    the tenant.

    Raises ApiProblem: 409 if the link has no auction, the auction is closed or too far away, or the tenant has bid
    already; 429 for too many bids; 402 if the budget has too little left.
    """
    now_ms = database_unix_ms(connection)
    if not now_ms // HOUR_MS < hour <= now_ms // HOUR_MS + BID_HOURS_MAX:
        raise ApiProblem(
            409,
            f"the auction of hour {hour} is not open",
            hint=f"bid for one of the next {BID_HOURS_MAX} hours; the present one is {now_ms // HOUR_MS}",
            field="body.hour",
        )
    if not is_shown(link, stores) or _rate_limit_gbps(connection, link) is None:
        raise ApiProblem(
            409,
            f"link {link} has no auction: its rate is not limited",
            hint="jobs use it without a bid",
            field="body.link",
        )
    _require_few(connection, sender.tenant, link, hour)
    bid_id, total = f"a-{secrets.token_hex(8)}", slices * usd_micros
    require_room(connection, sender.tenant, f"bid {bid_id}", total, now_ms)
    row = {
        "id": bid_id,
        "tenant": sender.tenant,
        "link": link,
        "hour": hour,
        "slices": slices,
        "usd_micros": usd_micros,
        "placed_unix_ms": now_ms,
        "state": "open",
        "reserved_usd_micros": total,
        "won_slices": 0,
        "charged_usd_micros": 0,
        "refunded_usd_micros": 0,
    }
    connection.execute(insert(bids).values(**row))
    detail = {name: row[name] for name in ("link", "hour", "slices", "usd_micros")}
    record_change(connection, sender.tenant, sender.token, "bid.place", bid_id, detail)
    return row


def withdraw_bid(connection: Connection, sender: Sender, bid_id: str) -> None:
    """Remove an open bid, and release its reservation. Raises ApiProblem 404, or 409 if its auction is closed."""
    mine = bids.c.id == bid_id, bids.c.tenant == sender.tenant
    found = connection.execute(select(bids.c.hour, bids.c.state).where(*mine)).first()
    if found is None:
        raise ApiProblem(404, "no such bid")
    if found.state != "open" or found.hour <= database_unix_ms(connection) // HOUR_MS:
        raise ApiProblem(409, f"the auction of bid {bid_id} is closed")
    connection.execute(delete(bids).where(*mine))
    record_change(connection, sender.tenant, sender.token, "bid.withdraw", bid_id)


def are_auctions_due(connection: Connection) -> bool:
    """Return whether the hour of an open bid has begun."""
    hour = database_unix_ms(connection) // HOUR_MS
    due = select(bids.c.id).where(bids.c.state == "open", bids.c.hour <= hour).limit(1)
    return connection.execute(due).first() is not None


def clear_auctions(connection: Connection, known_gbps: Callable[[str, str], float | None]) -> None:
    """Clear the auctions whose hour has begun, in a transaction that excludes all others that decide.

    `known_gbps` is the rate of a link for one pair of machines. An auction that is late by more than `CLEARING_LATE_S`
    is void: nobody pays.
    """
    now_ms = database_unix_ms(connection)
    due = select(bids).where(bids.c.state == "open", bids.c.hour <= now_ms // HOUR_MS).order_by(bids.c.number)
    lots: defaultdict[tuple[str, int], list[Mapping[Any, Any]]] = defaultdict(list)
    for row in connection.execute(due).mappings():
        lots[row["link"], row["hour"]].append(row)
    for (link, hour), rows in sorted(lots.items()):
        if now_ms - hour * HOUR_MS > CLEARING_LATE_S * 1000:
            _settle(connection, link, hour, "void")
            connection.execute(insert(auctions).values(link=link, hour=hour, slices=0, cleared_unix_ms=now_ms))
        else:
            _clear(connection, link, hour, rows, now_ms, known_gbps)


def _clear(
    connection: Connection,
    link: str,
    hour: int,
    rows: list[Mapping[Any, Any]],
    now_ms: int,
    known_gbps: Callable[[str, str], float | None],
) -> None:
    src, _, dst = link.partition(">")
    reserve = _reserve_usd_micros(known_gbps(src, dst) or RATE_GBPS_UNKNOWN)
    lot = Lot(src, dst, hour, _idle_slices(connection, link, now_ms), reserve)
    placed = [Bid(row["id"], row["tenant"], row["usd_micros"], row["number"], row["slices"]) for row in rows]
    done = clear(lot, placed)
    for award, charge in zip(done.awards, auction_charges(done), strict=True):
        values = {"state": "won", "won_slices": award.slices, "charged_usd_micros": award.usd_micros}
        values["counted_unix_ms"] = hour * HOUR_MS
        connection.execute(update(bids).where(bids.c.id == award.bid).values(**values, reserved_usd_micros=0))
        connection.execute(
            insert(charges).values(
                tenant=charge.tenant,
                bid=charge.subject,
                at_unix_ms=hour * HOUR_MS,
                what=f"auction: {award.slices / SLICES_PER_GBPS:g} Gbit/s for an hour, {src} → {dst}",
                usd_micros=charge.usd_micros,
                volume_bytes=0,
                run_ms=0,
            )
        )
    _settle(connection, link, hour, "lost")
    row = {"slices": lot.slices, "usd_micros": done.usd_micros, "cleared_unix_ms": now_ms}
    connection.execute(insert(auctions).values(link=link, hour=hour, **row))


def _settle(connection: Connection, link: str, hour: int, state: str) -> None:
    """End the bids of an auction that are still open, and release their reservations."""
    still_open = bids.c.link == link, bids.c.hour == hour, bids.c.state == "open"
    connection.execute(update(bids).where(*still_open).values(state=state, reserved_usd_micros=0))


def _reserve_usd_micros(known_gbps: float) -> int:
    """Return the reserve of a slice: the lower bound of the service's price for the time that the slice takes."""
    per_hour = margin(PAPER_RATIOS, EXTRA_NODES, exact(MACHINE_USD_PER_HOUR))
    gb_per_hour = exact(known_gbps) * SLICE_GB * SLICES_PER_GBPS
    return reserve_usd_micros(per_hour.per_gb(1 / gb_per_hour), SLICE_GB)


def _idle_slices(connection: Connection, link: str, now_ms: int) -> int:
    """Return what the limit of a link and its active jobs leave. A link that is closed or full has nothing to sell."""
    limit = connection.execute(
        select(resource_limits.c.rate_gbps, resource_limits.c.active).where(*_is_limit_of(link))
    ).first()
    if limit is None or limit.rate_gbps is None:
        return 0
    if bans_in_force(connection, now_ms).in_force((Resource(LINK, link),), now_ms / 1000) is not None:
        return 0
    count, used = 0, Fraction(0)
    active = select(jobs.c.granted).where(jobs.c.state.in_(ACTIVE), jobs.c.granted.is_not(None))
    for granted in map(json.loads, connection.execute(active).scalars()):
        if link in granted["links"]:
            count, used = count + 1, used + exact(granted["rate_gbps"])
    if limit.active is not None and count >= limit.active:
        return 0
    return min(SLICES_MAX, max(0, int((exact(limit.rate_gbps) - used) * SLICES_PER_GBPS)))


def _rate_limit_gbps(connection: Connection, link: str) -> float | None:
    found: float | None = connection.execute(select(resource_limits.c.rate_gbps).where(*_is_limit_of(link))).scalar()
    return found


def _is_limit_of(link: str) -> tuple[ColumnElement[bool], ...]:
    return resource_limits.c.kind == LINK, resource_limits.c.name == link


def _require_few(connection: Connection, tenant: str, link: str, hour: int) -> None:
    """Raise ApiProblem if the tenant, or the auction, may have no further bid."""
    same = select(bids.c.id).where(bids.c.tenant == tenant, bids.c.link == link, bids.c.hour == hour)
    if (other := connection.execute(same).scalar()) is not None:
        raise ApiProblem(409, f"bid {other} is for the same link and hour", hint="withdraw it, then bid again")
    count = select(func.count()).select_from(bids).where(bids.c.state == "open")
    if connection.execute(count.where(bids.c.tenant == tenant)).scalar_one() >= BIDS_PER_TENANT_MAX:
        raise ApiProblem(429, f"{BIDS_PER_TENANT_MAX:,} bids are open", hint="withdraw one, or wait for an auction")
    if connection.execute(count.where(bids.c.link == link, bids.c.hour == hour)).scalar_one() >= BIDS_PER_AUCTION_MAX:
        raise ApiProblem(429, f"the auction has {BIDS_PER_AUCTION_MAX:,} bids", hint="bid for another hour")
