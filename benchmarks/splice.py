"""``splice``: what a relay would cost if the kernel moved the bytes from one socket to the other.

One process sends over loopback, one relays, one receives; each is one thread that only makes system calls. The relay
copies through a buffer, or splices through a pipe of that length. Ours splices. The congestion control is the machine's
default, or CUBIC, which hops inside one host have (docs/benchmarks.md).
"""

from __future__ import annotations

import fcntl
import os
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks.forks import fork

VOLUME_BYTES, QUICK_VOLUME_BYTES = 4 << 30, 64 << 20
ROUNDS, QUICK_ROUNDS = 5, 1
END_BYTES = 1 << 20
"""Buffer of the sender and of the receiver."""
BUFFERS_BYTES = (256 << 10, 1 << 20)
CONTROLS = ("default", "cubic")


class Cost(NamedTuple):
    """CPU seconds of the relay and of all three processes, and the time of the transfer."""

    relay_s: float
    all_s: float
    wall_s: float


def run_splice(quick: bool) -> tuple[str, dict[str, Any]]:
    """Return the table as Markdown, and its rows."""
    volume_bytes, rounds = (QUICK_VOLUME_BYTES, QUICK_ROUNDS) if quick else (VOLUME_BYTES, ROUNDS)
    moves = {"copy": _copy, "splice": _splice}
    ways = [(control, length, name) for control in CONTROLS for length in BUFFERS_BYTES for name in moves]
    # Each round runs every way, so that a change of the machine's speed meets all of them.
    costs = [
        [_relay(moves[name], length, control, volume_bytes) for control, length, name in ways] for _ in range(rounds)
    ]
    rows = [
        {"control": control, "way": name, "buffer_kib": length >> 10, **_middle(each, volume_bytes)}
        for (control, length, name), each in zip(ways, zip(*costs, strict=True), strict=True)
    ]
    lines = ["| congestion control | relay | buffer KiB | relay CPU-s/GB | all three CPU-s/GB | GB/s |"]
    lines.append("|---|---|---:|---:|---:|---:|")
    lines += [
        f"| {row['control']} | {row['way']} | {row['buffer_kib']:,} | {row['relay']:.3f} | {row['all']:.3f} "
        f"| {row['gb_per_s']:.2f} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n", {"volume_bytes": volume_bytes, "rounds": rounds, "rows": rows}


def _middle(costs: Sequence[Cost], volume_bytes: int) -> dict[str, float]:
    volume_gb = volume_bytes / 1e9
    return {
        "relay": statistics.median(cost.relay_s for cost in costs) / volume_gb,
        "all": statistics.median(cost.all_s for cost in costs) / volume_gb,
        "gb_per_s": volume_gb / statistics.median(cost.wall_s for cost in costs),
    }


def _relay(move: Callable[[int, int, int], None], buffer_bytes: int, control: str, volume_bytes: int) -> Cost:
    """Move the volume through a relay."""
    with socket.create_server(("127.0.0.1", 0)) as entry, socket.create_server(("127.0.0.1", 0)) as end:

        def relay() -> None:
            with entry.accept()[0] as before, _connect(end.getsockname(), control) as after:
                move(before.fileno(), after.fileno(), buffer_bytes)

        begun_s = _now_s()
        parts = (lambda: _send(entry.getsockname(), control, volume_bytes), relay, lambda: _receive(end, volume_bytes))
        children = [fork(part) for part in parts]
        spent_s = [_end(child) for child in children]
        return Cost(spent_s[1], sum(spent_s), _now_s() - begun_s)


def _end(child: int) -> float:
    """Wait for a process; return its CPU time [s]."""
    _, status, used = os.wait4(child, 0)
    if status != 0:
        raise RuntimeError(f"a process of the benchmark ended with status {status}")
    return used.ru_utime + used.ru_stime


def _connect(address: tuple[str, int], control: str) -> socket.socket:
    connection = socket.socket()
    if control != "default":
        # Later would be too late: once a connection paces, it continues to.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    connection.connect(address)
    return connection


def _send(address: tuple[str, int], control: str, volume_bytes: int) -> None:
    block = memoryview(bytes(END_BYTES))
    with _connect(address, control) as connection:
        for _ in range(volume_bytes // END_BYTES):
            connection.sendall(block)


def _receive(end: socket.socket, volume_bytes: int) -> None:
    block, left = bytearray(END_BYTES), volume_bytes
    with end.accept()[0] as connection:
        while count := connection.recv_into(block):
            left -= count
    if left:
        raise RuntimeError(f"{left} bytes did not arrive")


def _copy(before: int, after: int, buffer_bytes: int) -> None:
    block = memoryview(bytearray(buffer_bytes))
    while count := os.readv(before, [block]):
        sent = 0
        while sent < count:
            sent += os.write(after, block[sent:count])


def _splice(before: int, after: int, buffer_bytes: int) -> None:
    out, into = os.pipe()
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, buffer_bytes)
    while count := os.splice(before, into, buffer_bytes):
        while count:
            count -= os.splice(out, after, count)


def _now_s() -> float:
    return time.monotonic()
