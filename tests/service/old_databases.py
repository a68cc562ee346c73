"""Databases of earlier versions for tests, with rows in every table, on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Connection, Float, Integer, MetaData, Table, insert, select, text
from sqlalchemy.exc import IntegrityError

from tradewind.service.database import ServiceDatabase, _alembic

__all__ = ["ROWS", "VERSIONS", "contents", "filled", "old_database", "reflected"]

#: Rows that `filled` writes into each table.
ROWS = 2
#: Columns that the service reads as JSON, with a value that every version may have written.
DOCUMENTS: Mapping[str, Any] = {
    "scopes": ["jobs:read"],
    "request": {"verb": "cp", "source": "/a", "destination": ["/b"]},
    "owned": ["/b"],
    "links": [["site:local", "site:local"]],
    "document": [],
    "view": {},
    "states": ["done"],
    "failures": {},
    "queued": [],
    "utilisations": [0.5],
    "detail": {},
}


def _versions() -> list[str]:
    from alembic.script import ScriptDirectory

    return sorted(one.revision for one in ScriptDirectory.from_config(_alembic()).walk_revisions())


VERSIONS = _versions()


def old_database(folder: Path, url: str | None, version: str) -> ServiceDatabase:
    """Return an empty database of a version; what the one at `url` has is deleted."""
    from alembic import command

    database, config = ServiceDatabase(folder, url), _alembic()
    with database.write() as connection:
        if url is not None:
            connection.execute(text("DROP SCHEMA public CASCADE"))
            connection.execute(text("CREATE SCHEMA public"))
        config.attributes["connection"] = connection
        command.upgrade(config, version)
    return database


def reflected(connection: Connection) -> dict[str, Table]:
    """Return the service's tables as the database has them, each after those that it refers to."""
    found = MetaData()
    found.reflect(connection)
    return {table.name: table for table in found.sorted_tables if table.name != "alembic_version"}


def filled(connection: Connection) -> None:
    """Write rows into every table, with a value in every column."""
    tables = reflected(connection)
    for table in tables.values():
        for number in range(ROWS):
            row = {column.name: _value(column, number) for column in table.columns if not _counts_itself(column)}
            try:
                connection.execute(insert(table).values(row))
            except IntegrityError as error:
                raise AssertionError(f"{table.name}: {row}") from error


def contents(connection: Connection, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
    """Return all rows of tables in a fixed order."""
    tables = reflected(connection)
    rows = {
        name: [dict(row) for row in connection.execute(select(tables[name])).mappings()] for name in names or tables
    }
    return {name: sorted(found, key=str) for name, found in rows.items()}


def _counts_itself(column: Column[Any]) -> bool:
    return column.name == "number" and column.primary_key and len(column.table.primary_key) == 1


def _value(column: Column[Any], number: int) -> object:
    for key in column.foreign_keys:
        return _value(key.column, number)
    if isinstance(column.type, Boolean):
        return True
    if isinstance(column.type, Float):
        return 0.25 + number
    if isinstance(column.type, BigInteger | Integer):
        # Larger than 32 bits wherever the column takes it.
        return (1 << 40) + number if isinstance(column.type, BigInteger) else 1 + number
    if column.name in DOCUMENTS:
        return json.dumps(DOCUMENTS[column.name])
    return f"{column.table.name}-{column.name}-{number}"
