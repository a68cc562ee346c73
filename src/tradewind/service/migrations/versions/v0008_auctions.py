"""Add bids, auctions, and charges of bids."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add two tables. A charge is of a job or of a bid."""
    op.create_table(
        "bids",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), nullable=False),
        sa.Column("link", sa.Text, nullable=False),
        sa.Column("hour", sa.BigInteger, nullable=False),
        sa.Column("slices", sa.Integer, nullable=False),
        sa.Column("usd_micros", sa.BigInteger, nullable=False),
        sa.Column("placed_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reserved_usd_micros", sa.BigInteger, nullable=False),
        sa.Column("won_slices", sa.Integer, nullable=False),
        sa.Column("charged_usd_micros", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("tenant", "link", "hour", name="bid_of_tenant"),
    )
    op.create_index("bids_by_hour", "bids", ["state", "hour"])
    op.create_table(
        "auctions",
        sa.Column("link", sa.Text, primary_key=True),
        sa.Column("hour", sa.BigInteger, primary_key=True),
        sa.Column("slices", sa.Integer, nullable=False),
        sa.Column("usd_micros", sa.BigInteger),
        sa.Column("cleared_unix_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("auctions_by_hour", "auctions", ["hour", "link"])
    with op.batch_alter_table("charges") as charges:
        charges.alter_column("job", existing_type=sa.Text, nullable=True)
        charges.add_column(sa.Column("bid", sa.Text))
