"""Tables of the scheduler: its lease, limits, weights, bans, stores that are down, and schedules."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, Table, Text, UniqueConstraint

from tradewind.service.tables import METADATA

__all__ = ["bans", "down_stores", "resource_limits", "schedule_events", "schedulers", "schedules", "weights"]

#: One row: the replica that schedules, until `lease_unix_ms` by the database's clock. `epoch` counts the schedulers, so
#: that an earlier one decides nothing.
schedulers = Table(
    "schedulers",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("lease_unix_ms", BigInteger, nullable=False),
)

#: Limits of resources; null is no limit.
resource_limits = Table(
    "resource_limits",
    METADATA,
    Column("kind", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("active", Integer),
    Column("rate_gbps", Float),
    Column("usd_per_day", Float),
)

#: Weights of tenants (with an empty activity), and of their activities.
weights = Table(
    "weights",
    METADATA,
    Column("tenant", Text, primary_key=True),
    Column("activity", Text, primary_key=True),
    Column("weight", Float, nullable=False),
)

#: Bans and, with `is_maintenance`, windows that are known before.
bans = Table(
    "bans",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("start_unix_ms", BigInteger, nullable=False),
    Column("end_unix_ms", BigInteger),
    Column("stops_jobs", Integer, nullable=False),
    Column("refuses_jobs", Integer, nullable=False),
    Column("is_maintenance", Integer, nullable=False),
)

#: Stores that do not answer. With a tenant, only that tenant's connections lead there. `url` is what to ask, at
#: `endpoint` and `region` of the connection.
down_stores = Table(
    "down_stores",
    METADATA,
    Column("store", Text, primary_key=True),
    Column("tenant", Text, primary_key=True),
    Column("url", Text, nullable=False),
    Column("endpoint", Text),
    Column("region", Text),
    Column("since_unix_ms", BigInteger, nullable=False),
)

#: Timetables of tenants. `request`, `owned` and `links` are those of each job; `queued` is a JSON list of times.
schedules = Table(
    "schedules",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("token", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("owned", Text, nullable=False),
    Column("links", Text, nullable=False),
    Column("cron", Text, nullable=False),
    Column("time_zone", Text, nullable=False),
    Column("end_unix_ms", BigInteger),
    Column("count", Integer),
    Column("overlap", Text, nullable=False),
    Column("created_unix_ms", BigInteger, nullable=False),
    Column("last_unix_ms", BigInteger, nullable=False),
    Column("next_unix_ms", BigInteger),
    Column("submitted", Integer, nullable=False),
    Column("queued", Text, nullable=False),
    Column("skipped", Text),
    Index("schedules_of_tenant", "tenant", "id"),
    Index("schedules_by_time", "next_unix_ms"),
)

#: Events of schedules: each stands for one job, as a time of the cron expression does. One that is not open has been
#: handled. No two of a schedule have the same time, which names the job.
schedule_events = Table(
    "schedule_events",
    METADATA,
    Column("schedule", Text, ForeignKey("schedules.id", ondelete="CASCADE"), primary_key=True),
    Column("at_unix_ms", BigInteger, primary_key=True),
    Column("idempotency_key", Text, nullable=False),
    Column("is_open", Integer, nullable=False),
    UniqueConstraint("schedule", "idempotency_key", name="event_of_key"),
    Index("schedule_events_open", "is_open", "schedule"),
)
