"""Add refunds of what was withheld from winners of auctions, and when a connection has last written.

Auctions that are over get no refund.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add columns to bids and connections, and an index of the bids whose hour is counted."""
    with op.batch_alter_table("bids") as bids:
        bids.add_column(sa.Column("counted_unix_ms", sa.BigInteger))
        bids.add_column(sa.Column("withheld_slice_ms", sa.BigInteger, nullable=False, server_default="0"))
        bids.add_column(sa.Column("refunded_usd_micros", sa.BigInteger, nullable=False, server_default="0"))
    op.create_index("bids_counted", "bids", ["counted_unix_ms"])
    with op.batch_alter_table("connections") as connections:
        connections.add_column(sa.Column("written_unix_ms", sa.BigInteger))
