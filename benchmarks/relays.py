"""The programs that `relay` compares: each forwards a port to a destination, alone (plain) or as a pair (mutual TLS).

All pairs use the same identities and TLS 1.3 without resumption, with each program's default cipher and key exchange.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.servers.process import free_port, guarded

CONNECTIONS_MAX = 9_960
"""Of a relay, which needs two files for each, and a few more. The usual limit is 20,000 files."""
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 5.0
POLL_S = 0.02


@dataclass(frozen=True)
class Fleet:
    """Identities for both ends of a hop: ``FOLDER/entry`` and ``FOLDER/exit``, each with ca.pem, cert.pem, key.pem."""

    gateway: Path
    folder: Path

    def both(self, name: str) -> Path:
        """Return a file with the certificate and the key, as HAProxy reads them."""
        path = self.folder / f"{name}.pem"
        path.write_text((self.folder / name / "cert.pem").read_text() + (self.folder / name / "key.pem").read_text())
        return path


@dataclass(frozen=True)
class Relay:
    """Running processes, from the clients to the destination."""

    port: int
    processes: Sequence[subprocess.Popen[bytes]]

    def cpu_s(self) -> float:
        """CPU seconds of all processes so far, kernel included, also of children that have ended."""
        sessions = {process.pid for process in self.processes}
        ticks = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) in sessions:
                ticks += sum(int(field) for field in fields[11:15])
        return ticks / os.sysconf("SC_CLK_TCK")

    def rss_bytes(self) -> int:
        """Memory of all processes: private pages, and the share of each in common ones."""
        sessions = {process.pid for process in self.processes}
        total = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                if int(path.read_text().rpartition(")")[2].split()[3]) in sessions:
                    lines = path.with_name("smaps_rollup").read_text().splitlines()
                    total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
            except (FileNotFoundError, ProcessLookupError):
                continue
        return total


Start = Callable[[ExitStack, Fleet, int], Relay]
"""Starts a relay to a port of this machine."""


@contextmanager
def running(start: Start, fleet: Fleet, destination: int) -> Iterator[Relay]:
    """A relay, stopped at the end."""
    with ExitStack() as stack:
        yield start(stack, fleet, destination)


def tradewind_plain(stack: ExitStack, fleet: Fleet, destination: int) -> Relay:
    """One split proxy."""
    port, to = free_port(), f"127.0.0.1:{destination}"
    return Relay(port, [_split(stack, fleet, port, {"way": "forward", "destination": to}, {"allow": [to]})])


def tradewind_tls(stack: ExitStack, fleet: Fleet, destination: int) -> Relay:
    """An entry and an exit."""
    port, middle, to = free_port(), free_port(), f"127.0.0.1:{destination}"
    exit_ = {"allow": [to], "identity": str(fleet.folder / "exit")}
    entry = {
        "allow": [to],
        "identity": str(fleet.folder / "entry"),
        "proxies": {"exit": f"127.0.0.1:{middle}"},
        "routes": [{"destination": to, "through": ["exit"]}],
    }
    return Relay(
        port,
        [
            _split(stack, fleet, middle, {"way": "hop"}, exit_),
            _split(stack, fleet, port, {"way": "forward", "destination": to}, entry),
        ],
    )


def _split(
    stack: ExitStack, fleet: Fleet, port: int, listener: Mapping[str, object], config: Mapping[str, object]
) -> subprocess.Popen[bytes]:
    names = ("connections_max", *(f"connections_per_{of}_max" for of in ("client", "proxy", "destination")))
    limits = {**dict.fromkeys(names, CONNECTIONS_MAX), "accepts_per_second_max": 1_000_000}
    path = fleet.folder / f"{port}.json"
    listeners = [{"listen": f"127.0.0.1:{port}", **listener}]
    path.write_text(json.dumps({"listeners": listeners, "limits": limits, **config}))
    return _spawn(stack, [str(fleet.gateway), "split", "--config", str(path)], port)


def haproxy(program: str, tuned: bool, tls: bool) -> Start:
    """HAProxy as its packages configure it, or with `splice` and buffers of 64 KiB."""

    def start(stack: ExitStack, fleet: Fleet, destination: int) -> Relay:
        port, middle, to = free_port(), free_port(), f"127.0.0.1:{destination}"
        if not tls:
            return Relay(port, [run(stack, fleet, port, f"bind 127.0.0.1:{port}", f"server to {to}")])
        ca = fleet.folder / "entry" / "ca.pem"
        accepted = f"bind 127.0.0.1:{middle} ssl crt {fleet.both('exit')} ca-file {ca} verify required"
        dialed = f"server to 127.0.0.1:{middle} ssl crt {fleet.both('entry')} ca-file {ca} verify required"
        exit_ = run(stack, fleet, middle, accepted, f"server to {to}")
        entry = run(stack, fleet, port, f"bind 127.0.0.1:{port}", f"{dialed} verifyhost exit no-ssl-reuse")
        return Relay(port, [exit_, entry])

    def run(stack: ExitStack, fleet: Fleet, port: int, bind: str, server: str) -> subprocess.Popen[bytes]:
        path = fleet.folder / f"haproxy-{port}.cfg"
        settings = "tune.bufsize 65536\n tune.pipesize 1048576\n maxpipes 16\n" if tuned else ""
        splice = "option splice-auto\n" if tuned else ""
        path.write_text(
            f"global\n maxconn {CONNECTIONS_MAX}\n ssl-default-bind-options ssl-min-ver TLSv1.3\n"
            f" ssl-default-server-options ssl-min-ver TLSv1.3\n {settings}"
            f"defaults\n mode tcp\n timeout connect 10s\n timeout client 1h\n timeout server 1h\n {splice}"
            f"listen all\n maxconn {CONNECTIONS_MAX}\n {bind}\n {server}\n"
        )
        return _spawn(stack, [program, "-db", "-f", str(path)], port)

    return start


def nginx(program: str, module: str, tls: bool) -> Start:
    """The stream module of nginx, a worker per core."""

    def start(stack: ExitStack, fleet: Fleet, destination: int) -> Relay:
        port, middle, to = free_port(), free_port(), f"127.0.0.1:{destination}"
        if not tls:
            return Relay(port, [run(stack, fleet, port, "", "", to)])
        entry, exit_ = fleet.folder / "entry", fleet.folder / "exit"
        accepted = (
            f"ssl_certificate {exit_}/cert.pem; ssl_certificate_key {exit_}/key.pem; ssl_protocols TLSv1.3; "
            f"ssl_client_certificate {exit_}/ca.pem; ssl_verify_client on;"
        )
        dialed = (
            f"proxy_ssl on; proxy_ssl_certificate {entry}/cert.pem; proxy_ssl_certificate_key {entry}/key.pem; "
            f"proxy_ssl_trusted_certificate {entry}/ca.pem; proxy_ssl_verify on; proxy_ssl_name exit; "
            "proxy_ssl_session_reuse off; proxy_ssl_protocols TLSv1.3;"
        )
        last = run(stack, fleet, middle, "ssl", accepted, to)
        return Relay(port, [last, run(stack, fleet, port, "", dialed, f"127.0.0.1:{middle}")])

    def run(stack: ExitStack, fleet: Fleet, port: int, ssl: str, settings: str, to: str) -> subprocess.Popen[bytes]:
        path = fleet.folder / f"nginx-{port}.conf"
        path.write_text(
            f"load_module {module};\ndaemon off; pid {path}.pid; error_log stderr crit; worker_processes auto;\n"
            f"events {{ worker_connections {CONNECTIONS_MAX * 2}; }}\n"
            f"stream {{ server {{ listen 127.0.0.1:{port} {ssl} backlog=4096; proxy_timeout 1h; {settings} "
            f"proxy_pass {to}; }} }}\n"
        )
        return _spawn(stack, [program, "-e", "stderr", "-c", str(path)], port)

    return start


def socat(program: str) -> Start:
    """A process for each connection, buffers of 64 KiB."""

    def start(stack: ExitStack, _fleet: Fleet, destination: int) -> Relay:
        port = free_port()
        listen = f"TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr,backlog=4096"
        return Relay(port, [_spawn(stack, [program, "-b65536", listen, f"TCP:127.0.0.1:{destination}"], port)])

    return start


def _spawn(stack: ExitStack, command: Sequence[str], port: int) -> subprocess.Popen[bytes]:
    """Start a relay in a session of its own, and wait until it accepts."""
    process = subprocess.Popen(guarded([*command]), stdout=subprocess.DEVNULL, start_new_session=True)
    stack.callback(_stop, process)
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process
        except ConnectionError:
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"{command[0]} does not accept connections") from None
            time.sleep(POLL_S)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_TIMEOUT_S)
