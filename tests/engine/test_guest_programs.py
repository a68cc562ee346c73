"""A guest's own host decides what its gateway does, whatever the service proposes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tradewind.engine.compile import RunSettings, compile_programs
from tradewind.engine.guest_host import GuestHost
from tradewind.engine.guest_programs import GuestPlace, guest_program
from tradewind.engine.launch_spec import guest_launch
from tradewind.engine.service_client import ServiceClient
from tradewind.errors import GatewayError, JobFailed
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.owner import FleetOwner, JoinToken
from tradewind.model.document import to_document
from tradewind.model.guest import GUEST, Guest
from tradewind.model.job import JobSpec, ObjectSelection, PrefixSelection, Selection, Target
from tradewind.model.plan import Deployment, GatewayAddress
from tradewind.model.program import GatewayLimits, PrefixScope
from tradewind.model.store import StoreSpec

OWNER = "192.0.2.7:4000"
FILE = GuestPlace("source", "/home/ann/model.bin", "model.bin", is_folder=False)
FOLDER = GuestPlace("source", "/home/ann/run7", "run7", is_folder=True)
INTO = GuestPlace("destination", "/home/ann/got", "run7", is_folder=True)


def proposed(place: GuestPlace, address: str = "192.0.2.7:4001") -> dict[str, Any]:
    """Return what an honest service proposes to a guest."""
    selection: Selection = PrefixSelection("") if place.is_folder else ObjectSelection(place.name)
    here, there = StoreSpec("mem:"), StoreSpec("file:///data/dublin")
    ends = (here, there) if place.side == "source" else (there, here)
    key = (
        ("run7/" if place.is_folder else "model.bin")
        if place.side == "source"
        else ("" if place.is_folder else place.name)
    )
    job = JobSpec(ends[0], selection, (Target(ends[1], key),), state_dir="/srv/jobs/7", report_file="/srv/report")
    plan = guest_launch(Guest("g", place.side, "192.0.2.7")).plan
    addresses = {GUEST: GatewayAddress("unix:x", inbound=False), "service": GatewayAddress("unix:y", address)}
    programs = compile_programs(Deployment(plan, addresses), job, RunSettings("j-1", seal_key_hex="0" * 64))
    document: dict[str, Any] = to_document(programs[GUEST])
    return document


def made(document: dict[str, Any], place: GuestPlace) -> dict[str, Any]:
    found: dict[str, Any] = to_document(guest_program(document, place, OWNER, state_dir="/own/journal", is_begun=False))
    return found


@pytest.mark.parametrize("place", [FILE, FOLDER])
def test_a_source_reads_what_its_user_named(place: GuestPlace) -> None:
    document = proposed(place)
    for name in ("lead", "source"):
        inner = document[name] if name == "source" else document["lead"]["source"]
        inner |= {"url": "file:///etc", "follow_symlinks": True, "endpoint": "http://169.254.169.254"}
    document["lead"] |= {"delete_source": True, "allow_empty": True}
    program = made(document, place)
    own = StoreSpec("file:///home/ann/run7" if place.is_folder else "file:///home/ann")
    lead = program["lead"]
    assert program["source"] == lead["source"] == to_document(own)
    assert lead["selection"]["kind"] == ("prefix" if place.is_folder else "object")
    assert (lead["state_dir"], lead.get("report_file"), lead["delete_source"]) == ("/own/journal", None, False)
    assert lead["targets"][0]["store"]["url"] == "mem:" and program["sinks"] == []


def test_a_destination_writes_below_what_its_user_named() -> None:
    document = proposed(INTO)
    document["sinks"][0] |= {"url": "file:///", "follow_symlinks": True}
    program = made(document, INTO)
    assert program["sinks"] == [to_document(StoreSpec("file:///home/ann/got"))]
    assert program["writes"] == [{"kind": "prefix", "prefix": ""}]
    assert program.get("lead") is None and program.get("source") is None


@pytest.mark.parametrize("place", [FOLDER, INTO])
def test_a_service_cannot_ask_for_more_memory_than_the_default(place: GuestPlace) -> None:
    document = proposed(place)
    own = to_document(GatewayLimits())
    for name in ("memory_bytes", "dedup_window_bytes"):
        document["limits"][name] = 8 << 30
    assert {name: made(document, place)["limits"][name] for name in document["limits"]} == own


def change(*names: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    def apply(document: Any) -> None:
        for name in names[:-1]:
            document = document[name]
        document[names[-1]] = to

    return apply


ONE_FILE = {"kind": "object", "key": "model.bin"}
STORE = to_document(StoreSpec("file:///home/ann/.ssh"))


@pytest.mark.parametrize(
    ("place", "changed", "said"),
    [
        (FILE, change("lead", "selection", "key", to="../.ssh/id_ed25519"), "asks for other data"),
        (FILE, change("lead", "selection", to=to_document(PrefixSelection(""))), "asks for other data"),
        (FOLDER, change("lead", "selection", to=to_document(ObjectSelection("x"))), "asks for other data"),
        (FILE, change("sinks", to=[STORE]), "asks this host to do more than send"),
        (FILE, change("lead", to=None), "asks this host to do more than send"),
        (FILE, change("node", to="another"), "which is not this one"),
        (FILE, change("hops", 0, "address", to="10.0.0.1:22"), "a connection to another host"),
        (FILE, change("hops", 0, "address", to=None), "a connection to another host"),
        (FILE, change("routes", to="all"), "not valid"),
        (INTO, change("source", to=STORE), "asks this host to do more than receive"),
        (INTO, change("lead", to=proposed(FOLDER)["lead"]), "asks this host to do more than receive"),
        (INTO, change("sinks", to=[STORE, STORE]), "asks this host to do more than receive"),
        (INTO, change("writes", to=[ONE_FILE]), "asks to write other names"),
        (INTO, change("writes", to=[]), "asks to write other names"),
        (INTO, change("dials", 0, "address", to="10.0.0.1:22"), "a connection to another host"),
    ],
)
def test_a_proposal_for_something_else_is_refused(
    place: GuestPlace, changed: Callable[[dict[str, Any]], None], said: str
) -> None:
    document = proposed(place)
    changed(document)
    with pytest.raises(GatewayError, match=said):
        made(document, place)


class HostileService(ThreadingHTTPServer):
    """A service that asks the gateway of a guest for `wishes`, one after the other, and keeps its answers."""

    def __init__(self, join: dict[str, Any], wishes: list[dict[str, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), _Hostile)
        self.join, self.wishes = join, wishes
        self.answers: list[dict[str, Any]] = []
        self.version: Any = None


class _Hostile(BaseHTTPRequestHandler):
    server: HostileService

    def do_GET(self) -> None:
        is_over = len(self.server.answers) >= len(self.server.wishes)
        known = {"id": "j1", "waiting": None, "counts": None, "error": "it was caught", "hint": None}
        self._answer(200, {**known, "state": "failed" if is_over else "running"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.endswith("/guest"):
            return self._answer(201, {"session": "s", "join": self.server.join})
        self.server.version = body["version"]
        self.server.answers += body["answers"]
        number = len(self.server.answers)
        if number >= len(self.server.wishes):
            return self._answer(410, {"detail": "over"})
        asked = [{"number": number, **self.server.wishes[number]}] if body["version"] is not None else []
        return self._answer(200, {"asked": asked, "events": 0})

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def fleet_owner(folder: Path) -> Iterator[FleetOwner]:
    (folder / "fleet").mkdir(mode=0o700)
    (folder / "fleet" / "control").mkdir()
    log = str(folder / "owner.log")
    owner = FleetOwner(
        find_gateway(), "fleet", folder / "fleet", log, listen="127.0.0.1:0", enter=(), environment=dict(os.environ)
    )
    try:
        yield owner
    finally:
        owner.close(0.0)


def test_a_hostile_service_gets_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TRADEWIND_SERVICE_TOKEN", "token")
    lent, secret = tmp_path / "lent", tmp_path / "secret"
    for folder in (lent, secret):
        folder.mkdir()
        (folder / "file").write_text(folder.name)
    place = GuestPlace("source", str(lent / "file"), "file", is_folder=False)

    def wish(*changes: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        document = proposed(place, "127.0.0.1:9")
        for one in changes:
            one(document)
        return {"kind": "program", "method": "PUT", "body": document}

    store = to_document(StoreSpec(f"file://{secret}"))
    plain = compile_programs_of_a_thief(secret, tmp_path / "stolen")
    wishes = [
        wish(change("lead", "selection", "key", to="../secret/file")),
        wish(change("sinks", to=[store]), change("writes", to=[to_document(PrefixScope(""))])),
        {"kind": "program", "method": "PUT", "body": plain},
        {"kind": "split", "method": "PUT", "body": {"listen": "127.0.0.1:0"}},
        {"kind": "identity", "method": "DELETE", "body": {}},
    ]
    with fleet_owner(tmp_path) as owner:
        token = JoinToken.new()
        owner.add(GUEST, token, calls_home=True, dial="unix:guests/guest")
        given = {"fleet": "fleet", "name": GUEST, "token_hex": token.hex, "expires_unix_s": token.expires_unix_s}
        service = HostileService({**given, "ca_pem": owner.ca_pem, "owner": owner.home}, wishes)
        with service:
            Thread(target=service.serve_forever, daemon=True).start()
            client = ServiceClient(f"http://127.0.0.1:{service.server_port}")
            host = GuestHost(client, "service", place, "dublin", gateway=None)
            with pytest.raises(JobFailed, match="it was caught"):
                host.take_part("j1", lambda _: None)
            host.close()
            service.shutdown()
    assert service.version is not None, "the gateway joined"
    *refused, identity = service.answers
    assert all(answer["error"] for answer in refused), service.answers
    assert "private" not in json.dumps(identity).lower()
    assert not (tmp_path / "stolen").exists()
    assert [path.read_text() for path in (lent / "file", secret / "file")] == ["lent", "secret"]


def compile_programs_of_a_thief(secret: Path, stolen: Path) -> dict[str, Any]:
    """Return a valid program that would copy files inside the guest's host by its gateway alone."""
    job = JobSpec(StoreSpec(f"file://{secret}"), PrefixSelection(""), (Target(StoreSpec(f"file://{stolen}"), ""),))
    plan = guest_launch(Guest("g", "source", "127.0.0.1")).plan
    addresses = {GUEST: GatewayAddress("unix:x", inbound=False), "service": GatewayAddress("unix:y", "127.0.0.1:9")}
    program = to_document(compile_programs(Deployment(plan, addresses), job, RunSettings("j-1"))[GUEST])
    routes = [{**route, "nodes": [GUEST, GUEST, GUEST]} for route in program["routes"]]
    return {**program, "routes": routes, "hops": [], "sinks": [to_document(job.targets[0].store)]}
