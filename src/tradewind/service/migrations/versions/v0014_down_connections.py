"""Add the tenant to stores that do not answer, and how its connection reaches them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Make the table anew. Its rows are found again by the next run that fails."""
    op.drop_table("down_stores")
    op.create_table(
        "down_stores",
        sa.Column("store", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("endpoint", sa.Text),
        sa.Column("region", sa.Text),
        sa.Column("since_unix_ms", sa.BigInteger, nullable=False),
    )
