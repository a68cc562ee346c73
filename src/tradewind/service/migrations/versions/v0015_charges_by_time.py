"""Add an index of charges by time: the costs of a day are counted by it."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add an index."""
    op.create_index("charges_by_time", "charges", ["at_unix_ms"])
