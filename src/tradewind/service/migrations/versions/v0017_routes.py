"""Add the routes of jobs and quotes that were planned, by whose links the scheduler counts them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Add a column to jobs and to quotes. Jobs that run keep the links that they were started with."""
    for table in ("jobs", "quotes"):
        op.add_column(table, sa.Column("routes", sa.Text))
