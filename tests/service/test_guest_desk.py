"""The desk of a guest, without a service."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path

import pytest

from tests.service.server import WAIT_S
from tradewind.fleet.guests import GuestDesk, leave_guests
from tradewind.gateway.owner import Join, JoinToken
from tradewind.model.document import to_document
from tradewind.model.event import Progress


def test_a_server_that_stops_does_not_wait_for_its_guests(tmp_path: Path) -> None:
    """Its API is closed by then, so that no client hears of the drain."""
    desk = GuestDesk("g-1", Join("fleet", "guest", JoinToken("0" * 64, 0), "", "127.0.0.1:1"), tmp_path)
    try:
        desk.claim()
        leave_guests()
        assert desk.ending() is None  # The engine asks for a drain first: it would restart a lead that has ended.
        assert desk.pass_on("drain", "POST", b"") is None
        assert desk.ending() == "the service stops"
    finally:
        desk.close()


def test_a_desk_says_nothing_of_a_closed_connection(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    desk = GuestDesk("g-2", Join("fleet", "guest", JoinToken("0" * 64, 0), "", "127.0.0.1:1"), tmp_path)
    try:
        session, others = desk.claim(), set(threading.enumerate())
        with socket.socket(socket.AF_UNIX) as engine:
            engine.connect(str(tmp_path / "guest"))
            engine.sendall(b"GET /v1/events HTTP/1.1\r\n\r\n")
            assert engine.recv(100).startswith(b"HTTP/1.0 200")
        line = b'{"event": "notice", "message": "x"}\n'
        deadline_s = time.monotonic() + WAIT_S
        while set(threading.enumerate()) - others:
            assert time.monotonic() < deadline_s
            desk.say(session, None, {}, 0, [line] * 2_000, None)
            time.sleep(0.02)
    finally:
        desk.close()
    assert capfd.readouterr().err == ""


def test_the_end_of_a_run_is_not_lost_on_a_full_disk(tmp_path: Path) -> None:
    """The client sends it again until there is space. Counts before the end may be left out."""
    state, place = tmp_path / "state", {"url": "mem:"}
    desk = GuestDesk("g-3", Join("fleet", "guest", JoinToken("0" * 64, 0), "", "127.0.0.1:1"), tmp_path / "sockets")
    try:
        session = desk.claim()
        lead = {"state_dir": str(state), "targets": [{"store": place, "key": "a"}], "selection": {"kind": "object"}}
        desk._watch_sink({"lead": lead, "routes": []})
        progress = to_document(Progress(bytes_done=7))
        first = json.dumps({"event": "progress", **progress}).encode() + b"\n"
        last = json.dumps({"event": "done", "outcome": "done", "progress": progress}).encode() + b"\n"
        assert desk.say(session, None, {}, 0, [first], None) == 1
        with pytest.raises(FileNotFoundError):  # As any other error of its disk.
            desk.say(session, None, {}, 1, [last], None)
        state.mkdir()
        assert desk.say(session, None, {}, 1, [last], None) == 2
        assert [json.loads(line)["event"] for line in desk.next_events(0) or []] == ["progress", "done"]
        assert json.loads((state / "status.json").read_text())["state"] == "done"
    finally:
        desk.close()
