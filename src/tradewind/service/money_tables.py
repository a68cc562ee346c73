"""Tables of quotes, budgets, tariffs and charges. Amounts are micro-dollars; times are Unix times in ms."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, Table, Text

from tradewind.service.tables import METADATA

__all__ = ["accounts", "budgets", "charges", "quotes", "tariffs"]

#: Price lists of the operator: only appended to, and the last one is in force. `document` is a JSON list.
tariffs = Table(
    "tariffs",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("set_unix_ms", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
)

#: `period` is `day` or `month`, in UTC.
budgets = Table(
    "budgets",
    METADATA,
    Column("tenant", Text, ForeignKey("tenants.name"), primary_key=True),
    Column("period", Text, nullable=False),
    Column("limit_usd_micros", BigInteger, nullable=False),
    Column("updated_unix_ms", BigInteger, nullable=False),
)

#: `request` has resolved places, `owned` the places that the job will write, `links` its pairs of regions. `proposal`
#: is an id of the engine, `job` the job that was submitted with the quote. `utilisations` of the links set the
#: price. `routes` is `JobRoutes` if the plan has machines.
quotes = Table(
    "quotes",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("request", Text, nullable=False),
    Column("owned", Text, nullable=False),
    Column("links", Text, nullable=False),
    Column("proposal", Text, nullable=False),
    Column("view", Text, nullable=False),
    Column("usd_micros", BigInteger, nullable=False),
    Column("made_unix_ms", BigInteger, nullable=False),
    Column("expires_unix_ms", BigInteger, nullable=False),
    Column("job", Text),
    Column("utilisations", Text, nullable=False, server_default="[]"),
    Column("routes", Text),
    Index("quotes_of_tenant", "tenant", "expires_unix_ms"),
)

#: The money of each job: its quote, and what is reserved for it while `is_open` is 1. `utilisations` of the links when
#: it was quoted or submitted set its price.
accounts = Table(
    "accounts",
    METADATA,
    Column("job", Text, ForeignKey("jobs.id"), primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("quote", Text),
    Column("quote_usd_micros", BigInteger),
    Column("links", Text, nullable=False),
    Column("opened_unix_ms", BigInteger, nullable=False),
    Column("reserved_usd_micros", BigInteger, nullable=False),
    Column("is_open", Integer, nullable=False),
    Column("utilisations", Text, nullable=False, server_default="[]"),
    Index("open_accounts", "tenant", "is_open"),
)

#: The charges of tenants, line by line, each of a job or of a bid. Rows are only appended. A line of a tariff has its
#: volume and time.
charges = Table(
    "charges",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("job", Text, ForeignKey("jobs.id")),
    Column("at_unix_ms", BigInteger, nullable=False),
    Column("what", Text, nullable=False),
    Column("usd_micros", BigInteger, nullable=False),
    Column("volume_bytes", BigInteger, nullable=False),
    Column("run_ms", BigInteger, nullable=False),
    Column("bid", Text),
    Index("charges_of_tenant", "tenant", "at_unix_ms"),
    Index("charges_of_job", "job"),
    Index("charges_by_time", "at_unix_ms"),
)
