"""Add the events of schedules, each of which submits a job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add a table."""
    op.create_table(
        "schedule_events",
        sa.Column("schedule", sa.Text, sa.ForeignKey("schedules.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("at_unix_ms", sa.BigInteger, primary_key=True),
        sa.Column("idempotency_key", sa.Text, nullable=False),
        sa.Column("is_open", sa.Integer, nullable=False),
        sa.UniqueConstraint("schedule", "idempotency_key", name="event_of_key"),
    )
    op.create_index("schedule_events_open", "schedule_events", ["is_open", "schedule"])
