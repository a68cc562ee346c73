"""Tables of the links that the scheduler tunes, of what was decided about them, and of how much they are used."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, Table, Text, false

from tradewind.service.tables import METADATA

__all__ = ["link_decisions", "tuned_links", "utilisations"]

#: Links as the scheduler has tuned them last: jobs at once, requests that jobs begin with, and the moving averages of
#: goodput and success. Nothing has shown yet that a link which `is_starting` is full.
tuned_links = Table(
    "tuned_links",
    METADATA,
    Column("link", Text, primary_key=True),
    Column("jobs_max", Integer, nullable=False),
    Column("read_requests", Integer, nullable=False),
    Column("write_requests", Integer, nullable=False),
    Column("goodput_gbps", Float, nullable=False),
    Column("success", Float, nullable=False),
    Column("updated_unix_ms", BigInteger, nullable=False),
    Column("is_starting", Boolean, nullable=False, server_default=false()),
    Index("tuned_links_by_time", "updated_unix_ms"),
)

#: Decisions on links with their reasons in words: of the scheduler, and in a run of a `job` of its gateways.
link_decisions = Table(
    "link_decisions",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("link", Text, nullable=False),
    Column("at_unix_ms", BigInteger, nullable=False),
    Column("job", Text),
    Column("what", Text, nullable=False),
    Column("before", Integer, nullable=False),
    Column("now", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Index("link_decisions_of_link", "link", "number"),
)

#: The smoothed utilisation of links and of the servers, see `utilisation`.
utilisations = Table(
    "utilisations",
    METADATA,
    Column("kind", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("share", Float, nullable=False),
    Column("at_unix_ms", BigInteger, nullable=False),
)
