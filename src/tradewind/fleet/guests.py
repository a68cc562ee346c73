"""The desk of a guest: what its gateway is asked in one run, and what its client answers.

The engine controls each gateway over HTTP at a Unix socket. Nobody may control the gateway of a guest from outside its
host, so here that socket belongs to a desk. It passes few requests on, and the guest's client decides about each.

```text
engine, owner ──HTTP at a Unix socket──▶ desk ◀──claim, exchange── API of the service ◀──HTTPS── the guest's client
```

A desk serves one run. The first client that claims it gets the join document, and nobody else.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

from tradewind.errors import GuestAbsent, TradewindError
from tradewind.fleet.guest_uploads import KeptUploads, UploadsFull
from tradewind.fleet.sink_counts import SinkMeter
from tradewind.fleet.sockets import MACHINES, ControlFolder
from tradewind.fleet.source_counts import SourceMeter
from tradewind.gateway.client import REQUEST_S, GatewayClient
from tradewind.gateway.owner import Join
from tradewind.model.document import to_document
from tradewind.model.event import Progress
from tradewind.model.files import private_folder
from tradewind.model.guest import GUEST_JOIN_S, GUEST_SILENCE_S

__all__ = ["EVENTS_HELD_MAX", "DeskOver", "DeskTaken", "GuestDesk", "desk_of", "leave_guests"]

#: Maximum number of events that wait for the engine. The guest's client sends the others later.
EVENTS_HELD_MAX = 1024
#: Maximum number of requests that wait for the guest.
ASKED_MAX = 16
#: Maximum length of a request's body: a program has at most some kilobytes.
BODY_BYTES_MAX = 1 << 20
#: An empty line is sent in a stream of events after this time, as a gateway does.
QUIET_S = 5.0
#: Time after which a guest that has not joined is worth a word.
AWAITED_S = 5.0
#: Interval between two writes of a job's status.
STATUS_EVERY_S = 2.0
#: Requests that are passed on to the guest, by method and path.
PASSED = {
    ("PUT", "/v1/program"): "program",
    ("POST", "/v1/drain"): "drain",
    ("POST", "/v1/identity"): "identity",
    ("PUT", "/v1/identity"): "identity",
}
#: Outcomes after which a job that its lead has ended is not interrupted.
STATE_OF_OUTCOME = {
    "done": "done",
    "interrupted": "interrupted",
    "unavailable": "interrupted",
    "ceiling": "interrupted",
}

_desks: dict[str, GuestDesk] = {}


class DeskTaken(TradewindError):
    """Another client has claimed the desk."""


class DeskOver(TradewindError):
    """The run has ended, or the session is not that of the client which claimed the desk."""


def desk_of(guest: str) -> GuestDesk | None:
    """Return the desk of a guest in this process; None while no run of its job waits for it here."""
    return _desks.get(guest)


def leave_guests() -> None:
    """Note that no client can reach this process any more: the drain of a run ends the part of its guest at once."""
    for desk in list(_desks.values()):
        desk.is_left = True


class GuestDesk:
    """One guest in one run. Any thread may use it. Close it at the end of the run."""

    def __init__(self, guest: str, join: Join, folder: Path) -> None:
        """Listen at `NAME` in `folder`, which is made. Later claims of `guest` reach this desk."""
        self._guest, self.join = guest, join
        self.is_left = False
        self._changed = threading.Condition()
        self._session: str | None = None
        self._version: Mapping[str, Any] | None = None
        self._opened_s = self._seen_s = time.monotonic()
        self._opened_unix_ms = round(time.time() * 1000)
        self._asked: dict[int, dict[str, Any]] = {}
        self._answers: dict[int, Mapping[str, Any]] = {}
        self._number = 0
        self._events: deque[bytes] = deque()
        self._received = 0
        self._folder = folder
        self._state_dir: str | None = None
        self._status_s = 0.0
        #: The sink's own counts, and its control address, while a guest sends.
        self._meter: SinkMeter | None = None
        #: Count of what the service's gateways have sent, while a guest receives.
        self._sent: SourceMeter | None = None
        self._controls: ControlFolder | None = None
        #: The keys of the unfinished uploads of a guest that sends.
        self._uploads: KeptUploads | None = None
        self._progress: Mapping[str, Any] = to_document(Progress())
        self._summary: Mapping[str, Any] | None = None
        self._ending: str | None = None
        self._server = _listen(private_folder(folder) / join.name, self)
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name=f"guest {guest}", daemon=True).start()
        _desks[guest] = self

    def claim(self, earlier: str | None = None) -> str:
        """Return the session of the only client that may use the desk.

        `earlier` is the session of a client that was killed. If the desk has it, the run ends at once, instead of after
        GUEST_SILENCE_S, so that the next one can begin. Raises DeskTaken, DeskOver.
        """
        with self._changed:
            self._require_open()
            if self._session is not None:
                if earlier is not None and compare_digest(self._session.encode(), earlier.encode()):
                    self._end("its client was started again")
                    self._require_open()
                raise DeskTaken("another host has joined this run")
            self._session, self._seen_s = secrets.token_hex(16), time.monotonic()
            return self._session

    def say(
        self,
        session: str,
        version: Mapping[str, Any] | None,
        answers: Mapping[int, Mapping[str, Any]],
        first: int,
        events: Sequence[bytes],
        failure: str | None,
        uploads: Sequence[str] | None = None,
        journal: str | None = None,
    ) -> int:
        """Take what the client says, and return how many of its events were taken so far.

        `first` is the number of events before `events`; `uploads` are the keys of all unfinished uploads of its
        `journal`, if they have changed. Raises DeskOver; OSError if the end of the run cannot be kept: then it was not
        taken.
        """
        if self._meter is not None and any(json.loads(line)["event"] == "done" for line in events):
            self._meter.count()
        with self._changed:
            self._require_session(session)
            self._seen_s = time.monotonic()
            self._version = version or self._version
            if self._uploads is not None and uploads is not None:
                self._keep_uploads(self._uploads, uploads, journal)
            self._answers.update({number: each for number, each in answers.items() if self._asked.pop(number, None)})
            if first <= self._received:
                self._take(events[self._received - first :])
            if failure is not None:
                self._end(failure)
            self._changed.notify_all()
            return self._received

    def _keep_uploads(self, kept: KeptUploads, keys: Sequence[str], journal: str | None) -> None:
        try:
            with suppress(OSError):  # On a full disk, the next change is kept.
                kept.keep(keys, journal)
        except UploadsFull as error:
            self._end(str(error))

    def _take(self, events: Sequence[bytes]) -> None:
        for line in events[: max(0, EVENTS_HELD_MAX - len(self._events))]:
            if self._summary is None:
                self._events.append(self._seen(line))
            self._received += 1

    def asked(self, session: str) -> list[dict[str, Any]]:
        """Return the requests that the client has not answered. Raises DeskOver."""
        with self._changed:
            self._require_session(session)
            return list(self._asked.values())

    def ending(self) -> str | None:
        """Describe how the guest has gone; None while it is there or may still join."""
        with self._changed:
            if self._ending is None and self._session is not None and self._silent_s() > GUEST_SILENCE_S:
                self._end(f"its host was silent for {GUEST_SILENCE_S:.0f} s")
            return self._ending

    def require_joining(self) -> None:
        """Raise GuestAbsent if the guest has not joined in time, or could not."""
        ending = self.ending()
        if ending is None and self._version is None and time.monotonic() - self._opened_s >= GUEST_JOIN_S - 1:
            ending = f"it did not join within {GUEST_JOIN_S:.0f} s"
        if ending is not None and self._version is None:
            raise GuestAbsent(
                f"the host that sends or receives is missing: {ending}", hint="run the same command there again"
            )

    @property
    def sent_bytes(self) -> int:
        """Bytes that the service's gateways have sent to the guest in this run; 0 if it sends."""
        return 0 if self._sent is None else self._sent.sent_bytes

    @property
    def is_awaited(self) -> bool:
        """Return whether the guest should have joined by now, and has not."""
        return self._version is None and time.monotonic() - self._opened_s > AWAITED_S

    def count_sent(self) -> None:
        """Record what the guest was sent, before the source is ended."""
        if self._sent is not None:
            self._sent.count()

    def count_last(self) -> bool:
        """Record what the sink has written, before it is ended. Return whether the guest sends."""
        if self._meter is None:
            return False
        self._meter.count()
        with self._changed, suppress(OSError):  # A full disk must not keep the machines.
            if self._meter.has_written or self._summary is not None:
                self._write_status()
        return True

    def close(self) -> None:
        """End the desk: the client's next request is refused."""
        with self._changed:
            self._end("the run has ended")
        if self._meter is not None:
            self._meter.close()
        if self._sent is not None:
            self._sent.close()
        if self._controls is not None:
            self._controls.close()
        if _desks.get(self._guest) is self:
            del _desks[self._guest]
        self._server.shutdown()
        self._server.server_close()
        with suppress(OSError):
            os.unlink(str(self._server.server_address))

    def pass_on(self, kind: str, method: str, body: bytes) -> Mapping[str, Any] | None:
        """Ask the client, and return its answer; None if it does not answer in time or has gone."""
        with self._changed:
            if kind == "drain" and self.is_left:
                self._end("the service stops")
            if self._ending is not None or len(self._asked) >= ASKED_MAX:
                return None
            self._number += 1
            number = self._number
            document = json.loads(body) if body else None
            if kind == "program" and document is not None and document.get("lead") is not None:
                self._watch_sink(document)
            elif kind == "program" and self._sent is None:
                self._sent = SourceMeter(self._folder.parent, self.join.name)
            self._asked[number] = {"number": number, "kind": kind, "method": method, "body": document}
            self._changed.notify_all()
            deadline_s = time.monotonic() + REQUEST_S - 1
            while number not in self._answers and self._ending is None and time.monotonic() < deadline_s:
                self._changed.wait(1.0)
            self._asked.pop(number, None)
            return self._answers.pop(number, None)

    def next_events(self, timeout_s: float) -> list[bytes] | None:
        """Return the next events, none after the timeout; None once the guest has gone and all were returned."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            while not self._events:
                if self.ending() is not None:
                    return None
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return []
                self._changed.wait(min(1.0, left_s))
            found = list(self._events)
            self._events.clear()
            return found

    def version(self) -> Mapping[str, Any] | None:
        """Return the version of the guest's gateway; None before it has joined, and after it has gone."""
        return None if self.ending() is not None else self._version

    def _silent_s(self) -> float:
        return time.monotonic() - self._seen_s

    def _end(self, how: str) -> None:
        self._ending = self._ending or how
        self._changed.notify_all()

    def _require_open(self) -> None:
        if self._ending is not None:
            raise DeskOver(self._ending)

    def _require_session(self, session: str) -> None:
        self._require_open()
        if self._session is None or not compare_digest(self._session.encode(), session.encode()):
            raise DeskOver("no such session")

    def _watch_sink(self, program: Mapping[str, Any]) -> None:
        """Count at the sink of a lead's program, and keep the keys of its uploads."""
        lead = program["lead"]
        self._state_dir = lead.get("state_dir")
        if self._state_dir is not None:
            self._uploads = KeptUploads(self._state_dir, lead, self._opened_unix_ms)
        if self._state_dir is None or self._meter is not None or not program["routes"]:
            return
        self._controls = ControlFolder(self._folder.parent, name=MACHINES)
        sink = GatewayClient(self._controls.address(program["routes"][0]["nodes"][-1]))
        self._meter = SinkMeter(sink, self._state_dir, lead.get("ceiling_bytes"), self._stop_at_ceiling)

    def _stop_at_ceiling(self) -> None:
        """End the run as a lead does at its ceiling on bytes: the guest has sent more."""
        with self._changed:
            if self._summary is None and self._ending is None:
                message = "the host has sent more than the ceiling on bytes allows"
                last = {"event": "done", "outcome": "ceiling", "message": message, "progress": self._progress}
                self._events.append(self._seen(json.dumps(last).encode() + b"\n", must_be_kept=False))
                self._changed.notify_all()

    def _seen(self, line: bytes, *, must_be_kept: bool = True) -> bytes:
        """Return an event with counts that are at least the sink's, and keep the job's status by it.

        Raises OSError if the last event cannot be kept, as on a full disk, but must be: the job is charged by it.
        """
        document = json.loads(line)
        is_done = document["event"] == "done"
        if not is_done and document["event"] != "progress":
            return line
        said = document["progress"] if is_done else {k: v for k, v in document.items() if k != "event"}
        self._progress = said if self._meter is None else self._meter.corrected(said)
        if is_done:
            self._summary = {name: each for name, each in document.items() if name != "event"}
        if is_done or time.monotonic() >= self._status_s:
            try:
                self._write_status()
            except OSError:
                if is_done and must_be_kept:
                    self._summary = None
                    raise
        named = {"event": document["event"]}
        seen = {**document, "progress": self._progress} if is_done else {**named, **self._progress}
        return json.dumps(seen, ensure_ascii=False).encode() + b"\n"

    def _write_status(self) -> None:
        """Keep the status of the job in its folder, as a lead on this machine would."""
        if self._state_dir is None:
            return
        self._status_s = time.monotonic() + STATUS_EVERY_S
        progress, summary = self._progress, self._summary
        if self._meter is not None:
            progress = self._meter.corrected(progress)
        status = {
            "state": "running" if summary is None else STATE_OF_OUTCOME.get(summary["outcome"], "failed"),
            "progress": progress,
            "updated_unix_ms": round(time.time() * 1000),
            **({} if summary is None else {"summary": {**summary, "progress": progress}}),
        }
        fresh = os.path.join(self._state_dir, "status.json.new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(status, file)
        os.replace(fresh, os.path.join(self._state_dir, "status.json"))


class _DeskServer(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    desk: GuestDesk

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a connection that the engine has closed, as it does with the events of a run that is over."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _listen(path: Path, desk: GuestDesk) -> _DeskServer:
    """Return a server at a Unix socket. Its path may be too long, so a descriptor of its folder stands for that."""
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        server = _DeskServer(f"/proc/self/fd/{descriptor}/{path.name}", _Handler)
    finally:
        os.close(descriptor)
    server.server_address = str(path)
    server.desk = desk
    return server


class _Handler(BaseHTTPRequestHandler):
    """Answers as the control API of a gateway does. It closes the connection where a gateway would not answer yet."""

    server: _DeskServer

    def address_string(self) -> str:
        return "engine"

    def log_message(self, *_: Any) -> None:
        """Log nothing: bodies have secrets."""

    def do_GET(self) -> None:
        desk = self.server.desk
        if self.path == "/v1/version":
            version = desk.version()
            if version is not None:
                self._answer(200, version)
        elif self.path == "/v1/events":
            self._stream()
        elif self.path == "/metrics":
            self._answer(200, "")
        else:
            self._refuse()

    def do_PUT(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        if self.path == "/v1/lease":  # The guest's gateway ends with its client.
            self._body()
            if self.server.desk.version() is not None:
                self._answer(200, {})
            return
        self._pass_on()

    def _pass_on(self) -> None:
        kind, body = PASSED.get((self.command, self.path)), self._body()
        if kind is None or body is None:
            self._refuse()
            return
        answer = self.server.desk.pass_on(kind, self.command, body)
        if answer is not None:
            self._answer(200 if answer.get("error") is None else 409, answer.get("body") or answer)

    def _body(self) -> bytes | None:
        length = int(self.headers.get("content-length") or 0)
        return None if length > BODY_BYTES_MAX else self.rfile.read(length)

    def _stream(self) -> None:
        self.send_response(200)
        self.end_headers()
        while (lines := self.server.desk.next_events(QUIET_S)) is not None:
            self.wfile.write(b"".join(lines) or b"\n")
            self.wfile.flush()

    def _refuse(self) -> None:
        self._answer(409, {"error": "the gateway of a guest does not take this request", "hint": None})

    def _answer(self, status: int, content: Mapping[str, Any] | str) -> None:
        body = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
