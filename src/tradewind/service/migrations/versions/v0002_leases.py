"""Add the leases of jobs, the replicas that hold them, and the state folder that they share."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add columns to jobs, and two tables. Jobs that are active have no owner: a server adopts them."""
    op.add_column("jobs", sa.Column("owner", sa.Text))
    op.add_column("jobs", sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("lease_unix_ms", sa.BigInteger, nullable=False, server_default="0"))
    op.create_index("jobs_of_owner", "jobs", ["owner"])
    op.create_table(
        "replicas",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("jobs_max", sa.Integer, nullable=False),
        sa.Column("lease_unix_ms", sa.BigInteger, nullable=False),
    )
    op.create_table("state_folders", sa.Column("id", sa.Text, primary_key=True))
