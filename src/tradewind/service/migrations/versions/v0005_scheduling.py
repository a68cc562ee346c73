"""Add the scheduler's lease, limits, weights, bans, stores that are down, schedules, and what it knows about jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add columns to jobs, and six tables. Jobs that are active keep running; they have no grant."""
    for name in ("size_bytes", "price_usd_micros", "earliest_unix_ms", "latest_unix_ms"):
        op.add_column("jobs", sa.Column(name, sa.BigInteger))
    op.add_column("jobs", sa.Column("failures", sa.Text, nullable=False, server_default="{}"))
    op.add_column("jobs", sa.Column("moved_bytes", sa.BigInteger, nullable=False, server_default="0"))
    for name in ("failure", "granted", "schedule"):
        op.add_column("jobs", sa.Column(name, sa.Text))
    op.create_index("jobs_of_schedule", "jobs", ["schedule"])
    op.create_table(
        "schedulers",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("lease_unix_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "resource_limits",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("active", sa.Integer),
        sa.Column("rate_gbps", sa.Float),
        sa.Column("usd_per_day", sa.Float),
    )
    op.create_table(
        "weights",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("activity", sa.Text, primary_key=True),
        sa.Column("weight", sa.Float, nullable=False),
    )
    op.create_table(
        "bans",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("start_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("end_unix_ms", sa.BigInteger),
        sa.Column("stops_jobs", sa.Integer, nullable=False),
        sa.Column("refuses_jobs", sa.Integer, nullable=False),
        sa.Column("is_maintenance", sa.Integer, nullable=False),
    )
    op.create_table(
        "down_stores",
        sa.Column("store", sa.Text, primary_key=True),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("since_unix_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "schedules",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("token", "request", "owned", "links")),
        sa.Column("cron", sa.Text, nullable=False),
        sa.Column("time_zone", sa.Text, nullable=False),
        sa.Column("end_unix_ms", sa.BigInteger),
        sa.Column("count", sa.Integer),
        sa.Column("overlap", sa.Text, nullable=False),
        sa.Column("created_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("last_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("next_unix_ms", sa.BigInteger),
        sa.Column("submitted", sa.Integer, nullable=False),
        sa.Column("queued", sa.Text, nullable=False),
        sa.Column("skipped", sa.Text),
    )
    op.create_index("schedules_of_tenant", "schedules", ["tenant", "id"])
    op.create_index("schedules_by_time", "schedules", ["next_unix_ms"])
