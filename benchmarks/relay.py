"""``relay``: split proxies beside HAProxy, nginx and socat: CPU time, connections, added latency, idle memory.

Clients and destination are processes of this benchmark on the same machine, so rates are those of the whole machine,
while CPU times are those of the relay alone, kernel included. Each round runs every relay.
"""

from __future__ import annotations

import os
import resource
import selectors
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.forks import fork
from benchmarks.plots import Axis, bars
from benchmarks.relays import (
    Fleet,
    Relay,
    Start,
    haproxy,
    nginx,
    running,
    socat,
    tradewind_plain,
    tradewind_tls,
)
from testbed.debian import debian_program
from testbed.servers.install import InstallError
from testbed.servers.process import temporary_folder
from tradewind.gateway.binary import find_gateway

NGINX_STREAM = "lib/nginx/modules/ngx_stream_module.so"
"""Below the folder that has nginx in `sbin`."""
BLOCK_BYTES = 1 << 20
PING_BYTES = 64
FEW_IDLE = 200
"""Idle connections of socat, which has a process for each; its memory is extrapolated."""
IDLE = 10_000
"""Idle connections to which their memory is extrapolated."""
DIALERS = 16
"""Clients that open connections at the same time."""
PATIENCE_S = 120.0


class Sizes(NamedTuple):
    """The amounts that are measured."""

    volume_bytes: int
    connections: int
    pings: int
    idle: int
    rounds: int


FULL = Sizes(2 << 30, 4_000, 3_000, 9_900, 3)
QUICK = Sizes(256 << 20, 320, 200, 200, 1)


def run_relay(quick: bool) -> tuple[str, dict[str, Any]]:
    """Return the table as Markdown, and its rows."""
    sizes = QUICK if quick else FULL
    # Processes that it starts inherit the limit.
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))
    gateway, folder = find_gateway(), temporary_folder("relay")
    subprocess.run([gateway, "identity", "--out", folder / "fleet", "--name", "entry", "exit"], check=True)
    fleet = Fleet(Path(gateway), folder / "fleet")
    ways, versions = _ways()
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for _ in range(sizes.rounds):
        for name, start in ways.items():
            idle = min(sizes.idle, FEW_IDLE) if name == "socat" else sizes.idle
            measured[name].append(_measure(start, fleet, sizes._replace(idle=idle)))
    rows = [{"relay": name, **_medians(each)} for name, each in measured.items()]
    return _table(rows, versions), {"sizes": sizes._asdict(), "versions": versions, "rows": rows, "rounds": measured}


def _ways() -> tuple[dict[str, Start], list[str]]:
    """The relays that this machine has or can install, and their versions or why they are missing."""
    ways: dict[str, Start] = {"tradewind": tradewind_plain, "tradewind TLS": tradewind_tls}
    versions = []
    for name, option in (("haproxy", "-v"), ("nginx", "-v"), ("socat", "-V")):
        try:
            program = debian_program(name)
        except InstallError as error:
            versions.append(str(error))
            continue
        said = subprocess.run([program, option], capture_output=True, text=True, check=False)
        versions.append(next(line for line in (said.stdout + said.stderr).splitlines() if "version" in line))
        if name == "haproxy":
            ways |= {"HAProxy": haproxy(program, False, False), "HAProxy tuned": haproxy(program, True, False)}
            ways |= {"HAProxy TLS": haproxy(program, False, True), "HAProxy tuned TLS": haproxy(program, True, True)}
        elif name == "socat":
            ways |= {"socat": socat(program)}
        elif (module := Path(program).parents[1] / NGINX_STREAM).exists():
            ways |= {"nginx": nginx(program, str(module), False), "nginx TLS": nginx(program, str(module), True)}
        else:
            versions[-1] += " has no module stream here and is left out"
    return ways, versions


def _measure(start: Start, fleet: Fleet, sizes: Sizes) -> dict[str, float]:
    """All figures of one relay; each from a relay that did nothing before."""
    results: dict[str, float] = {}
    for part in (_volume, _connections, _latency, _idle):
        with _child(_Destinations.start(part)) as port, running(start, fleet, port) as relay:
            results |= part(relay, port, sizes)
    return results


class _Destinations:
    """The destinations behind the relay, one for each part."""

    @staticmethod
    def start(part: Callable[..., dict[str, float]]) -> Callable[[socket.socket], None]:
        return {_volume: _discard, _connections: _answer, _latency: _echo, _idle: _hold}[part]


def _volume(relay: Relay, _port: int, sizes: Sizes) -> dict[str, float]:
    """One flow from the client to the destination, which closes when it has everything."""
    block = memoryview(bytes(BLOCK_BYTES))
    before_s, begun_s = relay.cpu_s(), time.monotonic()
    with socket.create_connection(("127.0.0.1", relay.port), PATIENCE_S) as client:
        for _ in range(sizes.volume_bytes // BLOCK_BYTES):
            client.sendall(block)
        client.shutdown(socket.SHUT_WR)
        _expect(client.recv(1) == b"", "the destination closed")
    gb = sizes.volume_bytes / 1e9
    return {"cpu_s_per_gb": (relay.cpu_s() - before_s) / gb, "gb_per_s": gb / (time.monotonic() - begun_s)}


def _connections(relay: Relay, _port: int, sizes: Sizes) -> dict[str, float]:
    """Short flows: connect, get one byte, close."""

    def dial() -> None:
        for _ in range(sizes.connections // DIALERS):
            with socket.create_connection(("127.0.0.1", relay.port), PATIENCE_S) as client:
                _expect(client.recv(1) == b".", "an answer")

    before_s, begun_s = relay.cpu_s(), time.monotonic()
    children = [fork(dial) for _ in range(DIALERS)]
    statuses = [os.waitpid(child, 0)[1] for child in children]
    _expect(not any(statuses), "every client is served")
    spent_s = time.monotonic() - begun_s
    return {
        "connections_per_s": sizes.connections / spent_s,
        "cpu_us_per_connection": (relay.cpu_s() - before_s) / sizes.connections * 1e6,
    }


def _latency(relay: Relay, port: int, sizes: Sizes) -> dict[str, float]:
    """Round trips of small messages through the relay, less those without it, in turns [µs]."""
    taken: dict[int, list[float]] = {port: [], relay.port: []}
    with ExitStack() as stack:
        clients = {to: stack.enter_context(socket.create_connection(("127.0.0.1", to), PATIENCE_S)) for to in taken}
        for client in clients.values():
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(sizes.pings):
            for to, client in clients.items():
                begun_s = time.perf_counter()
                client.sendall(bytes(PING_BYTES))
                _expect(len(client.recv(PING_BYTES, socket.MSG_WAITALL)) == PING_BYTES, "an echo")
                taken[to].append((time.perf_counter() - begun_s) * 1e6)
    direct, relayed = (statistics.quantiles(times, n=100) for times in taken.values())
    return {"p50_us": relayed[49] - direct[49], "p99_us": relayed[98] - direct[98]}


def _idle(relay: Relay, _port: int, sizes: Sizes) -> dict[str, float]:
    """Memory of one process with 10,000 connections that carried a byte and are now idle."""
    clients = []
    try:
        for _ in range(sizes.idle):
            clients.append(client := socket.create_connection(("127.0.0.1", relay.port), PATIENCE_S))
            _expect(client.recv(1) == b".", "an answer")
        return {"idle_mb": relay.rss_bytes() / len(relay.processes) / sizes.idle * IDLE / 1e6}
    finally:
        for client in clients:
            client.close()


def _discard(listener: socket.socket) -> None:
    # A thread each: a relay may keep the connection that only asked whether it accepts.
    while True:
        threading.Thread(target=_discard_all, args=(listener.accept()[0],)).start()


def _discard_all(connection: socket.socket) -> None:
    block = bytearray(BLOCK_BYTES)
    with connection:
        while connection.recv_into(block):
            pass


def _echo(listener: socket.socket) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                ready: Any = key.fileobj
                if ready is listener:
                    accepted = listener.accept()[0]
                    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    selector.register(accepted, selectors.EVENT_READ)
                elif data := ready.recv(PING_BYTES):
                    ready.sendall(data)
                else:
                    selector.unregister(ready)
                    ready.close()


def _answer(listener: socket.socket) -> None:
    while True:
        with listener.accept()[0] as accepted:
            accepted.sendall(b".")


def _hold(listener: socket.socket) -> None:
    held = []
    while True:
        held.append(listener.accept()[0])
        held[-1].sendall(b".")


@contextmanager
def _child(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A process that serves a port."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        child = fork(lambda: serve(listener))
        try:
            yield listener.getsockname()[1]
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)


def _expect(happened: bool, what: str) -> None:
    if not happened:
        raise RuntimeError(f"the benchmark expected this: {what}")


def _medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


def plot_of_cpu(rows: Sequence[dict[str, Any]]) -> str:
    """Return a plot of the CPU time per GB of the relays that were measured plain and with TLS, socat left out."""
    cpu = {str(row["relay"]): float(row["cpu_s_per_gb"]) for row in rows}
    names = [name for name in cpu if f"{name} TLS" in cpu]
    groups = [{name: cpu[f"{name}{tls}"] for name in names} for tls in ("", " TLS")]
    y = Axis("CPU-s/GB", 0.0, 1.15 * max(max(group.values()) for group in groups))
    return bars("CPU time of relays", y, ["plain, one relay", "TLS, both relays"], groups)


def _table(rows: Sequence[dict[str, Any]], versions: Sequence[str]) -> str:
    lines = [
        "| relay | CPU-s/GB | GB/s | connections/s | CPU µs each | added p50 µs | p99 µs | idle MB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['relay']} | {row['cpu_s_per_gb']:.2f} | {row['gb_per_s']:.2f} | {row['connections_per_s']:,.0f} "
        f"| {row['cpu_us_per_connection']:,.0f} | {row['p50_us']:,.0f} | {row['p99_us']:,.0f} | {row['idle_mb']:,.0f} |"
        for row in rows
    ]
    note = "CPU of TLS rows is that of both proxies together; idle MB is that of one, for 10,000 connections."
    return "\n".join([*lines, "", f"{note} {'; '.join(versions)}."]) + "\n"
