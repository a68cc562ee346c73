"""Tables of the auctions. Amounts are micro-dollars, of bids and prices for one slice; times are Unix times in ms."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, Table, Text, UniqueConstraint

from tradewind.service.tables import METADATA

__all__ = ["HOUR_MS", "SLICES_PER_GBPS", "auctions", "bids"]

HOUR_MS = 3_600_000
#: A slice is 0.1 Gbit/s for an hour.
SLICES_PER_GBPS = 10

#: Bids of tenants for the link `START>END` in an hour (hours since 1970, UTC). `number` is the order of arrival.
#: `state` is `open`, `won`, `lost` or `void`. Only an open bid has a reservation in the tenant's budget.
#: Until the hour of a winner is over, `counted_unix_ms` is how far it was counted what the service has withheld.
bids = Table(
    "bids",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("link", Text, nullable=False),
    Column("hour", BigInteger, nullable=False),
    Column("slices", Integer, nullable=False),
    Column("usd_micros", BigInteger, nullable=False),
    Column("placed_unix_ms", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("reserved_usd_micros", BigInteger, nullable=False),
    Column("won_slices", Integer, nullable=False),
    Column("charged_usd_micros", BigInteger, nullable=False),
    Column("counted_unix_ms", BigInteger),
    Column("withheld_slice_ms", BigInteger, nullable=False, server_default="0"),
    Column("refunded_usd_micros", BigInteger, nullable=False, server_default="0"),
    UniqueConstraint("tenant", "link", "hour", name="bid_of_tenant"),
    Index("bids_by_hour", "state", "hour"),
    Index("bids_counted", "counted_unix_ms"),
)

#: Auctions that are over: a row for each link and hour that had bids. Without a price the auction was void.
auctions = Table(
    "auctions",
    METADATA,
    Column("link", Text, primary_key=True),
    Column("hour", BigInteger, primary_key=True),
    Column("slices", Integer, nullable=False),
    Column("usd_micros", BigInteger),
    Column("cleared_unix_ms", BigInteger, nullable=False),
    Index("auctions_by_hour", "hour", "link"),
)
