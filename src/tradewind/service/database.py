"""The service's database: one SQLite file, for one server at a time."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, event, insert
from sqlalchemy.exc import DBAPIError

from tradewind.errors import StateError, UsageError
from tradewind.service.tables import audit

__all__ = ["ServiceDatabase", "now_unix_ms"]

DATABASE_FILE = "service.sqlite"
#: Maximum wait for another thread's write.
BUSY_S = 15.0
#: Connections kept open, and further ones while many requests are answered.
CONNECTIONS = 8
CONNECTIONS_MORE = 64


def now_unix_ms() -> int:
    """Return the Unix time [ms]."""
    return time.time_ns() // 1_000_000


class ServiceDatabase:
    """Connections to the database of one state folder. Any thread may use it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / DATABASE_FILE
        if not self.path.exists():
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        self._engine = create_engine(
            f"sqlite:///{self.path}",
            connect_args={"timeout": BUSY_S, "isolation_level": None},
            pool_size=CONNECTIONS,
            max_overflow=CONNECTIONS_MORE,
        )
        event.listen(self._engine, "connect", _set_up)
        event.listen(self._engine, "begin", _begin)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that reads. Raises StateError."""
        with _explained(self.path), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that writes; only one at a time can. Raises StateError."""
        with _explained(self.path), self._engine.connect() as connection:
            writing = connection.execution_options(tradewind_write=True)
            with writing.begin():
                yield writing

    def migrate(self) -> bool:
        """Bring the database to this version; return whether anything changed. Raises StateError."""
        from alembic import command
        from alembic.script import ScriptDirectory
        from alembic.util import CommandError

        config = _alembic()
        head = ScriptDirectory.from_config(config).get_current_head()
        before = self.version()
        if before == head:
            return False
        try:
            with self.write() as connection:
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        except CommandError as error:
            raise StateError(
                f"{self.path}: version {before} is not known", hint="use the version of tradewind that wrote it"
            ) from error
        return True

    def version(self) -> str | None:
        """Return the version of the database; None if it is empty."""
        from alembic.migration import MigrationContext

        with self.read() as connection:
            return MigrationContext.configure(connection).get_current_revision()

    def require_current(self) -> None:
        """Make the tables of an empty database. Raises StateError if it is of another version."""
        from alembic.script import ScriptDirectory

        version, head = self.version(), ScriptDirectory.from_config(_alembic()).get_current_head()
        if version is None:
            self.migrate()
        elif version != head:
            raise StateError(
                f"{self.path} has version {version}, not {head}",
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
            at_unix_ms=now_unix_ms(),
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


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        if error.orig is None or "UNIQUE" in str(error.orig):
            raise
        raise StateError(f"{path}: {error.orig}", hint="is the disk full, or the file damaged?") from error


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
