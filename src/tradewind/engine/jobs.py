"""Jobs: their records in the state folder's database, and one folder per job in its `jobs`.

A job is recorded before anything of it starts. In its folder, `journal.sqlite`, `status.json`, `spent` and `lock` are
the lead's. The process that runs a job holds the lock of `client.lock` from before it starts machines until they are
gone. While a lead lives it holds an exclusive lock on `lock`: that, and not what `status.json` says, decides whether a
job is running. When a job has ended, its last status is copied to the database, so that a list need not open its files.

A job's record does not name its folder, and its state folder has both. So a copied or moved state folder works on its
own journal and never on the original's.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Literal

from tradewind.engine.sources import LIST_FILE
from tradewind.errors import JobBusy, JobNotFound, JobUnreadable, StateError, UsageError
from tradewind.model.clock import host_unix_s
from tradewind.model.document import parse_json, to_document
from tradewind.model.event import JobState, JobStatus, Progress, Summary
from tradewind.model.files import (
    FOLDER_MODE,
    open_regular,
    private_folder,
    read_regular,
    remove_folder,
    state_folder,
    state_home,
)
from tradewind.model.job import JobSpec
from tradewind.model.locks import FileLock, is_locked, try_lock, wait_unlocked
from tradewind.model.records import dataclass
from tradewind.state.database import open_database
from tradewind.state.digest import with_digest, without_digest
from tradewind.state.schema import JOB_TABLES
from tradewind.state.values import checked

#: The lead's lock file. A lead creates it when it starts to work in the folder, and holds its lock while it lives.
LOCK_FILE = "lock"
#: File in which the lead writes the state of the job.
STATUS_FILE = "status.json"
#: SQLite file in which the lead keeps what it has copied. Its table `deletion` has a row once a move deletes sources.
JOURNAL_FILE = "journal.sqlite"
#: Lock file of the process that runs the job, from before it reads the ledger until its machines are gone. So only one
#: process at a time writes the ledger and starts machines.
CLIENT_LOCK_FILE = "client.lock"
#: Files that a client or a lead opens in a job's folder.
OPENED_FILES = (CLIENT_LOCK_FILE, LOCK_FILE, STATUS_FILE, JOURNAL_FILE, "spent")
#: Marks a job's folder while `jobs cancel` stops the job: its owner must not advise the user to resume it.
CANCELLING_FILE = "cancelling"
#: A line per object in a job's folder, in the form of `--report`.
OBJECTS_FILE = "objects.ndjson"
#: A longer list of objects (about 20,000) is removed when the job is done. Up to 1,000 lists are kept, see `pruning`.
OBJECTS_BYTES_MAX = 4 << 20
#: Number of the latest jobs that are searched for an unfinished job of the same source and destinations.
LATEST_JOBS = 100
#: Timeout for a lead that was asked to stop: it drains for 4 s, ends its uploads, and its gateway exits.
LEAD_END_S_MAX = 120.0
#: Age at which a folder without a job is removed, unless a client holds its lock.
MADE_S_MAX = 3600.0

#: State as the lead reports it, or `paused`: interrupted by a user who wanted a pause.
RecordedState = JobState | Literal["paused"]
#: All values of RecordedState.
RECORDED_STATES = ("running", "done", "failed", "interrupted", "paused", "cancelled")
#: States in the database; any other job is `open` there, and its locks and `status.json` give its state.
ENDED = ("done", "failed", "cancelled")
OPEN = "open"
#: States of jobs that can be resumed.
RESUMABLE = ("interrupted", "paused", "failed")
UnreadableCallback = Callable[[JobUnreadable], None]


_KEPT_OF_REQUEST = ("argv", "settings", "provider", "ceiling", "deadline_s", "list")
_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_COLUMNS = (
    "id, created_unix_ms, verb, source, destinations, state, paused, progress, summary, request, spec,"
    " (SELECT topology FROM plans WHERE job = id ORDER BY number DESC LIMIT 1)"
)


@dataclass(frozen=True)
class JobRecord:
    """The record of one job. `document` has the whole request: `argv`, `settings`, `provider`, `ceiling`,
    `deadline_s`, `list`, `topology` and `spec`.
    """

    id: str
    state: RecordedState
    source: str
    destinations: tuple[str, ...]
    created_unix_ms: int
    verb: str
    progress: Progress
    summary: Summary | None
    document: Mapping[str, Any]

    def __repr__(self) -> str:
        done = f"{self.progress.objects_done}/{self.progress.objects_total} objects"
        return f"<JobRecord {self.id} {self.state}: {self.source} → {', '.join(self.destinations)}, {done}>"


class JobStore:
    """The jobs of one state folder.

    `unix_s` returns the Unix time that dates the jobs and the lives of their machines [s]. Servers that share the
    folder share this clock.
    """

    def __init__(self, folder: str | None = None, unix_s: Callable[[], float] = host_unix_s) -> None:
        self.state_dir, self.unix_s = state_home(folder), unix_s
        self.folder = os.path.join(self.state_dir, "jobs")
        self.database = open_database(self.state_dir)

    def path(self, job_id: str) -> str:
        """Return the folder of a job, which need not exist."""
        return os.path.join(self.folder, job_id)

    def make_folder(self, job_id: str) -> str:
        """Make an empty folder for a new job, and return its path. Raises ConfigError, OSError."""
        state_folder(self.state_dir)
        private_folder(self.folder)
        os.mkdir(self.path(job_id), mode=FOLDER_MODE)
        return self.path(job_id)

    def create(
        self,
        job_id: str,
        spec: JobSpec,
        request: Mapping[str, Any],
        topology: Mapping[str, Any] | None,
        *,
        plan: str | None = None,
        proposal: str | None = None,
    ) -> None:
        """Record a new job. `request` has `verb`, `source`, `destinations`, `argv`, `settings`, `provider`, `ceiling`,
        `deadline_s` and `list`, without secrets; `plan` is the whole plan as JSON, `proposal` the id of the one that it
        is made of.

        Raises UsageError if another job was made of the proposal, StateError.
        """
        known = {name: request.get(name) for name in _KEPT_OF_REQUEST}
        now_unix_ms = round(self.unix_s() * 1000)
        with self.database.transaction() as connection:
            connection.execute(
                "INSERT INTO jobs (id, created_unix_ms, verb, source, destinations, request, spec)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    job_id,
                    now_unix_ms,
                    request["verb"],
                    request["source"],
                    json.dumps(request["destinations"]),
                    json.dumps(with_digest(known, job_id)),
                    json.dumps(with_digest(_relocatable(to_document(spec)), job_id)),
                ),
            )
            stored = None if topology is None else json.dumps(topology)
            connection.execute("INSERT INTO plans VALUES (?, 1, ?, ?, ?)", (job_id, now_unix_ms, stored, plan))
            if proposal is not None:
                taken = connection.execute(
                    "UPDATE proposals SET job = ? WHERE id = ? AND job IS NULL", (job_id, proposal)
                )
                if taken.rowcount == 0:
                    raise UsageError(f"proposal {proposal} was started or has expired", hint="propose again")

    def forget(self, job_id: str) -> None:
        """Remove a job that has not started or is over, with its folder."""
        remove_folder(self.path(job_id))
        with suppress(StateError):
            self._delete([job_id])

    def plan(self, job_id: str, *, latest: bool = False) -> str | None:
        """Return the plan of a job as it was recorded, the first one or the latest; None if none was. Raises
        StateError.
        """
        order = "DESC" if latest else "ASC"
        found = self.database.row(f"SELECT document FROM plans WHERE job = ? ORDER BY number {order}", (job_id,))
        return None if found is None else found[0]

    def plans(self, job_id: str) -> list[str]:
        """Return all plans of a job as they were recorded, the first one first. Raises StateError."""
        rows = self.database.rows("SELECT document FROM plans WHERE job = ? ORDER BY number", (job_id,))
        return [document for (document,) in rows]

    def add_plan(self, job_id: str, spec: JobSpec, topology: Mapping[str, Any], plan: str) -> None:
        """Record another plan for a job, and the job from which to resume. Raises StateError."""
        with self.database.transaction() as connection:
            connection.execute(
                "INSERT INTO plans SELECT ?1, 1 + max(number), ?2, ?3, ?4 FROM plans WHERE job = ?1",
                (job_id, round(self.unix_s() * 1000), json.dumps(topology), plan),
            )
            document = json.dumps(with_digest(_relocatable(to_document(spec)), job_id))
            connection.execute("UPDATE jobs SET spec = ? WHERE id = ?", (document, job_id))

    def set_lead(self, job_id: str, lead: Mapping[str, str] | None) -> None:
        """Record how to reach the lead of a running job, by `lead` and `fleet`; None if it has none."""
        document = None if lead is None else json.dumps(lead)
        self.database.write("UPDATE jobs SET lead = ? WHERE id = ?", (document, job_id), durable=False)

    def lead(self, job_id: str) -> Mapping[str, str] | None:
        """Return what `set_lead` recorded. Raises StateError."""
        found = self.database.row("SELECT lead FROM jobs WHERE id = ?", (job_id,))
        return None if found is None or found[0] is None else parse_json(found[0])

    def reopen(self, job_id: str) -> None:
        """Record that a job is resumed. Raises StateError."""
        self.database.write("UPDATE jobs SET state = ?, paused = 0 WHERE id = ?", (OPEN, job_id))

    def settle(self, job_id: str) -> None:
        """Copy the status of an ended job to the database. Raises StateError."""
        status = self._status(job_id)
        if status is not None and status.state in ENDED:
            self._set_ended(job_id, status)

    def set_cancelled(self, job_id: str) -> None:
        """Record the cancellation of a job without a lead here; a guest leaves its counts. Raises StateError."""
        status = self._status(job_id)
        progress = Progress() if status is None else status.progress
        self._set_ended(job_id, JobStatus("cancelled", progress, None, 0))

    def set_start_failed(self, job_id: str) -> None:
        """Record that a job failed before its lead began: only its cost is left of it. Raises StateError."""
        self._set_ended(job_id, JobStatus("failed", Progress(), None, 0))

    def has_begun(self, job_id: str) -> bool:
        """Return whether a lead ever worked on a job, so that its folder has a journal."""
        return any(os.path.lexists(os.path.join(self.path(job_id), name)) for name in (LOCK_FILE, STATUS_FILE))

    def _set_ended(self, job_id: str, status: JobStatus) -> None:
        summary = None if status.summary is None else json.dumps(to_document(status.summary))
        self.database.write(
            "UPDATE jobs SET state = ?, progress = ?, summary = ?, lead = NULL WHERE id = ?",
            (status.state, json.dumps(to_document(status.progress)), summary, job_id),
        )

    def load(self, job_id: str) -> JobRecord:
        """Return one job. Raises JobNotFound, JobUnreadable, StateError."""
        row = self.database.row(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", (job_id,)) if _is_id(job_id) else None
        if row is not None and os.path.isdir(self.path(job_id)):
            return self._record(row, self._require_files)
        noted = self.database.row("SELECT reason FROM imports WHERE kind = 'jobs' AND id = ?", (job_id,))
        if noted is not None:
            raise self._not_imported(job_id, noted[0])
        raise JobNotFound(f"no job {job_id}", hint="`tradewind jobs list` shows all")

    def records(self, on_unreadable: UnreadableCallback | None = None) -> Iterator[JobRecord]:
        """Yield all jobs, oldest first. An unreadable one is reported to `on_unreadable` and left out."""
        there = set(self._folders())
        for job_id, reason in self.database.rows("SELECT id, reason FROM imports WHERE kind = 'jobs' ORDER BY id"):
            if on_unreadable is not None:
                on_unreadable(self._not_imported(job_id, reason))
        for row in self.database.rows(f"SELECT {_COLUMNS} FROM jobs ORDER BY id"):
            if row[0] not in there:
                continue  # Its folder was removed, so the job is gone.
            try:
                yield self._record(row, self._require_files if row[5] == OPEN else None)
            except JobUnreadable as error:
                if on_unreadable is not None:
                    on_unreadable(error)

    def unfinished(self, source: str, destinations: Sequence[str]) -> JobRecord | None:
        """Return the latest interrupted job of these places among the LATEST_JOBS, unless a later one succeeded."""
        row = self.database.row(
            f"SELECT {_COLUMNS} FROM (SELECT * FROM jobs ORDER BY id DESC LIMIT ?)"
            " WHERE source = ? AND destinations = ? ORDER BY id DESC LIMIT 1",
            (LATEST_JOBS, source, json.dumps(list(destinations))),
        )
        with suppress(JobUnreadable):
            record = None if row is None or not os.path.isdir(self.path(row[0])) else self._record(row, None)
            return record if record is not None and record.state in ("interrupted", "paused") else None
        return None

    def latest_done(self, count: int) -> Iterator[JobRecord]:
        """Yield the last jobs that succeeded, the latest first. Unreadable ones are left out."""
        query = f"SELECT {_COLUMNS} FROM jobs WHERE state = 'done' ORDER BY id DESC LIMIT ?"
        for row in self.database.rows(query, (count,)):
            with suppress(JobUnreadable):
                yield self._record(row, None)

    def _record(self, row: Sequence[Any], check: Callable[[str], None] | None) -> JobRecord:
        """Return the job of a row; `check` raises OSError if its folder is unusable. Raises JobUnreadable."""
        job_id, created_unix_ms, verb, source, destinations, state, paused, progress, summary, request, spec = row[:11]
        try:
            checked(row, "tmttttpTTttT")
            if state not in (OPEN, *ENDED):
                raise ValueError(f"its state is {state!r}")
            ends = _parsed(destinations, list)
            checked(ends, "t" * len(ends))
            parsed_spec = without_digest(_parsed(spec, dict), job_id)
            checked([store["url"] for store in _stores_of(parsed_spec)], "t" * (1 + len(parsed_spec["targets"])))
            if check is not None:
                check(job_id)
            status = self._status(job_id) if state == OPEN else None
            document = {
                "id": job_id,
                "created_unix_ms": created_unix_ms,
                "verb": verb,
                "source": source,
                "destinations": ends,
                **without_digest(_parsed(request, dict), job_id),
                "topology": None if row[11] is None else _parsed(row[11], dict),
                "spec": _located(parsed_spec, self.path(job_id)),
            }
            if state != OPEN:
                known = {} if summary is None else {"summary": _parsed(summary, dict)}
                recorded = {"state": state, "progress": _parsed(progress, dict), "updated_unix_ms": 0, **known}
                status = JobStatus.from_document(recorded)
        except OSError as error:
            raise _unreadable(str(error.filename), error.strerror or str(error)) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unreadable(f"the record of job {job_id} in {self.database.path}", str(error)) from None
        return JobRecord(
            id=job_id,
            state=self._state(job_id, status, paused=bool(paused)),
            source=source,
            destinations=tuple(document["destinations"]),
            created_unix_ms=created_unix_ms,
            verb=verb,
            progress=status.progress if status else Progress(),
            summary=status.summary if status else None,
            document=document,
        )

    def _require_files(self, job_id: str) -> None:
        for name in OPENED_FILES:
            _require_regular(os.path.join(self.path(job_id), name))

    def _not_imported(self, job_id: str, reason: str) -> JobUnreadable:
        return _unreadable(os.path.join(self.path(job_id), "job.json"), reason)

    def has_lead(self, job_id: str) -> bool:
        """Return whether a living lead works on the job. Tests the lead's lock without acquiring it."""
        try:
            return is_locked(os.path.join(self.path(job_id), LOCK_FILE))
        except OSError:
            return False  # A lead could not use it either.

    def wait_lead_ended(
        self, job_id: str, timeout_s: float = LEAD_END_S_MAX, is_to_stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Wait until no lead works on the job. Raises JobBusy at the timeout, or once `is_to_stop` returns true."""
        if not wait_unlocked(os.path.join(self.path(job_id), LOCK_FILE), timeout_s, is_to_stop):
            raise JobBusy(f"job {job_id} is still running {timeout_s:.0f} s after it was asked to stop")

    def require_no_lead(self, job_id: str) -> None:
        """Raise JobBusy if a lead works on it."""
        if self.has_lead(job_id):
            # The lead of a killed command drains first.
            hint = f"if its command was killed, resume it in 10 s; `tradewind jobs cancel {job_id}` stops it for good"
            raise JobBusy(f"job {job_id} is running", hint=hint)

    def hold(self, job_id: str) -> FileLock:
        """Acquire the lock of the process that runs a job. Raises JobBusy if another process has it, OSError."""
        lock = client_lock(self.path(job_id))
        if lock is None:
            raise JobBusy(
                f"another process is working on job {job_id}",
                hint=f"wait until it ends, or stop it with `tradewind jobs cancel {job_id}`",
            )
        return lock

    def remove_remains(self) -> None:
        """Remove the folders of jobs whose client was killed before they were recorded."""
        known = {row[0] for row in self.database.rows("SELECT id FROM jobs UNION SELECT id FROM imports")}
        for job_id in self._folders():
            if job_id not in known and self._was_never_made(job_id):
                remove_folder(self.path(job_id))

    def remove_rows_without_folder(self) -> None:
        """Remove the records of jobs whose folder somebody has removed. Raises StateError."""
        known = {row[0] for row in self.database.rows("SELECT id FROM jobs UNION SELECT id FROM imports")}
        self._delete(sorted(known - set(self._folders())))

    def _delete(self, job_ids: Sequence[str]) -> None:
        with self.database.transaction(durable=False) as connection:
            connection.executemany("DELETE FROM jobs WHERE id = ?", ((job_id,) for job_id in job_ids))
            for table in JOB_TABLES:
                connection.executemany(f"DELETE FROM {table} WHERE job = ?", ((job_id,) for job_id in job_ids))

    def _was_never_made(self, job_id: str) -> bool:
        """Return whether a folder is old and unused: nobody is making a job in it, and no dry run works in it."""
        folder = self.path(job_id)
        with suppress(OSError):
            is_old = time.time() - os.stat(folder).st_mtime > MADE_S_MAX
            return is_old and not is_locked(os.path.join(folder, CLIENT_LOCK_FILE))
        return False

    def _folders(self) -> list[str]:
        try:
            return [name for name in os.listdir(self.folder) if _is_id(name)]
        except FileNotFoundError:
            return []

    def _status(self, job_id: str) -> JobStatus | None:
        try:
            return JobStatus.from_document(_read_json(os.path.join(self.path(job_id), STATUS_FILE)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def _state(self, job_id: str, status: JobStatus | None, *, paused: bool) -> RecordedState:
        if status is not None and status.state not in ("running", "interrupted"):
            return status.state
        if self.has_lead(job_id) or self.is_owned(job_id):
            return "running"
        return "paused" if paused else "interrupted"

    def is_cancelled(self, job_id: str) -> bool:
        """Return whether a job was cancelled, or another process is cancelling it. Raises StateError."""
        if self._is_cancelling(job_id):
            return True
        row = self.database.row("SELECT state FROM jobs WHERE id = ?", (job_id,))
        return row is not None and self._has_cancelled(job_id, row[0])

    def _has_cancelled(self, job_id: str, state: str) -> bool:
        """Return whether a cancellation has ended; `state` is that of the job's row."""
        status = self._status(job_id) if state == OPEN else None
        return state == "cancelled" or (status is not None and status.state == "cancelled")

    def is_to_stop(self, job_id: str) -> bool:
        """Return whether another process has asked the job's owner to stop. Raises StateError."""
        if self._is_cancelling(job_id):
            return True
        row = self.database.row("SELECT paused, state FROM jobs WHERE id = ?", (job_id,))
        return row is not None and (row[0] == 1 or self._has_cancelled(job_id, row[1]))

    def _is_cancelling(self, job_id: str) -> bool:
        """Return whether a process is cancelling the job."""
        with suppress(OSError):
            return is_locked(os.path.join(self.path(job_id), CANCELLING_FILE))
        return False

    def set_paused(self, job_id: str, paused: bool) -> None:
        """Record whether a job is paused. Raises StateError."""
        self.database.write("UPDATE jobs SET paused = ? WHERE id = ?", (paused, job_id))

    def is_owned(self, job_id: str) -> bool:
        """Return whether a process runs the job; its lead may live, be restarting, or not have started."""
        try:
            return is_locked(os.path.join(self.path(job_id), CLIENT_LOCK_FILE))
        except OSError:
            return False

    def wait_unowned(self, job_id: str, timeout_s: float = LEAD_END_S_MAX) -> None:
        """Wait until no process runs the job. Raises JobBusy at the timeout."""
        if not wait_unlocked(os.path.join(self.path(job_id), CLIENT_LOCK_FILE), timeout_s):
            raise JobBusy(f"job {job_id} is still running {timeout_s:.0f} s after it was asked to stop")


def client_lock(folder: str) -> FileLock | None:
    """Acquire the owner's lock of the job in a folder; return None if another process has it. Raises OSError."""
    return FileLock.take(os.path.join(folder, CLIENT_LOCK_FILE))


@contextmanager
def cancelling(folder: str) -> Iterator[None]:
    """Mark the job of this folder as being cancelled within the block; see `JobStore.is_cancelled`.

    The file is locked, so that one that a killed process has left says nothing.
    """
    path = os.path.join(folder, CANCELLING_FILE)
    with ExitStack() as held:
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW, 0o600)
            held.callback(os.close, descriptor)
            try_lock(descriptor)
        try:
            yield
        finally:
            with suppress(OSError):
                os.unlink(path)


def done_line(folder: str) -> dict[str, Any] | None:
    """Return the lead's last line, as an event, if the job is done; otherwise None. A done job is not resumed."""
    try:
        status = _read_json(os.path.join(folder, "status.json"))
        if JobStatus.from_document(status).state != "done" or not status.get("summary"):
            return None
        return {"event": "done", **status["summary"]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


#: In order of their character codes, so that ids sort by age.
_LETTERS = "23456789abcdefghijkmnpqrstuvwxyz"


def new_job_id(now_ms: int | None = None) -> str:
    """Return an id: time to the second, two letters for the milliseconds, six random ones. Ids sort by age.

    `now_ms` is the Unix time by the clock that dates the jobs [ms]; None for that of this machine.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    milliseconds = now_ms % 1000
    letters = [milliseconds >> 5, milliseconds & 31, *(byte & 31 for byte in os.urandom(6))]
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_ms // 1000))
    return f"{moment}-{''.join(_LETTERS[index] for index in letters)}"


def _relocatable(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's document without the path of its own folder."""
    located = {name: value for name, value in spec.items() if name != "state_dir"}
    folder, selection = spec.get("state_dir"), spec.get("selection", {})
    if folder is not None and selection.get("list_file") == os.path.join(folder, LIST_FILE):
        located["selection"] = {**selection, "list_file": LIST_FILE}
    if folder is not None and spec.get("report_file") == os.path.join(folder, OBJECTS_FILE):
        located["report_file"] = OBJECTS_FILE
    return located


def _located(spec: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return the document of `_relocatable` with paths in its own folder."""
    located = {**spec, "state_dir": folder}
    selection = spec.get("selection")
    if isinstance(selection, dict) and selection.get("list_file") == LIST_FILE:
        located["selection"] = {**selection, "list_file": os.path.join(folder, LIST_FILE)}
    if spec.get("report_file") == OBJECTS_FILE:
        located["report_file"] = os.path.join(folder, OBJECTS_FILE)
    return located


def _read_json(path: str) -> Any:
    return parse_json(read_regular(path))


def _require_regular(path: str) -> None:
    """Raise OSError if the name is not a regular file: opening a pipe could wait for ever."""
    with suppress(FileNotFoundError):
        os.close(open_regular(path))


def _parsed(text: Any, kind: type) -> Any:
    """Return the value of a JSON column. Raises ValueError if it has another type."""
    document = parse_json(text)
    if not isinstance(document, kind):
        raise ValueError(f"not a JSON {kind.__name__}")
    return document


def _stores_of(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the stores of a job: that of its source first. Raises KeyError, TypeError."""
    return [spec["source"], *(target["store"] for target in spec["targets"])]


def _unreadable(what: str, reason: str) -> JobUnreadable:
    return JobUnreadable(f"{what} is unreadable: {reason}", hint="remove its folder if the job is not needed")


def _is_id(name: str) -> bool:
    return 0 < len(name) <= 64 and _ID_CHARACTERS.issuperset(name)
