"""Split proxies that two gateways of a fleet run for its owner, with the identities with which they enrolled."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tradewind.errors import GatewayError
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.client import GatewayClient
from tradewind.gateway.owner import FleetOwner, JoinToken
from tradewind.gateway.process import STOP_S, GatewayProcess
from tradewind.model.program import CONTRACT_VERSION
from tradewind.model.records import replace
from tradewind.model.split import SplitLimits, SplitListener, SplitProgram, SplitRoute, SplitStatus

BINARY = find_gateway()
PATIENCE_S = 20.0
BLOCK = os.urandom(1 << 20)
BLOCKS = 16
TOKEN = "a random token"
HASH = hashlib.sha256(TOKEN.encode()).hexdigest()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def fleet(stack: ExitStack, tmp_path: Path) -> dict[str, GatewayClient]:
    """Start a fleet's owner and two gateways that enrol. Return their clients."""
    folder = tmp_path / "fleet"
    folder.mkdir(mode=0o700)
    log = str(tmp_path / "owner.log")
    owner = FleetOwner(BINARY, "fleet-1", folder, log, listen="127.0.0.1:0", enter=(), environment=os.environ)
    stack.callback(owner.close, STOP_S)
    clients = {}
    for name in ("entry", "exit"):
        token = JoinToken.new()
        owner.add(name, token, calls_home=True)
        line = owner.join(name, token).calling("127.0.0.1:0")
        process = GatewayProcess(BINARY, name, ["--join", "-"], f"{tmp_path}/{name}.log", input_line=line)
        stack.callback(process.stop)
        process.wait_ready()
        clients[name] = GatewayClient(f"unix:{folder}/control/{name}")
    return clients


def server(stack: ExitStack) -> tuple[socket.socket, str]:
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    listener.settimeout(PATIENCE_S)
    return listener, f"127.0.0.1:{listener.getsockname()[1]}"


def exit_program(*allow: str) -> SplitProgram:
    return SplitProgram((SplitListener("127.0.0.1:0", "hop"),), allow)


def entry_program(exit_address: str, *allow: str, hashed: str = HASH, through: tuple[str, ...] = ()) -> SplitProgram:
    routes = tuple(SplitRoute(to, through) for to in allow)
    listener = SplitListener("127.0.0.1:0", "socks5", tokens={"ann": hashed})
    return SplitProgram((listener,), allow, {"exit": exit_address}, routes, SplitLimits(drain_timeout_ms=60_000))


def received(connection: socket.socket, size: int) -> bytes:
    """Return the next `size` bytes; fewer at the end of the stream."""
    blocks = []
    while size > 0 and (block := connection.recv(size)):
        blocks.append(block)
        size -= len(block)
    return b"".join(blocks)


def socks5(stack: ExitStack, proxy: str, to: str, token: str = TOKEN) -> socket.socket | str:
    """Connect to `to` through a proxy (RFC 1928, RFC 1929). Return the connection, or why there is none."""
    host, _, port = proxy.rpartition(":")
    client = stack.enter_context(socket.create_connection((host, int(port)), PATIENCE_S))
    client.sendall(b"\x05\x01\x02")
    assert received(client, 2) == b"\x05\x02"
    client.sendall(b"\x01\x03ann" + bytes([len(token)]) + token.encode())
    if received(client, 2) != b"\x01\x00":
        return "unauthenticated"
    to_host, _, to_port = to.rpartition(":")
    client.sendall(b"\x05\x01\x00\x01" + socket.inet_aton(to_host) + int(to_port).to_bytes(2, "big"))
    answer = received(client, 10)
    return client if answer[1] == 0 else f"answer {answer[1]}"


def opened(stack: ExitStack, proxy: str, to: str, listener: socket.socket) -> tuple[socket.socket, socket.socket]:
    client = socks5(stack, proxy, to)
    assert isinstance(client, socket.socket)
    far, _ = listener.accept()
    stack.enter_context(far)
    far.settimeout(PATIENCE_S)
    return client, far


def carry(client: socket.socket, far: socket.socket, blocks: int) -> None:
    """Send blocks to the destination while it reads them, and compare them."""

    def send() -> None:
        for _ in range(blocks):
            client.sendall(BLOCK)

    sender = threading.Thread(target=send)
    sender.start()
    for _ in range(blocks):
        assert received(far, len(BLOCK)) == BLOCK
    sender.join()


def until(client: GatewayClient, wanted: Callable[[SplitStatus], bool]) -> SplitStatus:
    end = time.monotonic() + PATIENCE_S
    while not wanted(status := client.split_status()):
        assert time.monotonic() < end, status
        time.sleep(0.01)
    return status


def test_two_gateways_carry_flows_take_new_routes_and_drain(fleet: dict[str, GatewayClient], stack: ExitStack) -> None:
    (first, to), (second, elsewhere) = server(stack), server(stack)
    entry, exit_ = fleet["entry"], fleet["exit"]
    with pytest.raises(GatewayError, match="no split proxy"):
        entry.split_status()
    hop = exit_.put_split(exit_program(to)).listening[0]
    started = entry.put_split(entry_program(hop, to, through=("exit",)))
    (proxy,) = started.listening
    assert (started.state, started.accepted) == ("running", 0)

    old, old_far = opened(stack, proxy, to, first)
    carry(old, old_far, BLOCKS)
    assert socks5(stack, proxy, to, "another token") == "unauthenticated"
    assert socks5(stack, proxy, elsewhere) == "answer 2"

    entry.put_split(entry_program(hop, to, elsewhere))
    new, new_far = opened(stack, proxy, elsewhere, second)
    carry(new, new_far, 1)
    carry(old, old_far, 1)
    entry.put_split(entry_program(hop, elsewhere, hashed="0" * 64))
    assert socks5(stack, proxy, elsewhere) == "unauthenticated"

    size = len(BLOCK)
    status = until(entry, lambda status: status.bytes_up == (BLOCKS + 2) * size)
    counted = {(each.destination, each.through): (each.connections, each.bytes_up) for each in status.traffic}
    assert counted == {(to, ("exit",)): (1, (BLOCKS + 1) * size), (elsewhere, ()): (1, size)}
    assert status.refused == {"unauthenticated": 2, "not_allowed": 1}
    assert (status.open, status.hops["exit"].dialed) == (2, 1)
    assert until(exit_, lambda status: status.bytes_up == (BLOCKS + 1) * size).open == 1

    ended: list[SplitStatus] = []
    ending = threading.Thread(target=lambda: ended.append(entry.end_split()))
    ending.start()
    until(entry, lambda status: status.state == "draining")
    with pytest.raises(GatewayError, match="draining"):
        entry.put_split(entry_program(hop, to))
    carry(old, old_far, 1)
    for connection in (old, old_far, new, new_far):
        connection.shutdown(socket.SHUT_WR)
    ending.join()
    assert [(status.state, status.open, status.closed, status.reset) for status in ended] == [("ended", 0, 2, 0)]
    assert exit_.end_split(0).bytes_up == (BLOCKS + 2) * size
    with pytest.raises(ConnectionRefusedError):
        socks5(stack, proxy, to)


def test_an_exit_serves_its_own_destinations_only_and_a_short_drain_resets(
    fleet: dict[str, GatewayClient], stack: ExitStack
) -> None:
    (listener, to), (_, elsewhere) = server(stack), server(stack)
    entry, exit_ = fleet["entry"], fleet["exit"]
    hop = exit_.put_split(exit_program(to)).listening[0]
    (proxy,) = entry.put_split(entry_program(hop, to, elsewhere, through=("exit",))).listening
    assert socks5(stack, proxy, elsewhere) == "answer 2"
    assert exit_.split_status().refused == {"not_allowed": 1}
    client, _ = opened(stack, proxy, to, listener)
    assert entry.end_split(0).reset + entry.split_status().open == 0
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_a_hop_takes_over_the_data_port_until_it_ends_and_a_program_keeps_it(
    fleet: dict[str, GatewayClient], stack: ExitStack
) -> None:
    listener, to = server(stack)
    entry, exit_ = fleet["entry"], fleet["exit"]
    data = exit_.version()["data_address"]
    program = SplitProgram((SplitListener("data", "hop"),), (to,))
    for _ in range(2):
        assert exit_.put_split(program).listening == (data,)
        (proxy,) = entry.put_split(entry_program(data, to, through=("exit",))).listening
        carry(*opened(stack, proxy, to, listener), 1)
        with pytest.raises(GatewayError, match="the split proxy of this gateway uses its data port"):
            exit_.put_program(relay_program("exit"))
        entry.end_split(0)
        assert exit_.end_split(0).bytes_up == len(BLOCK)
    exit_.put_program(relay_program("exit"))
    with pytest.raises(GatewayError, match="the data port is used by the program of job j") as refused:
        exit_.put_split(program)
    assert refused.value.hint == "use a gateway without a program"
    assert exit_.put_split(exit_program(to)).state == "running"


def relay_program(name: str) -> dict[str, object]:
    """Return the program of a relay whose next gateway is not there."""
    route = {"id": 1, "nodes": ["lead", "source", name, "sink"], "share": 1.0, "usd_per_gb": 0.0}
    hop = {"to": "sink", "address": "127.0.0.1:9", "connections": 1}
    return {"contract": CONTRACT_VERSION, "job_id": "j", "node": name, "routes": [route], "hops": [hop]}


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (SplitProgram((SplitListener("0.0.0.0:0", "socks5"),), ()), "other machines need `tokens`"),
        (SplitProgram((SplitListener("127.0.0.1:0", "hop"),), ("*:1",)), "allow"),
        (SplitProgram((SplitListener("data", "hop"),), ()), "no data port"),
        (SplitProgram((SplitListener("data", "socks5"),), ()), "only the way in `hop`"),
        (SplitProgram((SplitListener("127.0.0.1:0", "socks5", tokens={"ann": TOKEN}),), ()), "ann"),
    ],
)
def test_a_program_that_would_be_unsafe_is_refused(program: SplitProgram, reason: str, tmp_path: Path) -> None:
    process = GatewayProcess(BINARY, "local", ["--control", f"unix:{tmp_path}/s"], str(tmp_path / "log"))
    try:
        process.wait_ready()
        with pytest.raises(GatewayError, match=reason) as refused:
            GatewayClient(process.control).put_split(program)
        assert TOKEN not in str(refused.value) and refused.value.hint
    finally:
        process.stop()


def test_flows_take_ready_connections_and_the_metrics_show_it(
    fleet: dict[str, GatewayClient], stack: ExitStack
) -> None:
    listener, to = server(stack)
    entry, exit_ = fleet["entry"], fleet["exit"]
    hop = exit_.put_split(exit_program(to)).listening[0]
    program = entry_program(hop, to)
    named = replace(program.listeners[0], name="mine", routes=(SplitRoute(to, ("exit",)),))
    (proxy,) = entry.put_split(replace(program, listeners=(named,), limits=SplitLimits(pool=2))).listening
    for number in range(2):
        client, far = opened(stack, proxy, to, listener)
        far.sendall(BLOCK[:1])
        assert received(client, 1) == BLOCK[:1]
        status = until(entry, lambda status: status.hops["exit"].ready == 2)
        assert (status.hops["exit"].missed, status.hops["exit"].taken) == (1, number)
    assert (status.hops["exit"].first_byte_ms_taken or 0) > 0 and (status.hops["exit"].first_byte_ms_missed or 0) > 0
    assert [(each.listener, each.through, each.connections) for each in status.traffic] == [("mine", ("exit",), 2)]
    assert 'tradewind_split_hop_flows_total{to="exit",source="taken"} 1\n' in entry.metrics()
    until(exit_, lambda status: (status.open, status.waiting) == (2, 2))
    # Nothing that is only ready keeps a proxy from ending.
    ended = entry.end_split(0)
    assert ended.state == "ended" and ended.hops["exit"].ready == 0
    assert until(exit_, lambda status: status.waiting == 0).unused == 2
