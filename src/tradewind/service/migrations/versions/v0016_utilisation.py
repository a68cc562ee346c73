"""Add the utilisation of links and of the servers, and that at which quotes and jobs are priced."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Add a table, and a column to quotes and to accounts. Earlier ones are priced as on idle links."""
    op.create_table(
        "utilisations",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("share", sa.Float, nullable=False),
        sa.Column("at_unix_ms", sa.BigInteger, nullable=False),
    )
    for table in ("quotes", "accounts"):
        op.add_column(table, sa.Column("utilisations", sa.Text, nullable=False, server_default="[]"))
