"""The users of a state folder: one server on SQLite, or the servers of one PostgreSQL database.

The journals of the jobs are in the folder. A server that adopts a job must find them, so all servers of a database must
share one folder. The folder and the database keep the same random id, which is compared at each start.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import insert, select

from tradewind.errors import UsageError
from tradewind.model.locks import FileLock, is_locked
from tradewind.service.database import ServiceDatabase
from tradewind.service.settings import LOCK_FILE
from tradewind.service.tables import state_folders

__all__ = ["alone", "require_shared_folder"]

#: Id of a folder that the servers of a PostgreSQL database share.
ID_FILE = "service.id"


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """Hold the lock of a server on SQLite. Raises UsageError if another server uses the folder."""
    if (state / ID_FILE).exists():
        raise UsageError(
            f"{state} belongs to the servers of a PostgreSQL database", hint="add --database, or use another folder"
        )
    lock = FileLock.take(state / LOCK_FILE)
    if lock is None:
        raise UsageError(
            f"another server uses {state}",
            hint="on SQLite there is one server per state folder; stop the other one, or use another folder",
        )
    try:
        yield
    finally:
        lock.release()


def require_shared_folder(database: ServiceDatabase, state: Path) -> None:
    """Check that the folder is the one that all servers of the database share; the first one makes both ids.

    Raises UsageError, StateError.
    """
    if is_locked(state / LOCK_FILE):
        raise UsageError(f"a server on SQLite uses {state}", hint="use another state folder")
    path = state / ID_FILE
    with database.write() as connection:
        known = connection.execute(select(state_folders.c.id)).scalar()
        if known is None:
            known = _id_of(path) or _made(path)
            connection.execute(insert(state_folders).values(id=known))
    if _id_of(path) != known:
        raise UsageError(
            f"{state} is not the state folder of {database.name}",
            hint="all servers of a database need the same folder, on one host or a network file system",
        )


def _id_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None


def _made(path: Path) -> str:
    """Write a new id at once as a whole, and return it; or the one that another server has just written."""
    text, partial = secrets.token_hex(16), path.with_suffix(f".{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    with suppress(FileExistsError):
        os.link(partial, path)
    partial.unlink()
    return _id_of(path) or text
