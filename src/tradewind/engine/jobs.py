"""The state folder: one folder per job in its `jobs`.

`job.json` is written here before the start; `journal`, `status.json` and `lock` are the lead's. The process that runs a
job holds the lock of `client.lock` from before it starts machines until they are gone. While a lead lives it
holds an exclusive lock on `lock`: that, and not what `status.json` says, decides whether a job is running.

A job's folder does not name itself: it is where it was found. So a copied or moved state folder works on its own
journal and never on the original's.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from tradewind.engine.sources import LIST_FILE
from tradewind.errors import JobBusy, JobNotFound, JobUnreadable
from tradewind.model.document import parse_json, to_document
from tradewind.model.event import JobState, JobStatus, Progress, Summary
from tradewind.model.files import FOLDER_MODE, open_regular, private_folder, read_regular, state_folder, state_home
from tradewind.model.job import JobSpec
from tradewind.model.locks import FileLock, is_locked, try_lock, wait_unlocked

#: A lead that works in the folder, or has, made it, and holds its lock while it lives.
LOCK_FILE = "lock"
#: Locked by the process that runs the job, from before it reads the ledger until its machines are gone. So only one
#: process at a time writes the ledger and starts machines.
CLIENT_LOCK_FILE = "client.lock"
#: Files that a client or a lead opens in a job's folder.
OPENED_FILES = (CLIENT_LOCK_FILE, LOCK_FILE, "status.json", "journal.sqlite", "spent")
#: In a job's folder while `jobs cancel` stops it: whoever runs it must not advise to resume it.
CANCELLING_FILE = "cancelling"
#: In the folder of a job that `jobs pause` stopped, until it is resumed.
PAUSED_FILE = "paused"
#: So many finished jobs are kept; the oldest go first. Jobs that can be resumed are never removed.
FINISHED_JOBS_MAX = 1000
#: An unfinished job of the same source and destinations is looked for among so many of the latest.
LATEST_JOBS = 100
#: A lead that was asked to stop is gone within so long: it drains for 4 s, ends its uploads, and its gateway exits.
LEAD_END_S_MAX = 120.0
#: Jobs are created before the year 10000: later times have no date.
CREATED_UNIX_MS_MAX = 253_402_300_799_999
#: A folder without a job that has not changed for so long is removed, unless a client has its lock. Clients of earlier
#: versions take no lock, and their dry runs write no job.
MADE_S_MAX = 3600.0
#: Looking through the folder costs a read per job, so it is done only when so many more have gathered.
FINISHED_JOBS_SLACK = 100

#: State as the lead reports it, or `paused`: interrupted because the user wanted a pause.
RecordedState = JobState | Literal["paused"]
#: States of jobs that can be resumed.
RESUMABLE = ("interrupted", "paused", "failed")
UnreadableCallback = Callable[[JobUnreadable], None]


@dataclass(frozen=True)
class JobRecord:
    """The record of one job. `document` is `job.json`."""

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
    """The jobs below one state folder."""

    def __init__(self, folder: str | None = None) -> None:
        self.state_dir = state_home(folder)
        self.folder = os.path.join(self.state_dir, "jobs")

    def path(self, job_id: str) -> str:
        """Folder of a job, whether it exists or not."""
        return os.path.join(self.folder, job_id)

    def make_folder(self, job_id: str) -> str:
        """Makes a new job's folder, empty, and returns its path. Raises ConfigError, OSError."""
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
    ) -> None:
        """Writes what is known of a new job into its folder. `request` has `verb`, `source`, `destinations`, `argv`,
        `settings`, `provider` and `ceiling`, without secrets.
        """
        document = {
            "id": job_id,
            "created_unix_ms": time.time_ns() // 1_000_000,
            **request,
            "topology": topology,
            "spec": to_document(spec),
        }
        write_json(os.path.join(self.path(job_id), "job.json"), _relocatable(document))

    def update(self, job_id: str, changes: Mapping[str, Any]) -> None:
        """Changes what `create` wrote of a job. Raises OSError."""
        path = os.path.join(self.path(job_id), "job.json")
        write_json(path, _relocatable({**_read_json(path), **changes}))

    def set_cancelled(self, job_id: str) -> None:
        """Writes that a job is cancelled on which no lead has worked. Raises OSError."""
        status = {
            "state": "cancelled",
            "progress": to_document(Progress()),
            "updated_unix_ms": time.time_ns() // 1_000_000,
        }
        write_json(os.path.join(self.path(job_id), "status.json"), status)

    def load(self, job_id: str) -> JobRecord:
        """Return one job. Raises JobNotFound, JobUnreadable."""
        path = os.path.join(self.path(job_id), "job.json")
        try:
            document = _checked(_read_json(path)) if _is_id(job_id) else None
            for path in (os.path.join(self.path(job_id), name) for name in OPENED_FILES):
                _require_regular(path)
        except (FileNotFoundError, NotADirectoryError):
            document = None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise JobUnreadable(
                f"{path} is unreadable: {reason}", hint="remove its folder if the job is not needed"
            ) from None
        if document is None:
            raise JobNotFound(f"no job {job_id}", hint="`tradewind jobs list` shows all")
        # Older versions wrote an absolute path here. The folder may have been copied or moved since.
        document = {**document, "spec": _located(document["spec"], self.path(job_id))}
        status = self._status(job_id)
        return JobRecord(
            id=job_id,
            state=self._state(job_id, status),
            source=document["source"],
            destinations=tuple(document["destinations"]),
            created_unix_ms=document["created_unix_ms"],
            verb=document["verb"],
            progress=status.progress if status else Progress(),
            summary=status.summary if status else None,
            document=document,
        )

    def records(self, on_unreadable: UnreadableCallback | None = None) -> Iterator[JobRecord]:
        """Yield all jobs, oldest first. One that cannot be read is reported to `on_unreadable` and left out."""
        return self._load_each(self._ids(), on_unreadable)

    def _load_each(self, ids: Sequence[str], on_unreadable: UnreadableCallback | None) -> Iterator[JobRecord]:
        for job_id in ids:
            try:
                yield self.load(job_id)
            except JobNotFound:
                continue  # Removed, or not yet written, by another process.
            except JobUnreadable as error:
                if on_unreadable is not None:
                    on_unreadable(error)

    def unfinished(self, source: str, destinations: Sequence[str]) -> JobRecord | None:
        """The latest interrupted job of these places among the LATEST_JOBS; later ones that ended well outdate it."""
        latest = self._ids()[-LATEST_JOBS:]
        for record in self._load_each(latest[::-1], None):
            if record.source == source and record.destinations == tuple(destinations):
                return record if record.state in ("interrupted", "paused") else None
        return None

    def has_lead(self, job_id: str) -> bool:
        """Return whether a lead lives and works on it. Looks at the lead's lock without taking it."""
        try:
            return is_locked(os.path.join(self.path(job_id), LOCK_FILE))
        except OSError:
            return False  # A lead could not use it either.

    def wait_lead_ended(self, job_id: str, timeout_s: float = LEAD_END_S_MAX) -> None:
        """Return when no lead works on the job any more. Raises JobBusy if one still does after the timeout."""
        if not wait_unlocked(os.path.join(self.path(job_id), LOCK_FILE), timeout_s):
            raise JobBusy(f"job {job_id} still runs {timeout_s:.0f} s after it was asked to stop")

    def require_no_lead(self, job_id: str) -> None:
        """Raises JobBusy if a lead works on it."""
        if self.has_lead(job_id):
            # The lead of a command that was killed drains first.
            hint = f"if its command was killed, resume it in 10 s; `tradewind jobs cancel {job_id}` stops it for good"
            raise JobBusy(f"job {job_id} is running", hint=hint)

    def hold(self, job_id: str) -> FileLock:
        """Return the lock that the process which runs a job holds. Raises JobBusy if another one does, OSError."""
        lock = client_lock(self.path(job_id))
        if lock is None:
            raise JobBusy(
                f"another process works on job {job_id}",
                hint=f"wait until it ends, or stop it with `tradewind jobs cancel {job_id}`",
            )
        return lock

    def prune(self) -> int:
        """Removes the oldest finished jobs beyond FINISHED_JOBS_MAX; returns how many.

        Also removes what is left of jobs whose client was killed before they were written down, uncounted.
        """
        ids = self._ids()
        for job_id in ids:
            if self._was_never_made(job_id):
                shutil.rmtree(self.path(job_id), ignore_errors=True)
        if len(ids) < FINISHED_JOBS_MAX + FINISHED_JOBS_SLACK:
            return 0
        finished = [record.id for record in self.records() if record.state in ("done", "failed", "cancelled")]
        excess = finished[: max(0, len(finished) - FINISHED_JOBS_MAX)]
        for job_id in excess:
            shutil.rmtree(self.path(job_id), ignore_errors=True)
        return len(excess)

    def _was_never_made(self, job_id: str) -> bool:
        """Return whether a folder has no job in it, and nobody is making one or, for a dry run, works in it."""
        folder = self.path(job_id)
        with suppress(OSError):
            is_old = time.time() - os.stat(folder).st_mtime > MADE_S_MAX
            is_empty = not os.path.lexists(os.path.join(folder, "job.json"))
            return is_empty and is_old and not is_locked(os.path.join(folder, CLIENT_LOCK_FILE))
        return False

    def _ids(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self.folder) if _is_id(name))
        except FileNotFoundError:
            return []

    def _status(self, job_id: str) -> JobStatus | None:
        try:
            return JobStatus.from_document(_read_json(os.path.join(self.path(job_id), "status.json")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def _state(self, job_id: str, status: JobStatus | None) -> RecordedState:
        if status is not None and status.state not in ("running", "interrupted"):
            return status.state
        if self.has_lead(job_id) or self.is_owned(job_id):
            return "running"
        return "paused" if is_paused(self.path(job_id)) else "interrupted"

    def is_owned(self, job_id: str) -> bool:
        """Return whether a process runs the job: its lead may live, be restarted, or not have begun."""
        try:
            return is_locked(os.path.join(self.path(job_id), CLIENT_LOCK_FILE))
        except OSError:
            return False

    def wait_unowned(self, job_id: str, timeout_s: float = LEAD_END_S_MAX) -> None:
        """Return when no process runs the job any more. Raises JobBusy if one still does after the timeout."""
        if not wait_unlocked(os.path.join(self.path(job_id), CLIENT_LOCK_FILE), timeout_s):
            raise JobBusy(f"job {job_id} still runs {timeout_s:.0f} s after it was asked to stop")


def client_lock(folder: str) -> FileLock | None:
    """Return the lock of the process that runs the job of a folder; None if another one has it. Raises OSError."""
    return FileLock.take(os.path.join(folder, CLIENT_LOCK_FILE))


@contextmanager
def cancelling(folder: str) -> Iterator[None]:
    """Within the block the job of this folder is being cancelled; see `is_cancelled`.

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


def is_cancelled(folder: str) -> bool:
    """Return whether the job of this folder was cancelled, or is being cancelled by another process."""
    try:
        if is_locked(os.path.join(folder, CANCELLING_FILE)):
            return True
        return bool(_read_json(os.path.join(folder, "status.json"))["state"] == "cancelled")
    except (OSError, ValueError, KeyError, TypeError):
        return False


def is_paused(folder: str) -> bool:
    """Return whether `jobs pause` stopped the job of this folder, or is stopping it."""
    return os.path.lexists(os.path.join(folder, PAUSED_FILE))


def is_to_stop(folder: str) -> bool:
    """Return whether another process has asked whoever runs the job of this folder to stop."""
    return is_paused(folder) or is_cancelled(folder)


def set_paused(folder: str, paused: bool) -> None:
    """Note that a job is paused, or that it is not any more. Raises OSError."""
    path = os.path.join(folder, PAUSED_FILE)
    if paused:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600))
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)


def done_line(folder: str) -> dict[str, Any] | None:
    """Return the lead's last line, as an event, of a job that is done; None of any other. A done job is not resumed."""
    try:
        status = _read_json(os.path.join(folder, "status.json"))
        if JobStatus.from_document(status).state != "done" or not status.get("summary"):
            return None
        return {"event": "done", **status["summary"]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


#: In the order of their codes, so that ids sort by age.
_LETTERS = "23456789abcdefghijkmnpqrstuvwxyz"


def new_job_id() -> str:
    """Time to the second, two letters for the milliseconds, six random ones: ids sort by age."""
    now_ms = time.time_ns() // 1_000_000
    milliseconds = now_ms % 1000
    letters = [milliseconds >> 5, milliseconds & 31, *(byte & 31 for byte in os.urandom(6))]
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_ms // 1000))
    return f"{moment}-{''.join(_LETTERS[index] for index in letters)}"


def write_json(path: str, document: Any) -> None:
    """Writes by rename: a reader finds the old file or the new one, also after a power loss."""
    fresh = f"{path}.{os.getpid()}.new"
    with open(fresh, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


def _relocatable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's document without the path of its own folder."""
    spec = {name: value for name, value in document["spec"].items() if name != "state_dir"}
    folder, selection = document["spec"].get("state_dir"), spec.get("selection", {})
    if folder is not None and selection.get("list_file") == os.path.join(folder, LIST_FILE):
        spec["selection"] = {**selection, "list_file": LIST_FILE}
    return {**document, "spec": spec}


def _located(spec: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return a job as `_relocatable` left it with the paths in its own folder."""
    located = {**spec, "state_dir": folder}
    selection = spec.get("selection")
    if isinstance(selection, dict) and selection.get("list_file") == LIST_FILE:
        located["selection"] = {**selection, "list_file": os.path.join(folder, LIST_FILE)}
    return located


def _read_json(path: str) -> Any:
    return parse_json(read_regular(path))


def _require_regular(path: str) -> None:
    """Raise OSError if anything but a regular file has this name: who opens a pipe waits for ever."""
    with suppress(FileNotFoundError):
        os.close(open_regular(path))


def _checked(document: Any) -> dict[str, Any]:
    """The content of `job.json`, if it has what every job has. Raises ValueError."""
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
    document.setdefault("topology", None)
    return document


def _is_id(name: str) -> bool:
    return 0 < len(name) <= 64 and all(c in "abcdefghijklmnopqrstuvwxyz0123456789-" for c in name)
