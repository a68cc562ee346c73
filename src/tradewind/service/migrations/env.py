"""Alembic's entry: run the migrations on the connection that `database.migrate` gives it."""

from __future__ import annotations

from alembic import context

from tradewind.service.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
