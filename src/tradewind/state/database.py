"""The database of one state folder, shared by any number of processes and threads.

One process writes at a time: a transaction begins with `BEGIN IMMEDIATE`, is short, and waits up to BUSY_S for another.
A committed transaction survives a kill; a durable one also survives a power loss. The first write creates the database
in a folder without one; a read never does.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import stat
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote

from tradewind.errors import StateError
from tradewind.model.files import require_own, state_folder
from tradewind.state.filesystem import keeps_shared_memory
from tradewind.state.schema import MIGRATIONS, VERSION

__all__ = ["BUSY_S", "DATABASE_FILE", "MIGRATE_S", "TROUBLE", "Database", "open_database"]

T = TypeVar("T")

#: Name in the state folder; SQLite adds files whose names begin with this one.
DATABASE_FILE = "state.sqlite"
#: Timeout of a transaction that waits for another process's. Transactions take milliseconds unless a process is stopped
#: (SIGSTOP) in one, or the disk hangs.
BUSY_S = 30.0
#: Timeout at the start while another process imports older files: 1 ms for each job.
MIGRATE_S = 300.0
#: SQLite's own timeout; between two of them Python can handle Ctrl-C.
STEP_S = 0.1
#: Pause between two tries if SQLite refused without waiting.
PAUSE_S = 0.005
#: Maximum wait at the exit for a thread that uses the connection.
CLOSE_S = 0.5
#: A log that is not longer stays at the exit. To move it into the database and make the next one takes six flushes of
#: the disk. The next process reads the log first, so a long one costs more than it saves.
KEPT_LOG_BYTES_MAX = 512 << 10

#: Where the user reads how to recover a damaged database.
TROUBLE = "docs/guides/troubleshooting.md#the-state-database"


class Database:
    """The database of a state folder; use `open_database`, which returns one for each folder. Any thread may use it."""

    def __init__(self, state_dir: str) -> None:
        self.state_dir = state_dir
        self.path = os.path.join(state_dir, DATABASE_FILE)
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        #: Process and file of the connection: it is not used after a fork, or if another file replaced this one.
        self._of: tuple[int, int, int] | None = None
        self._writable = False
        self._durable = True

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None and self._of is not None and self._of[0] == os.getpid():
            with suppress(sqlite3.Error):
                connection.close()

    @contextmanager
    def transaction(self, *, durable: bool = True, busy_s: float = BUSY_S) -> Iterator[sqlite3.Connection]:
        """Give this thread the only write access within the block; commit at its end, roll back on an exception.

        `durable` returns when the data is on disk. Raises StateError, ConfigError for another user's folder, OSError.
        """
        with self._lock, self._explained():
            connection = self._opened(to_write=True)
            if durable != self._durable:
                connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                self._durable = durable
            with _alone(connection, busy_s):
                yield connection

    def write(self, statement: str, values: Sequence[Any] = (), *, durable: bool = True) -> int:
        """Run one statement as a transaction, and return how many rows it changed. Raises as `transaction` does."""
        with self.transaction(durable=durable) as connection:
            return connection.execute(statement, values).rowcount

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query; none if the folder has no database. Raises StateError, ConfigError."""
        with self._lock, self._explained():
            if not self._is_there():
                return []
            connection = self._opened(to_write=False)
            return _patiently(lambda: connection.execute(query, values).fetchall(), BUSY_S)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all `rows` of this thread within the block see one state. Raises as `rows` does."""
        with self._lock, self._explained():
            if not self._is_there():
                yield
                return
            connection = self._opened(to_write=False)
            if connection.in_transaction:  # Of this thread, in an outer block.
                yield
                return
            connection.execute("BEGIN")
            try:
                yield
            finally:
                connection.execute("ROLLBACK")

    def row(self, query: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Return the first row of a query, or None. Raises as `rows` does."""
        return next(iter(self.rows(query, values)), None)

    def journal_mode(self) -> str:
        """Return SQLite's journal mode: `wal`, or `delete` on a network file system."""
        return str(self.rows("PRAGMA journal_mode")[0][0]) if os.path.exists(self.path) else "none"

    def _is_there(self) -> bool:
        """Return whether the folder has a database, or files of an older version to import."""
        return any(os.path.lexists(os.path.join(self.state_dir, name)) for name in (DATABASE_FILE, "jobs", "fleets"))

    def _opened(self, *, to_write: bool) -> sqlite3.Connection:
        if self._connection is not None:
            if self._of == self._present() and (self._writable or not to_write):
                return self._connection
            self._leave()
        if to_write:
            state_folder(self.state_dir)
        self._writable = to_write or self._can_write()
        if self._writable:
            self._make_file()
        elif not os.path.lexists(self.path):
            self._refuse_migration()
        _require_regular(self.path)
        self._connection = self._connected()
        self._of = self._present()
        try:
            self._prepare(self._connection)
        except BaseException:
            self._leave()
            raise
        return self._connection

    def _leave(self) -> None:
        """Close the connection. One inherited by a fork stays open, closing it would release the parent's locks."""
        connection, of = self._connection, self._of
        self._connection, self._of, self._durable = None, None, True
        if connection is not None and of is not None and of[0] == os.getpid():
            connection.close()
        elif connection is not None:
            _inherited.append(connection)

    def close(self) -> None:
        """Close the connection, so that SQLite moves its log into the database. The next use opens another one."""
        if self._lock.acquire(timeout=CLOSE_S):
            try:
                self._leave()
            finally:
                self._lock.release()

    def may_keep_log(self) -> bool:
        """Return whether the process may end as if it were killed, because the log is short."""
        try:
            return os.path.getsize(f"{self.path}-wal") <= KEPT_LOG_BYTES_MAX
        except OSError:
            return False

    def _present(self) -> tuple[int, int, int]:
        try:
            found = os.stat(self.path)
        except OSError:
            return os.getpid(), 0, 0
        return os.getpid(), found.st_dev, found.st_ino

    def _can_write(self) -> bool:
        return os.access(self.state_dir, os.W_OK) and (not os.path.exists(self.path) or os.access(self.path, os.W_OK))

    def _make_file(self) -> None:
        """Make the file if it is missing, readable only by its owner."""
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def _connected(self) -> sqlite3.Connection:
        if self._writable:
            return sqlite3.connect(self.path, timeout=STEP_S, isolation_level=None, check_same_thread=False)
        # Without its log the database is a single file: SQLite need not create others in a read-only folder.
        still = "" if os.path.exists(f"{self.path}-wal") else "&immutable=1"
        uri = f"file:{quote(self.path)}?mode=ro{still}"
        return sqlite3.connect(uri, uri=True, timeout=STEP_S, isolation_level=None, check_same_thread=False)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = int(_patiently(lambda: connection.execute("PRAGMA user_version").fetchone(), MIGRATE_S)[0])
        if version > VERSION:
            self._refuse(version)
        if not self._writable:
            if version < VERSION:
                self._refuse_migration()
            return
        mode = "WAL" if keeps_shared_memory(self.state_dir) else "DELETE"
        _patiently(lambda: connection.execute(f"PRAGMA journal_mode={mode}").fetchone(), MIGRATE_S)
        if sys.platform == "darwin":
            connection.execute("PRAGMA fullfsync=1")  # There fsync alone leaves data in the disk's cache.
        if version < VERSION:
            self._migrate(connection)
        elif _patiently(lambda: connection.execute("SELECT 1 FROM imports LIMIT 1").fetchone(), BUSY_S) is not None:
            self._import_again(connection)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Bring the tables up to date in one transaction: another process sees the old version or the new one."""
        from tradewind.state.old_folders import import_all, set_aside

        imported: list[str] = []
        with _alone(connection, MIGRATE_S):
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if version > VERSION:
                self._refuse(version)
            for migration in MIGRATIONS[version:]:
                for statement in migration.split(";\n"):
                    connection.execute(statement)
            if version == 0:
                imported = import_all(connection, self.state_dir)
            connection.execute(f"PRAGMA user_version={VERSION}")
        set_aside(imported)

    def _import_again(self, connection: sqlite3.Connection) -> None:
        from tradewind.state.old_folders import import_again, set_aside

        with _alone(connection, MIGRATE_S):
            imported = import_again(connection, self.state_dir)
        set_aside(imported)

    def _refuse_migration(self) -> NoReturn:
        raise StateError(
            f"{self.path} cannot be upgraded: the state folder is not writable",
            hint="make it writable, or set TRADEWIND_STATE_DIR to a copy of it",
        )

    def _refuse(self, version: int) -> NoReturn:
        raise StateError(
            f"{self.path} was written by a newer version of tradewind: format {version}; this version reads {VERSION}",
            hint="update tradewind, or set TRADEWIND_STATE_DIR to another folder",
        )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of SQLite within the block into a StateError with advice."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._state_error(error) from error

    def _state_error(self, error: sqlite3.Error) -> StateError:
        reason = str(error)
        if "locked" in reason or "busy" in reason:
            return StateError(
                f"{self.path} is locked by another process",
                hint=f"look for a stopped one with `fuser -v {self.path}`, and try again",
            )
        if "full" in reason:
            return StateError(f"{self.path} cannot be written: no space left on its disk", hint="free some space on it")
        if "readonly" in reason or "unable to open" in reason:
            return StateError(
                f"{self.path} cannot be opened or written: {reason}",
                hint="check the owner and mode of the state folder, or set TRADEWIND_STATE_DIR to another one",
            )
        if "disk I/O" in reason:
            return StateError(f"{self.path} cannot be read or written: {reason}", hint="check its disk")
        return StateError(f"{self.path} is damaged: {reason}", hint=f"restore it from a copy, or recover it: {TROUBLE}")


#: Connections of a parent process. Closing one would release the parent's locks on the file.
_inherited: list[sqlite3.Connection] = []
_databases: weakref.WeakValueDictionary[str, Database] = weakref.WeakValueDictionary()
_databases_lock = threading.Lock()


def open_database(state_dir: str | os.PathLike[str]) -> Database:
    """Return the database of a state folder, shared by all its holders. It is opened on first use."""
    path = os.path.abspath(state_dir)
    with _databases_lock:
        database = _databases.get(path)
        if database is None:
            database = _databases[path] = Database(path)
        return database


@atexit.register
def _close_databases() -> None:
    """Close the connections before Python ends, so that SQLite moves their logs into the databases. Short logs stay."""
    for database in list(_databases.values()):
        if not database.may_keep_log():
            with suppress(sqlite3.Error):
                database.close()


@contextmanager
def _alone(connection: sqlite3.Connection, busy_s: float) -> Iterator[None]:
    """Lock out other writers within the block; commit at its end, roll back on an exception. Raises sqlite3.Error."""
    _patiently(lambda: connection.execute("BEGIN IMMEDIATE"), busy_s)
    try:
        yield
        _patiently(lambda: connection.execute("COMMIT"), busy_s)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _patiently(work: Callable[[], T], busy_s: float) -> T:
    """Return the result of `work`, retrying for up to `busy_s` while the database is busy. Raises sqlite3.Error."""
    deadline_s = time.monotonic() + busy_s
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= deadline_s:
                raise
        time.sleep(PAUSE_S)


def _require_regular(path: str) -> None:
    """Raise StateError for a file that is not regular, such as a pipe; ConfigError for another user's; OSError."""
    from pathlib import Path

    if not stat.S_ISREG(require_own(Path(path)).st_mode):
        raise StateError(f"{path} is not a regular file", hint="move it aside")
