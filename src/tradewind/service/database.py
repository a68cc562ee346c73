"""The service's database: one SQLite file for one server, or PostgreSQL for several.

`write` excludes all other transactions of `write`, of every server: `BEGIN IMMEDIATE` on SQLite, an advisory lock on
PostgreSQL. A transaction of `write_rows` excludes others only from the rows that it changes, on PostgreSQL.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    create_engine,
    event,
    func,
    insert,
    literal_column,
    select,
    text,
)
from sqlalchemy import Engine as Pool
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as NoConnection

from tradewind.errors import StateError, UsageError
from tradewind.service.clock import DatabaseClock
from tradewind.service.postgres import postgres_engine, shown_url
from tradewind.service.tables import audit

__all__ = ["ServiceDatabase", "database_clock_ms", "database_unix_ms", "record_change"]

DATABASE_FILE = "service.sqlite"
#: Maximum wait for another thread's write.
BUSY_S = 15.0
#: Connections kept open: one for each of the 40 threads that answer requests, and some for the service's own threads.
#: Opening one costs as much as several queries. Further ones are for the threads of running jobs.
CONNECTIONS = 48
CONNECTIONS_MORE = 64
#: Advisory lock of `write` on PostgreSQL.
WRITE_LOCK = 0x7472_6164
#: The database's clock as Unix time [ms]. The service writes and compares times by it alone: servers' clocks differ.
POSTGRES_CLOCK_MS = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
SQLITE_CLOCK_MS = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


def database_unix_ms(connection: Connection) -> int:
    """Return the Unix time of the database [ms]."""
    return int(connection.execute(select(database_clock_ms(connection))).scalar_one())


def database_clock_ms(connection: Connection) -> ColumnElement[int]:
    """Return the expression for the database's clock, Unix time [ms]."""
    return _clock_ms(is_shared=connection.dialect.name == "postgresql")


def _clock_ms(*, is_shared: bool) -> ColumnElement[int]:
    return literal_column(POSTGRES_CLOCK_MS if is_shared else SQLITE_CLOCK_MS, BigInteger)


class ServiceDatabase:
    """Connections to the database of one state folder, or to PostgreSQL. Any thread may use it.

    `name` is the path or the URL, for messages.
    """

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.is_shared = url is not None
        self.name = str(folder / DATABASE_FILE) if url is None else shown_url(url)
        #: Tells the time of the database without asking it. Leases and the scheduler read it.
        self.clock = DatabaseClock()
        self._engine = _sqlite_engine(folder / DATABASE_FILE) if url is None else postgres_engine(url)

    @property
    def clock_ms(self) -> ColumnElement[int]:
        """Expression for the database's clock, Unix time [ms]."""
        return _clock_ms(is_shared=self.is_shared)

    def now_unix_ms(self) -> int:
        """Return the Unix time of the database [ms], outside any transaction. Raises StateError."""
        with self.read() as connection:
            return database_unix_ms(connection)

    def read_clock(self, connection: Connection) -> int:
        """Return the Unix time of the database [ms], and set `clock` by it."""
        return self.clock.read(lambda: database_unix_ms(connection))

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that reads. Raises StateError."""
        with _explained(self.name), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that writes; only one at a time can, of all servers. Raises StateError."""
        with self.write_rows() as connection:
            if self.is_shared:
                connection.execute(select(func.pg_advisory_xact_lock(WRITE_LOCK)))
            yield connection

    @contextmanager
    def write_rows(self) -> Iterator[Connection]:
        """Open a transaction that changes rows which it locks itself. Raises StateError."""
        with _explained(self.name), self._engine.connect() as connection:
            writing = connection.execution_options(tradewind_write=True)
            with writing.begin():
                yield writing

    def migrate(self) -> bool:
        """Bring the database to this version; return whether anything changed. Raises StateError."""
        from alembic import command
        from alembic.util import CommandError

        config = _alembic()
        with self.write() as connection:
            before = _version(connection)
            if before == _head():
                return False
            if self.is_shared:
                connection.execute(text("SET LOCAL statement_timeout = 0"))  # An index of a large table takes minutes.
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except CommandError as error:
                raise StateError(
                    f"{self.name}: version {before} is not known", hint="use the version of tradewind that wrote it"
                ) from error
        return True

    def version(self) -> str | None:
        """Return the version of the database; None if it is empty."""
        with self.read() as connection:
            return _version(connection)

    def require_current(self) -> None:
        """Raise StateError if the database is of another version. The tables of an empty SQLite file are made."""
        version, head = self.version(), _head()
        if version is None and not self.is_shared:
            self.migrate()
        elif version is None:
            raise StateError(
                f"{self.name} is empty", hint="`tradewind serve --database URL --migrate` creates its tables"
            )
        elif version != head:
            raise StateError(
                f"{self.name} has version {version}, not {head}",
                hint="`tradewind serve --migrate` updates an older one",
            )

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def record_change(
    connection: Connection, tenant: str, token: str, action: str, target: str, detail: Mapping[str, Any] | None = None
) -> None:
    """Append a change to the audit log, in the transaction that makes it."""
    connection.execute(
        insert(audit).values(
            at_unix_ms=database_clock_ms(connection),
            tenant=tenant,
            token=token,
            action=action,
            target=target,
            detail=json.dumps(dict(detail or {})),
        )
    )


def _alembic() -> Any:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _head() -> str | None:
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(_alembic()).get_current_head()


def _version(connection: Connection) -> str | None:
    from alembic.migration import MigrationContext

    return MigrationContext.configure(connection).get_current_revision()


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise
    except NoConnection as error:
        raise StateError(f"{name}: all connections are in use", hint="try again later") from error
    except DBAPIError as error:
        reason = str(error.orig).strip().partition("\n")[0]
        raise StateError(
            f"{name}: {reason}", hint="check that it is running, not damaged, and that its disk is not full"
        ) from error


def _sqlite_engine(path: Path) -> Pool:
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    engine = create_engine(
        f"sqlite:///{path}",
        connect_args={"timeout": BUSY_S, "isolation_level": None},
        pool_size=CONNECTIONS,
        max_overflow=CONNECTIONS_MORE,
    )
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    return engine


def _set_up(connection: Any, record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin(connection: Connection) -> None:
    is_write = connection.get_execution_options().get("tradewind_write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")


def check_address(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`; an IPv6 host has brackets. Raises UsageError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise UsageError(f"--listen {text}: not HOST:PORT", hint="for example 127.0.0.1:8080")
    return host.strip("[]"), int(port)
