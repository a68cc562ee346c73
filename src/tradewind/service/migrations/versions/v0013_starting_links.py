"""Add whether something has shown yet that a link is full."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add a column. Links that are known have grown already."""
    op.add_column("tuned_links", sa.Column("is_starting", sa.Boolean, nullable=False, server_default=sa.false()))
