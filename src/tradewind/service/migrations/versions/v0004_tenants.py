"""Make the tables of members and webhooks, and give existing tokens the new scopes of their roles."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

#: Scopes of each role before this version, and those that it gets. Tokens that are limited to fewer stay as they are.
_VIEWER = {"jobs:read"}
_OPERATOR = _VIEWER | {"jobs:write"}
_TENANT_ADMIN = _OPERATOR | {"tokens", "audit:read"}
_BEFORE = {
    "viewer": _VIEWER,
    "operator": _OPERATOR,
    "tenant_admin": _TENANT_ADMIN,
    "service_admin": _TENANT_ADMIN | {"tenants", "metrics:read"},
}
_ADMIN_ADDED = {"webhooks", "members"}
_ADDED = {"tenant_admin": _ADMIN_ADDED, "service_admin": _ADMIN_ADDED}


def upgrade() -> None:
    """Make the tables, and protect the audit log from entries that replace others."""
    op.create_table(
        "members",
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("issuer", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("first_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("last_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("blocked_unix_ms", sa.BigInteger),
    )
    _make_webhooks()
    _extend_tokens()
    if op.get_bind().dialect.name == "sqlite":
        # INSERT OR REPLACE does not run the trigger of deletions.
        op.execute(
            "CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit"
            " WHEN EXISTS (SELECT 1 FROM audit WHERE number = NEW.number)"
            " BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
        )


def _make_webhooks() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("states", sa.Text, nullable=False),
        sa.Column("sealed", sa.Text, nullable=False),
        sa.Column("dropped", sa.Integer, nullable=False),
        sa.Column("created_unix_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("webhooks_of_tenant", "webhooks", ["tenant", "id"])
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), nullable=False),
        sa.Column("webhook", sa.Text, sa.ForeignKey("webhooks.id"), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("created_unix_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("deliveries_of_webhook", "deliveries", ["webhook", "id"])
    op.create_index("deliveries_due", "deliveries", ["state", "next_unix_ms"])
    op.create_index("deliveries_of_tenant", "deliveries", ["tenant", "state"])


def _extend_tokens() -> None:
    tokens = sa.table("tokens", sa.column("id"), sa.column("role"), sa.column("scopes"))
    connection = op.get_bind()
    for row in connection.execute(sa.select(tokens)).all():
        scopes = set(json.loads(row.scopes))
        if row.role in _ADDED and scopes == _BEFORE[row.role]:
            text = json.dumps(sorted(scopes | _ADDED[row.role]))
            connection.execute(sa.update(tokens).where(tokens.c.id == row.id).values(scopes=text))
