"""Make the table of connections, and give existing tokens of admins the scope for it."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

#: Scopes of each admin before this version. Tokens that are limited to fewer stay as they are.
_TENANT_ADMIN = {"jobs:read", "jobs:write", "webhooks", "tokens", "members", "audit:read"}
_BEFORE = {"tenant_admin": _TENANT_ADMIN, "service_admin": _TENANT_ADMIN | {"tenants", "metrics:read"}}


def upgrade() -> None:
    """Add a table, and a scope to tokens with all scopes of their roles."""
    op.create_table(
        "connections",
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("place", sa.Text, nullable=False),
        sa.Column("endpoint", sa.Text),
        sa.Column("region", sa.Text),
        sa.Column("sealed", sa.Text, nullable=False),
        sa.Column("created_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("replaced_unix_ms", sa.BigInteger, nullable=False),
    )
    tokens = sa.table("tokens", sa.column("id"), sa.column("role"), sa.column("scopes"))
    connection = op.get_bind()
    for row in connection.execute(sa.select(tokens)).all():
        scopes = set(json.loads(row.scopes))
        if scopes == _BEFORE.get(row.role):
            text = json.dumps(sorted(scopes | {"connections"}))
            connection.execute(sa.update(tokens).where(tokens.c.id == row.id).values(scopes=text))
