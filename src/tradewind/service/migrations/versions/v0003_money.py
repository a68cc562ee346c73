"""Add quotes, budgets, tariffs, accounts and charges."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the tables of money. Jobs of earlier versions have no account and are not charged."""
    op.create_table(
        "tariffs",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("set_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "budgets",
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), primary_key=True),
        sa.Column("period", sa.Text, nullable=False),
        sa.Column("limit_usd_micros", sa.BigInteger, nullable=False),
        sa.Column("updated_unix_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "quotes",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("owned", sa.Text, nullable=False),
        sa.Column("links", sa.Text, nullable=False),
        sa.Column("proposal", sa.Text, nullable=False),
        sa.Column("view", sa.Text, nullable=False),
        sa.Column("usd_micros", sa.BigInteger, nullable=False),
        sa.Column("made_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("job", sa.Text),
    )
    op.create_index("quotes_of_tenant", "quotes", ["tenant", "expires_unix_ms"])
    op.create_table(
        "accounts",
        sa.Column("job", sa.Text, sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), nullable=False),
        sa.Column("quote", sa.Text),
        sa.Column("quote_usd_micros", sa.BigInteger),
        sa.Column("links", sa.Text, nullable=False),
        sa.Column("opened_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("reserved_usd_micros", sa.BigInteger, nullable=False),
        sa.Column("is_open", sa.Integer, nullable=False),
    )
    op.create_index("open_accounts", "accounts", ["tenant", "is_open"])
    op.create_table(
        "charges",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), nullable=False),
        sa.Column("job", sa.Text, sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("at_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("usd_micros", sa.BigInteger, nullable=False),
        sa.Column("volume_bytes", sa.BigInteger, nullable=False),
        sa.Column("run_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("charges_of_tenant", "charges", ["tenant", "at_unix_ms"])
    op.create_index("charges_of_job", "charges", ["job"])
