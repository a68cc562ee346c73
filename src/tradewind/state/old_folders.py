"""Imports the jobs and fleets that earlier versions kept as files in the state folder.

The import runs in the transaction that creates the tables: another process sees no database or a complete one. A job
that an older version still runs, or whose files are unreadable, is noted in `imports`; each later start retries it and
reports it until it succeeds. Imported files are then moved to `imported` in their folder.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from tradewind.model.document import parse_json, to_document
from tradewind.model.event import JobStatus
from tradewind.model.files import open_regular, read_regular
from tradewind.model.ledger import Ledger
from tradewind.model.locks import is_locked
from tradewind.state.ledger_rows import write_ledger

__all__ = ["IMPORTED", "checked_job", "import_again", "import_all", "set_aside"]

#: Files in a job's or fleet's folder whose content is now in the database.
IMPORTED = "imported"
JOB_FILES = ("job.json", "ledger.json", "events.ndjson", "progress.json", "run.json", "paused")
FLEET_FILES = ("fleet.json", "heartbeat")
#: Lock files of the process that runs a job, and of its lead.
LOCKS = ("client.lock", "lock")
#: Maximum length of a line of `events.ndjson`; a longer line is not ours.
LINE_BYTES_MAX = 1 << 20
#: Maximum creation time of a job, the year 10000: later times have no date.
CREATED_UNIX_MS_MAX = 253_402_300_799_999
ENDED = ("done", "failed", "cancelled")


def import_all(connection: sqlite3.Connection, state_dir: str) -> list[str]:
    """Import all jobs and fleets of a state folder; return the folders whose import the commit records."""
    found = [*_each(state_dir, "jobs", "job.json"), *_each(state_dir, "fleets", "fleet.json")]
    return _import(connection, state_dir, found)


def import_again(connection: sqlite3.Connection, state_dir: str) -> list[str]:
    """Retry the failed imports, forget removed folders, and return as `import_all` does."""
    noted = connection.execute("SELECT kind, id FROM imports").fetchall()
    there = [(kind, name) for kind, name in noted if os.path.isdir(os.path.join(state_dir, kind, name))]
    connection.execute("DELETE FROM imports")
    return _import(connection, state_dir, there)


def set_aside(folders: Iterable[str]) -> None:
    """Move the imported files. A file that cannot be moved stays, and is not imported again."""
    for folder in folders:
        aside = os.path.join(folder, IMPORTED)
        with suppress(OSError):
            os.makedirs(aside, mode=0o700, exist_ok=True)
        for name in (*JOB_FILES, *FLEET_FILES):
            with suppress(OSError):
                os.replace(os.path.join(folder, name), os.path.join(aside, name))


def checked_job(document: Any) -> dict[str, Any]:
    """Return the content of a `job.json` if it has the fields of every job. Raises ValueError."""
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    kinds = {"source": str, "verb": str, "destinations": list, "created_unix_ms": int, "spec": dict}
    for name, kind in kinds.items():
        if not isinstance(document.get(name), kind):
            raise ValueError(f"{name} is missing or not a {kind.__name__}")
    if not all(isinstance(destination, str) for destination in document["destinations"]):
        raise ValueError("destinations are not all text")
    if not 0 <= document["created_unix_ms"] <= CREATED_UNIX_MS_MAX:
        raise ValueError("created_unix_ms is not a time before the year 10000")
    return document


def _each(state_dir: str, kind: str, file: str) -> list[tuple[str, str]]:
    folder = os.path.join(state_dir, kind)
    with suppress(FileNotFoundError, NotADirectoryError):
        return [
            (kind, name) for name in sorted(os.listdir(folder)) if os.path.lexists(os.path.join(folder, name, file))
        ]
    return []


def _import(connection: sqlite3.Connection, state_dir: str, found: Iterable[tuple[str, str]]) -> list[str]:
    done = []
    for kind, name in found:
        folder = os.path.join(state_dir, kind, name)
        try:
            connection.execute("SAVEPOINT one")
            (_import_job if kind == "jobs" else _import_fleet)(connection, folder, name)
            done.append(folder)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            connection.execute("ROLLBACK TO one")
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            connection.execute("INSERT INTO imports VALUES (?, ?, ?)", (kind, name, reason))
        finally:
            connection.execute("RELEASE one")
    return done


def _import_job(connection: sqlite3.Connection, folder: str, job_id: str) -> None:
    if any(_is_held(os.path.join(folder, name)) for name in LOCKS):
        raise ValueError("an older version of tradewind runs it")
    job = checked_job(_json(folder, "job.json"))
    state, status = "open", _status(folder)
    progress = summary = None
    if status is not None and status.state in ENDED:
        state, progress = status.state, json.dumps(to_document(status.progress))
        summary = None if status.summary is None else json.dumps(to_document(status.summary))
    request = {name: job.get(name) for name in ("argv", "settings", "provider", "ceiling")}
    connection.execute(
        "INSERT INTO jobs (id, created_unix_ms, verb, source, destinations, state, paused, progress, summary, request,"
        " spec, lead) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            job_id,
            job["created_unix_ms"],
            job["verb"],
            job["source"],
            json.dumps(job["destinations"], ensure_ascii=False),
            state,
            os.path.lexists(os.path.join(folder, "paused")),
            progress,
            summary,
            json.dumps(request, ensure_ascii=False),
            json.dumps(job["spec"], ensure_ascii=False),
            _text(folder, "run.json"),
        ),
    )
    topology = None if job.get("topology") is None else json.dumps(job["topology"], ensure_ascii=False)
    connection.execute("INSERT INTO plans VALUES (?, 1, ?, ?, NULL)", (job_id, job["created_unix_ms"], topology))
    _import_events(connection, folder, job_id)
    _import_ledger(connection, folder, job_id)


def _import_events(connection: sqlite3.Connection, folder: str, job_id: str) -> None:
    """Import the lines that are JSON objects; older versions ignored other lines too."""
    with suppress(FileNotFoundError), open(open_regular(os.path.join(folder, "events.ndjson")), "rb") as file:
        number = run = 0
        for line in file:
            with suppress(ValueError):
                document = parse_json(line) if len(line) <= LINE_BYTES_MAX else None
                if isinstance(document, dict) and isinstance(document.get("event"), str):
                    number, run = number + 1, run + (document["event"] == "run_started")
                    connection.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (job_id, number, run, line.decode()))
    progress = _text(folder, "progress.json")
    if progress is not None:
        connection.execute("INSERT INTO progress VALUES (?, ?)", (job_id, progress))


def _import_ledger(connection: sqlite3.Connection, folder: str, job_id: str) -> None:
    """Import the ledger. An unreadable one is kept as damaged, so that a job under a ceiling is not resumed."""
    if not os.path.lexists(os.path.join(folder, "ledger.json")):
        return
    try:
        ledger = Ledger.from_document(_json(folder, "ledger.json"))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        damaged = (job_id, "unreadable in ledger.json")
        connection.execute("INSERT INTO ledgers VALUES (?, ?, NULL, 0, 0, 0)", damaged)
        return
    write_ledger(connection, job_id, ledger)


def _import_fleet(connection: sqlite3.Connection, folder: str, fleet_id: str) -> None:
    record = _json(folder, "fleet.json")
    if record["id"] != fleet_id:
        raise ValueError("it is the record of another fleet")
    heartbeat_s = 0.0
    with suppress(OSError, ValueError):
        heartbeat_s = float(read_regular(os.path.join(folder, "heartbeat")))
    connection.execute(
        "INSERT INTO fleets (id, purpose, provider, wanted, created_unix_ms, owner, lock_inode, heartbeat_unix_s)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            fleet_id,
            str(record["purpose"]),
            json.dumps(dict(record["provider"])),
            json.dumps(dict(record["machines"])),
            int(record["created_unix_ms"]),
            json.dumps(dict(record["owner"])),
            None if record.get("lock_inode") is None else str(record["lock_inode"]),
            heartbeat_s,
        ),
    )


def _is_held(path: str) -> bool:
    try:
        return is_locked(path)
    except OSError:
        return False  # The file is missing, so nobody has locked it.


def _status(folder: str) -> JobStatus | None:
    try:
        return JobStatus.from_document(_json(folder, "status.json"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _json(folder: str, name: str) -> Any:
    return parse_json(read_regular(os.path.join(folder, name)))


def _text(folder: str, name: str) -> str | None:
    """Return the content of a file if it is a JSON object."""
    try:
        text = read_regular(os.path.join(folder, name))
        return text if isinstance(parse_json(text), Mapping) else None
    except (OSError, ValueError):
        return None
