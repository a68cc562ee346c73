"""This host as the guest of a job of a transfer service: it sends or receives with a gateway of its own.

The gateway joins the fleet of the job, so that both ends of a hop know each other by certificates. Its control socket
is in a private folder here, and only this process uses it: the service can propose a program, and `guest_programs.py`
decides. All connections are opened from here. If this process dies, the gateway ends; the job waits for a while and
then fails. The same command later resumes it: the journal of a source is in this host's state folder.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from tradewind.engine.guest_networks import require_reachable
from tradewind.engine.guest_programs import GuestPlace, guest_program
from tradewind.engine.jobs import JOURNAL_FILE, LOCK_FILE
from tradewind.engine.service_client import ENDED, POLL_S, RunOver, ServiceClient, ended_well
from tradewind.errors import GatewayError, GatewayLost, JobBusy, JobNotFound, UsageError
from tradewind.fleet.processes import machine_environment
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.client import GatewayClient, request
from tradewind.gateway.owner import Join, JoinToken
from tradewind.gateway.process import READY_S, GatewayProcess
from tradewind.gateway.without_setuid import without_setuid
from tradewind.model.digest import sha256_hex
from tradewind.model.document import to_document
from tradewind.model.files import open_private, private_folder, remove_folder, state_folder, state_home
from tradewind.model.locks import FileLock

__all__ = ["GuestHost"]

#: Maximum time of one attempt to reach the own gateway, which answers once it has joined.
ANSWER_S = 5.0
#: Time for the gateway to join. The service waits a minute for it.
JOIN_S = 45.0
#: Interval at which the service is asked for a run to join. It grows up to the maximum.
JOIN_POLL_S, JOIN_POLL_S_MAX = 0.2, 2.0
#: Maximum interval between two reports, before and after the gateway has joined. New events are sent at once.
REPORT_S, JOINED_REPORT_S = 1.0, 0.3
#: Maximum number and length of the events in one report, and number of those that wait; beyond it the gateway keeps
#: them. The service accepts a report of 1 MiB.
EVENTS_AT_ONCE, EVENTS_BYTES, EVENTS_WAITING_MAX = 200, 512 << 10, 2_000
#: Maximum number and length of the keys of unfinished uploads in one report. A lead has fewer at a time as a rule.
UPLOADS_AT_ONCE, UPLOADS_BYTES = 1_000, 256 << 10
#: File with the id of the journal. It is beside the journal's tables, so one is never there without the other.
JOURNAL_ID_FILE = "journal/id"
#: Path of the request by which a gateway's certificate is renewed.
IDENTITY = "/v1/identity"


class GuestHost:
    """The part of this host in one transfer. One process at a time may have it."""

    def __init__(
        self,
        client: ServiceClient,
        service: str,
        place: GuestPlace,
        site: str,
        *,
        gateway: str | None,
        routes_max: int | None = None,
        allow_networks: Sequence[str] = (),
    ) -> None:
        """Find what an earlier command has left. `site` is the other place. Makes the folder of a destination.

        The service may have this host dial as many of its addresses as there may be routes, by default one, and in
        `allow_networks` besides those that `require_reachable` accepts.

        Raises JobBusy, GatewayError, OSError.
        """
        self._client, self._place, self._binary = client, place, gateway or find_gateway()
        self._routes_max, self._allow_networks = routes_max or 1, tuple(allow_networks)
        self._made: list[str] = []
        self._make_folder()
        key = json.dumps([service, place.document(), site], sort_keys=True)
        guests = private_folder(state_folder(state_home()) / "guests")
        self._folder = private_folder(guests / sha256_hex(key.encode())[:24])
        lock = FileLock.take(self._folder / "lock")
        if lock is None:
            raise JobBusy("another command sends or receives the same data", hint="wait for it, or end it")
        self._lock = lock
        self._is_pausing = False

    def earlier_job(self) -> str | None:
        """Return the job of an earlier command for the same data that has not ended well, resumed if needed."""
        with suppress(OSError, JobNotFound, UsageError):
            job = self._client.job((self._folder / "job").read_text(encoding="ascii").strip())
            if job["state"] in ("failed", "paused"):
                return str(self._client.change(job["id"], "resume")["id"])
            if job["state"] not in ENDED:
                return str(job["id"])
        self._forget()
        return None

    def source_bytes(self) -> int:
        """Return the size of the source, which the service cannot see. Raises TradewindError."""
        from tradewind.engine.job_control import JobControl
        from tradewind.engine.launch_spec import local_launch
        from tradewind.engine.request import Options

        control = JobControl(gateway=self._binary)
        options = Options(recursive=self._place.is_folder, dry_run=True)
        count = control.start(self._place.path, "mem:", options, local_launch())
        try:
            return count.wait().progress.bytes_total
        finally:
            count.close()

    def take_part(self, job_id: str, see: Callable[[Mapping[str, Any]], None]) -> Mapping[str, Any]:
        """Be the guest of a job until it has ended, and return it. `see` gets each state of it.

        A KeyboardInterrupt pauses the job. Raises JobFailed, TradewindError.
        """
        self._keep("job", job_id)
        try:
            job = self._until_ended(job_id, see)
        except KeyboardInterrupt:
            self._pause(job_id)
            raise
        see(job)
        if job["state"] in ("done", "cancelled"):
            self._forget()
        return ended_well(job)

    def _until_ended(self, job_id: str, see: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
        poll_s = JOIN_POLL_S
        while (job := self._client.job(job_id))["state"] not in ENDED:
            see(job)
            try:
                grant = self._client.join(job_id, self._earlier_session())
            except RunOver:
                time.sleep(poll_s)
                poll_s = min(JOIN_POLL_S_MAX, 1.1 * poll_s)  # The job may wait for others for hours.
                continue
            poll_s = JOIN_POLL_S
            self._keep("session", grant["session"])
            with _GuestRun(self._client, job_id, grant, self) as run:
                try:
                    run.serve(see)
                except KeyboardInterrupt:
                    self._pause(job_id)
                    run.serve(see)  # The lead here writes its checkpoint. A second interrupt ends it at once.
                    raise
        return job

    def _pause(self, job_id: str) -> None:
        """Pause the job, at the first interrupt."""
        if not self._is_pausing:
            self._is_pausing = True
            with suppress(UsageError):  # It has just ended.
                self._client.change(job_id, "pause")

    def close(self) -> None:
        """Let another process send or receive the same data. Removes folders that it has made and that are empty."""
        with suppress(OSError):
            for folder in reversed(self._made):
                os.rmdir(folder)
        self._lock.release()

    def program(self, proposed: Any, owner: str) -> dict[str, Any]:
        """Return the program for the gateway here. Raises GatewayError for what this host does not agree to."""
        journal = private_folder(self._folder / "journal")
        if self.journal_id() is None:
            self._keep(JOURNAL_ID_FILE, secrets.token_hex(16))
        is_begun = (journal / LOCK_FILE).exists()
        made = guest_program(
            proposed,
            self._place,
            owner,
            state_dir=str(journal),
            is_begun=is_begun,
            routes_max=self._routes_max,
        )
        self._make_folder()
        document: dict[str, Any] = to_document(made)
        return document

    def journal_id(self) -> str | None:
        """Return the random id of the journal here, by which the service knows whose uploads are unfinished."""
        try:
            # It is empty if the disk was full, or this host went down, when it was written.
            return (self._folder / JOURNAL_ID_FILE).read_text(encoding="ascii") or None
        except OSError:
            return None

    def unfinished_uploads(self) -> list[str] | None:
        """Return the keys at the destination that the lead here has not finished uploading, over all its runs.

        None if its journal cannot be read now: the service must not forget the uploads that it knows of.
        """
        import sqlite3

        path = self._folder / "journal" / JOURNAL_FILE
        if not path.exists():
            return None
        try:
            with closing(sqlite3.connect(path)) as connection:
                query = "SELECT DISTINCT target_key FROM upload ORDER BY target_key LIMIT ?"
                return [key for (key,) in connection.execute(query, (UPLOADS_AT_ONCE,))]
        except sqlite3.Error:  # The lead is creating it, or has locked it.
            return None

    def start_gateway(self, join: Join, socket: str) -> GatewayProcess:
        """Start the gateway, without this user's credentials of stores. It dials the owner of the run.

        Raises GatewayError, also for an owner that this host does not dial.
        """
        require_reachable(join.owner, self._client.address, self._allow_networks)
        log = str(self._folder / "gateway.log")
        return GatewayProcess(
            self._binary,
            join.name,
            ["--join", "-"],
            log,
            enter=without_setuid(),
            environment=machine_environment(os.environ),
            input_line=join.beside(socket, None),
        )

    def _make_folder(self) -> None:
        """Make the folder of a destination, and remember which folders that made, the outermost first."""
        if self._place.side == "destination":
            above = [self._place.path, *map(str, Path(self._place.path).parents)]
            missing = [folder for folder in reversed(above) if not os.path.lexists(folder)]
            os.makedirs(self._place.path, exist_ok=True)
            self._made = self._made or missing

    def _earlier_session(self) -> str | None:
        try:
            return (self._folder / "session").read_text(encoding="ascii")
        except OSError:
            return None

    def _keep(self, name: str, text: str) -> None:
        with open(self._folder / name, "w", encoding="ascii", opener=open_private) as file:
            file.write(text)

    def _forget(self) -> None:
        remove_folder(str(self._folder / "journal"))
        for name in ("job", "session", "gateway.log"):
            (self._folder / name).unlink(missing_ok=True)


class _GuestRun:
    """The gateway of a guest in one run of its job, and the exchange with the service."""

    def __init__(self, client: ServiceClient, job_id: str, grant: Mapping[str, Any], host: GuestHost) -> None:
        self._client, self._job_id, self._session, self._host = client, job_id, grant["session"], host
        said = grant["join"]
        token = JoinToken(said["token_hex"], said["expires_unix_s"])
        self._join = Join(said["fleet"], said["name"], token, said["ca_pem"], said["owner"])
        #: The path of a socket must be short.
        self._sockets = tempfile.mkdtemp(prefix="tradewind-")
        self._control = GatewayClient(f"unix:{self._sockets}/control")
        self._version: dict[str, Any] | None = None
        self._failure: str | None = None
        self._answers: list[dict[str, Any]] = []
        self._events: deque[str] = deque()
        self._room = threading.Semaphore(EVENTS_WAITING_MAX)
        self._taken = 0
        self._has_program, self._leads = False, False
        #: The unfinished uploads that the service knows of.
        self._uploads: list[str] | None = None
        self._is_over, self._is_news = threading.Event(), threading.Event()
        try:
            self._process = host.start_gateway(self._join, f"{self._sockets}/control")
        except BaseException:
            shutil.rmtree(self._sockets, ignore_errors=True)
            raise

    def __enter__(self) -> _GuestRun:
        threading.Thread(target=self._wait_joined, name="guest joins", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._process.stop()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def serve(self, see: Callable[[Mapping[str, Any]], None]) -> None:
        """Answer the service until the run has ended."""
        next_look_s = 0.0
        while True:
            self._wait_for_news()
            if self._failure is None and self._process.exit_code is not None:
                self._failure = f"its gateway ended: {self._process.ending(0.0)}"
            report = self._report()
            try:
                said = self._client.exchange(self._job_id, report)
            except RunOver:
                return
            self._answers.clear()
            if report["uploads"] is not None:
                self._uploads = report["uploads"]
            while self._taken < said["events"]:
                self._events.popleft()
                self._taken += 1
                self._room.release()
            for asked in said["asked"]:
                self._answers.append({"number": asked["number"], **self._answer(asked)})
            if time.monotonic() >= next_look_s:
                see(self._client.job(self._job_id))
                next_look_s = time.monotonic() + 2 * POLL_S

    def _wait_for_news(self) -> None:
        """Wait for what the service should know, unless it will ask for something first."""
        if self._has_program or self._version is None:
            self._is_news.wait(JOINED_REPORT_S if self._has_program else REPORT_S)
        self._is_news.clear()

    def _report(self) -> dict[str, Any]:
        found = self._host.unfinished_uploads() if self._leads else None
        uploads = None if found is None else _within(found, UPLOADS_BYTES)
        return {
            "session": self._session,
            "version": self._version,
            "answers": self._answers,
            "first": self._taken,
            "events": _first_events(list(self._events)),
            "failure": self._failure,
            "uploads": None if uploads == self._uploads else uploads,
            "journal": self._host.journal_id() if self._leads else None,
            "waits": self._version is not None and not self._has_program,
        }

    def _wait_joined(self) -> None:
        """Wait until the gateway answers: it does once it has joined."""
        deadline_s = time.monotonic() + JOIN_S
        try:
            self._process.wait_ready(READY_S)
            while not self._is_over.is_set():
                with suppress(GatewayLost):
                    version = self._control.version(ANSWER_S)
                    self._version = {name: version[name] for name in ("gateway", "contract")}
                    self._is_news.set()
                    return
                if time.monotonic() >= deadline_s:
                    raise GatewayLost(f"it cannot join at {self._join.owner}")
        except GatewayError as error:
            self._failure = str(error)
            self._is_news.set()

    def _answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Do what the service asks for, if this host agrees."""
        try:
            if asked["kind"] == "program":
                program = self._host.program(asked["body"], self._join.owner)
                self._control.put_program(program)
                self._has_program = True
                self._is_news.set()  # The answer.
                if program.get("lead") is not None:
                    self._leads = True
                    threading.Thread(target=self._read_events, name="guest events", daemon=True).start()
            elif asked["kind"] == "drain":
                self._control.drain()
            elif asked["kind"] == "identity":
                is_new = asked["method"] == "PUT"
                body = json.dumps(asked["body"]).encode() if is_new else None
                method = "PUT" if is_new else "POST"
                said = request(self._control.control, method, IDENTITY, body, ANSWER_S, "the gateway")
                return {"body": json.loads(said) if said else {}}
            else:
                return {"error": "this host does not take such a request"}
        except GatewayError as error:
            return {"error": str(error), "hint": error.hint}
        except OSError as error:
            return {"error": str(error)}
        return {}

    def _read_events(self) -> None:
        """Keep the events of the lead for the next reports."""
        with suppress(GatewayError):
            for line in self._control.events():
                self._room.acquire()
                self._events.append(line.decode(errors="replace").rstrip("\n"))
                self._is_news.set()


def _first_events(waiting: Sequence[str]) -> list[str]:
    """Return the events for one report: with long names of objects, fewer fit."""
    return _within(waiting[:EVENTS_AT_ONCE], EVENTS_BYTES)


def _within(texts: Sequence[str], bytes_max: int) -> list[str]:
    """Return as many of the first texts as fit into a report, at least one."""
    found: list[str] = []
    for text in texts:
        bytes_max -= len(json.dumps(text))
        if bytes_max < 0 and found:
            break
        found.append(text)
    return found
