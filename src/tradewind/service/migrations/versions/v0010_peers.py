"""Add where a replica accepts requests of guests that have reached another one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add a column to replicas."""
    op.add_column("replicas", sa.Column("peer", sa.Text))
