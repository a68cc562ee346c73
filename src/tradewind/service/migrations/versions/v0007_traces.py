"""Add the trace of each job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the context of the request that submitted a job. Earlier jobs have no trace."""
    op.add_column("jobs", sa.Column("traceparent", sa.Text))
