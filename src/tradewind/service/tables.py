"""Tables of the service's database. `migrations` makes them; times are Unix times in ms."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, MetaData, Table, Text, UniqueConstraint

__all__ = [
    "ACTIVE",
    "ENDED",
    "METADATA",
    "audit",
    "connections",
    "deliveries",
    "job_events",
    "jobs",
    "members",
    "replicas",
    "state_folders",
    "tenants",
    "tokens",
    "webhooks",
]

METADATA = MetaData()
#: States of jobs that may write to their places.
ACTIVE = ("running", "pausing", "stopping", "cancelling")
#: States of jobs that have ended. Only a failed one may be resumed.
ENDED = ("done", "failed", "cancelled")

tenants = Table(
    "tenants",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("created_unix_ms", BigInteger, nullable=False),
)

#: `digest` is the SHA-256 of the token, which is random and long. `scopes` is a JSON list.
tokens = Table(
    "tokens",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False, unique=True),
    Column("role", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("created_unix_ms", BigInteger, nullable=False),
    Column("expires_unix_ms", BigInteger),
    Column("revoked_unix_ms", BigInteger),
    Index("tokens_of_tenant", "tenant", "id"),
)

#: `owned` is the JSON list of places that the job writes. `proposal` and `engine_job` are ids of the engine:
#: `proposal` is recorded before the job starts, so that a restarted server finds what it has started. `receipt` is
#: kept when the job has ended, because the engine removes old jobs, and while it is paused. `owner` is the replica
#: that works on an active job, until `lease_unix_ms` by the database's clock; `epoch` counts the owners, so
#: that an earlier one changes nothing.
#: For the scheduler: `size_bytes` and `price_usd_micros` if they are known before the start; `failures` counts those of
#: each retry class (JSON), and `failure` is the last one; `moved_bytes` are proven so far; `granted` is what the job
#: was started with (JSON); `routes` is `JobRoutes` if the job was planned; `earliest_unix_ms` and `latest_unix_ms` say
#: when it will end. `traceparent` is the span of the request that submitted it, if that was traced.
jobs = Table(
    "jobs",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("idempotency_key", Text, nullable=False),
    Column("request_digest", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("owned", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("waiting", Text),
    Column("not_before_unix_ms", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("proposal", Text),
    Column("engine_job", Text),
    Column("error", Text),
    Column("hint", Text),
    Column("receipt", Text),
    Column("owner", Text),
    Column("epoch", BigInteger, nullable=False),
    Column("lease_unix_ms", BigInteger, nullable=False),
    Column("created_unix_ms", BigInteger, nullable=False),
    Column("updated_unix_ms", BigInteger, nullable=False),
    Column("size_bytes", BigInteger),
    Column("price_usd_micros", BigInteger),
    Column("failures", Text, nullable=False, server_default="{}"),
    Column("failure", Text),
    Column("moved_bytes", BigInteger, nullable=False, server_default="0"),
    Column("granted", Text),
    Column("earliest_unix_ms", BigInteger),
    Column("latest_unix_ms", BigInteger),
    Column("schedule", Text),
    Column("traceparent", Text),
    Column("routes", Text),
    UniqueConstraint("tenant", "idempotency_key", name="job_of_key"),
    Index("jobs_of_tenant", "tenant", "id"),
    Index("jobs_by_state", "state", "id"),
    Index("jobs_of_owner", "owner"),
    Index("jobs_of_schedule", "schedule"),
)

#: Changes of a job's state. Events of its runs are in the engine's state folder.
job_events = Table(
    "job_events",
    METADATA,
    Column("job", Text, ForeignKey("jobs.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("at_unix_ms", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text),
)

#: Only appended to: triggers refuse changes.
audit = Table(
    "audit",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("at_unix_ms", BigInteger, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("token", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Index("audit_of_tenant", "tenant", "number"),
)

#: Running servers. One whose lease has expired is gone. `peer` is where the others pass requests of guests on to it
#: (JSON).
replicas = Table(
    "replicas",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("jobs_max", Integer, nullable=False),
    Column("lease_unix_ms", BigInteger, nullable=False),
    Column("peer", Text),
)

#: One row: the id of the state folder that all servers of this database share.
state_folders = Table("state_folders", METADATA, Column("id", Text, primary_key=True))


#: Places of tenants with credentials. `place` is a bucket or a prefix that ends in `/`; `sealed` is the secret.
connections = Table(
    "connections",
    METADATA,
    Column("tenant", Text, ForeignKey("tenants.name"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("place", Text, nullable=False),
    Column("endpoint", Text),
    Column("region", Text),
    Column("sealed", Text, nullable=False),
    Column("created_unix_ms", BigInteger, nullable=False),
    Column("replaced_unix_ms", BigInteger, nullable=False),
    Column("written_unix_ms", BigInteger),
)

#: People that an OIDC issuer has identified. `id` is a digest of issuer and subject. A blocked one is refused.
members = Table(
    "members",
    METADATA,
    Column("tenant", Text, ForeignKey("tenants.name"), primary_key=True),
    Column("id", Text, primary_key=True),
    Column("issuer", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("first_unix_ms", BigInteger, nullable=False),
    Column("last_unix_ms", BigInteger, nullable=False),
    Column("blocked_unix_ms", BigInteger),
)

#: Receivers of events. `sealed` is the ciphertext of the signing key; `dropped` counts events that found a full queue.
webhooks = Table(
    "webhooks",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("url", Text, nullable=False),
    Column("states", Text, nullable=False),
    Column("sealed", Text, nullable=False),
    Column("dropped", Integer, nullable=False),
    Column("created_unix_ms", BigInteger, nullable=False),
    Index("webhooks_of_tenant", "tenant", "id"),
)

#: Events for webhooks. `state` is `pending`, `delivered` or `failed`; `next_unix_ms` is when a pending one is tried.
deliveries = Table(
    "deliveries",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("webhook", Text, ForeignKey("webhooks.id"), nullable=False),
    Column("body", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_unix_ms", BigInteger, nullable=False),
    Column("error", Text),
    Column("created_unix_ms", BigInteger, nullable=False),
    Index("deliveries_of_webhook", "webhook", "id"),
    Index("deliveries_due", "state", "next_unix_ms"),
    Index("deliveries_of_tenant", "tenant", "state"),
)
