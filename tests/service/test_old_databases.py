"""Databases of each earlier version, with rows in every table, become the present one and keep their rows."""

from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import insert, text
from sqlalchemy.exc import DBAPIError

from testbed.postgres import Postgres
from tests.service.old_databases import ROWS, VERSIONS, contents, filled, old_database, reflected
from tradewind.errors import StateError
from tradewind.service import auction_tables, link_tables, money_tables, scheduling_tables
from tradewind.service.database import ServiceDatabase
from tradewind.service.postgres import SESSION
from tradewind.service.tables import METADATA

#: Tables that a migration to this version makes anew: stores that are down are found again.
MADE_ANEW = {"down_stores": "0014"}
#: All tables are registered once these have been imported.
assert auction_tables and link_tables and money_tables and scheduling_tables


@pytest.mark.parametrize(
    "version",
    [pytest.param(one, marks=() if one in (*VERSIONS[::4], VERSIONS[-1]) else pytest.mark.slow) for one in VERSIONS],
)
def test_old_rows_are_kept(tmp_path: Path, url: str | None, version: str) -> None:
    database = old_database(tmp_path, url, version)
    with database.write() as connection:
        filled(connection)
        before = contents(connection)
    assert all(len(rows) == ROWS for rows in before.values())
    assert database.migrate() == (version != VERSIONS[-1])
    with database.read() as connection:
        after = contents(connection)
    for name, rows in before.items():
        if name in MADE_ANEW and version < MADE_ANEW[name]:
            assert after[name] == []
            continue
        columns = rows[0].keys()
        assert [{column: row[column] for column in columns} for row in after[name]] == rows, name
    database.close()


def migrated(folder: Path, url: str | None) -> ServiceDatabase:
    """Return a database of the first version, with rows in every table, after its migration."""
    database = old_database(folder, url, VERSIONS[0])
    with database.write() as connection:
        filled(connection)
    database.migrate()
    return database


def test_tables_are_those_of_the_code(tmp_path: Path, url: str | None) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    database = migrated(tmp_path, url)
    with database.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    database.close()


def test_old_tables_take_new_rows(tmp_path: Path, url: str | None) -> None:
    database = migrated(tmp_path, url)
    with database.write() as connection:
        tables = reflected(connection)
        for name in ("audit", "charges", "link_decisions"):
            row = new_row(tables[name])
            numbers = [connection.execute(insert(tables[name]).values(row)).inserted_primary_key for _ in range(2)]
            assert len(set(numbers)) == 2, name
    for change in ("UPDATE audit SET action = 'x'", "DELETE FROM audit"):
        with pytest.raises((DBAPIError, StateError)), database.write() as connection:
            connection.execute(text(change))
    database.close()


def test_a_long_migration_is_not_cut_off(tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", postgres.environment["PGPASSWORD"])
    old_database(tmp_path, postgres.url, VERSIONS[-3]).close()
    slow = "CREATE FUNCTION slow() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.5); END $$"
    with psycopg.connect(postgres.url) as connection:
        connection.execute(slow)
        connection.execute("CREATE EVENT TRIGGER slow ON ddl_command_start EXECUTE FUNCTION slow()")
    monkeypatch.setitem(SESSION, "statement_timeout", "400ms")
    database = ServiceDatabase(tmp_path, postgres.url)
    try:
        assert database.migrate()
    finally:
        database.close()
        with psycopg.connect(postgres.url) as connection:
            connection.execute("DROP EVENT TRIGGER slow")


def new_row(table: Any) -> dict[str, Any]:
    values = {"tenant": "tenants-name-0", "job": "jobs-id-0", "bid": None}
    return {
        column.name: values.get(column.name, 1 if column.type.python_type is int else "x")
        for column in table.columns
        if column.name != "number"
    }
