"""Gateways and owners whose ports strangers flood: logs stay short, and honest gateways still enrol."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from testbed.servers.process import free_port
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.owner import FleetOwner, JoinToken
from tradewind.gateway.process import STOP_S, GatewayProcess

BINARY = find_gateway()
REFUSAL_LINES_MAX = 20
"""Value in crates/gateway/src/limits.rs."""
STRANGERS = 300
STRANGERS_AT_ONCE = 100
"""Strangers that arrive between two messages of an enrolment. At 300 a second, a round trip of a third of a second."""
SILENCE_S = 20.0
LOOK_S = 0.1
"""Interval at which threads look whether they should end."""
ENROLLED_S = 60.0


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[FleetOwner]:
    folder = tmp_path / "fleet"
    folder.mkdir(mode=0o700)
    log = str(tmp_path / "owner.log")
    owner = FleetOwner(BINARY, "fleet-1", folder, log, listen="127.0.0.1:0", enter=(), environment=os.environ)
    yield owner
    owner.close(STOP_S)


def address_of(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def wait_until_enrolled(owner: FleetOwner) -> None:
    end = time.monotonic() + ENROLLED_S
    while not owner.states()["relay"]["enrolled"]:
        assert time.monotonic() < end, "the gateway has not enrolled"
        time.sleep(0.05)


def flood(address: tuple[str, int]) -> None:
    """Open connections one after the other that do not speak TLS, and wait until each is closed."""
    for _ in range(STRANGERS):
        with socket.create_connection(address, SILENCE_S) as connection, suppress(ConnectionError):
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while connection.recv(4096):
                pass


def refusals(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if "refused" in line]


def test_strangers_do_not_fill_the_log_of_an_owner(owner: FleetOwner, tmp_path: Path) -> None:
    flood(address_of(owner.home))
    owner.close(STOP_S)
    assert len(refusals(tmp_path / "owner.log")) == REFUSAL_LINES_MAX


def test_strangers_do_not_fill_the_log_of_a_gateway(owner: FleetOwner, tmp_path: Path) -> None:
    token = JoinToken.new()
    address = f"127.0.0.1:{free_port()}"
    line = owner.join("relay", token).listening(address, "127.0.0.1:0")
    process = GatewayProcess(BINARY, "relay", ["--join", "-"], str(tmp_path / "relay.log"), input_line=line)
    try:
        process.wait_ready()
        flood(address_of(process.control))
        while_joining = refusals(tmp_path / "relay.log")
        owner.add("relay", token, dial=process.control)
        wait_until_enrolled(owner)
        flood(address_of(process.control))
    finally:
        process.stop()
    assert len(while_joining) == REFUSAL_LINES_MAX
    assert len(refusals(tmp_path / "relay.log")) == 2 * REFUSAL_LINES_MAX


class Crowd:
    """A port before an owner. Before it passes on a message for the owner, many strangers connect to the owner."""

    def __init__(self, owner: tuple[str, int]) -> None:
        self._owner = owner
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._connections = ExitStack()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(LOOK_S)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.strangers = 0
        self._run(self._accept)

    def close(self) -> None:
        """Close all connections, and wait for the threads that use them."""
        self._closing.set()
        while self._threads:
            self._threads.pop().join()
        self._listener.close()
        self._connections.close()

    def _run(self, work: Callable[..., None], *words: object) -> None:
        thread = threading.Thread(target=work, args=words, daemon=True)
        thread.start()
        # Whoever joins the thread that runs this finds the new one afterwards.
        self._threads.append(thread)

    def _accept(self) -> None:
        while not self._closing.is_set():
            with suppress(TimeoutError):
                client, _ = self._listener.accept()
                self._run(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(self._owner) as owner:
            self._run(pipe, owner, client)
            while message := self._received(client):
                self._let_strangers_in()
                owner.sendall(message)
            owner.shutdown(socket.SHUT_RDWR)

    def _received(self, client: socket.socket) -> bytes:
        """Return the next message; none when the client or the crowd is closed."""
        while not self._closing.is_set():
            if select.select([client], [], [], LOOK_S)[0]:
                return client.recv(1 << 16)
        return b""

    def _let_strangers_in(self) -> None:
        for _ in range(STRANGERS_AT_ONCE):
            number = self.strangers = self.strangers + 1
            source = (f"127.1.{number // 250 % 250}.{1 + number % 250}", 0)
            stranger = socket.create_connection(self._owner, SILENCE_S, source)
            self._connections.enter_context(closing(stranger))


def pipe(start: socket.socket, end: socket.socket) -> None:
    with suppress(OSError):
        while piece := start.recv(1 << 16):
            end.sendall(piece)
    with suppress(OSError):
        end.shutdown(socket.SHUT_WR)


def test_a_gateway_enrols_among_many_strangers_of_many_addresses(owner: FleetOwner, tmp_path: Path) -> None:
    token = JoinToken.new()
    join = owner.join("relay", token)
    owner.add("relay", token, calls_home=True)
    crowd = Crowd(address_of(owner.home))
    document = json.loads(join.calling("127.0.0.1:0"))
    document["control"]["owner"] = crowd.address
    line = json.dumps(document)
    process = GatewayProcess(BINARY, "relay", ["--join", "-"], str(tmp_path / "relay.log"), input_line=line)
    try:
        wait_until_enrolled(owner)
        assert crowd.strangers >= STRANGERS_AT_ONCE
    finally:
        process.stop()
        crowd.close()
