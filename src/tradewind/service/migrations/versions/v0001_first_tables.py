"""Make the tables of the first version."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
#: Ids are compared byte by byte, whatever the language of the database, so that they stay in the order of their times.
ID = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make tenants, tokens, jobs, their events, and the audit log."""
    op.create_table(
        "tenants",
        sa.Column("name", ID, primary_key=True),
        sa.Column("created_unix_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tokens",
        sa.Column("id", ID, primary_key=True),
        sa.Column("tenant", ID, sa.ForeignKey("tenants.name"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False, unique=True),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("created_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_unix_ms", sa.BigInteger),
        sa.Column("revoked_unix_ms", sa.BigInteger),
    )
    op.create_index("tokens_of_tenant", "tokens", ["tenant", "id"])
    _make_jobs()
    _make_audit()


def _make_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", ID, primary_key=True),
        sa.Column("tenant", ID, sa.ForeignKey("tenants.name"), nullable=False),
        sa.Column("idempotency_key", sa.Text, nullable=False),
        sa.Column("request_digest", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("owned", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("waiting", sa.Text),
        sa.Column("not_before_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("proposal", sa.Text),
        sa.Column("engine_job", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("hint", sa.Text),
        sa.Column("receipt", sa.Text),
        sa.Column("created_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("updated_unix_ms", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("tenant", "idempotency_key", name="job_of_key"),
    )
    op.create_index("jobs_of_tenant", "jobs", ["tenant", "id"])
    op.create_index("jobs_by_state", "jobs", ["state", "id"])
    op.create_table(
        "job_events",
        sa.Column("job", ID, sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("at_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
    )


def _make_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at_unix_ms", sa.BigInteger, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("token", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_index("audit_of_tenant", "audit", ["tenant", "number"])
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$"
        )
        op.execute(
            "CREATE TRIGGER audit_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON audit"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change()"
        )
        return
    for change in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER audit_no_{change.lower()} BEFORE {change} ON audit"
            " BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
        )
