"""Add the links that the scheduler tunes, and the decisions on them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add two tables."""
    op.create_table(
        "tuned_links",
        sa.Column("link", sa.Text, primary_key=True),
        sa.Column("jobs_max", sa.Integer, nullable=False),
        sa.Column("read_requests", sa.Integer, nullable=False),
        sa.Column("write_requests", sa.Integer, nullable=False),
        sa.Column("goodput_gbps", sa.Float, nullable=False),
        sa.Column("success", sa.Float, nullable=False),
        sa.Column("updated_unix_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("tuned_links_by_time", "tuned_links", ["updated_unix_ms"])
    op.create_table(
        "link_decisions",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("link", sa.Text, nullable=False),
        sa.Column("at_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("job", sa.Text),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("before", sa.Integer, nullable=False),
        sa.Column("now", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
    )
    op.create_index("link_decisions_of_link", "link_decisions", ["link", "number"])
