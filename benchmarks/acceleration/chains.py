"""The programs in the proxies' places: Tradewind's split proxy, HAProxy, nginx, and a NAT hop that splits nothing.

All connect over plain TCP. HAProxy is configured as its packages are, nginx has a worker per core.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.debian import debian_program
from testbed.servers.process import guarded
from tradewind.acceleration.proxies import stop
from tradewind.gateway.binary import find_gateway
from tradewind.sky.running import Sky

CONNECTIONS_MAX = 256
START_S = 20.0
POLL_S = 0.02
NGINX_STREAM = "lib/nginx/modules/ngx_stream_module.so"
MACHINES = "10.77.0.0/16"
"""Addresses of the machines of a sky."""
LISTENING = "0A"
"""State of a socket in /proc/net/tcp."""


@dataclass(frozen=True)
class Entry:
    """A port of a proxy, and where its connections go."""

    port: int
    to: str
    """`ADDRESS:PORT`."""


Command = Callable[[str, Sequence[Entry], Path], list[str]]
"""Returns the command that serves entries at an address; it may write files beginning with the path."""


def _tradewind(address: str, entries: Sequence[Entry], file: Path) -> list[str]:
    names = ("connections_max", *(f"connections_per_{of}_max" for of in ("client", "proxy", "destination")))
    document = {
        "allow": sorted({entry.to for entry in entries}),
        "limits": dict.fromkeys(names, CONNECTIONS_MAX),
        "listeners": [
            {
                "listen": f"{address}:{entry.port}",
                "way": "forward",
                "destination": entry.to,
                "clients": [MACHINES],
            }
            for entry in entries
        ],
    }
    file.write_text(json.dumps(document), encoding="utf-8")
    return [find_gateway(), "split", "--config", str(file)]


def _haproxy(address: str, entries: Sequence[Entry], file: Path) -> list[str]:
    listeners = "".join(
        f"listen port{entry.port}\n bind {address}:{entry.port}\n server to {entry.to}\n" for entry in entries
    )
    file.write_text(
        f"global\n maxconn {CONNECTIONS_MAX}\n"
        f"defaults\n mode tcp\n timeout connect 10s\n timeout client 1h\n timeout server 1h\n{listeners}",
        encoding="utf-8",
    )
    return [debian_program("haproxy"), "-db", "-f", str(file)]


def _nginx(address: str, entries: Sequence[Entry], file: Path) -> list[str]:
    program = debian_program("nginx")
    servers = " ".join(
        f"server {{ listen {address}:{entry.port}; proxy_timeout 1h; proxy_pass {entry.to}; }}" for entry in entries
    )
    file.write_text(
        f"load_module {Path(program).parents[1] / NGINX_STREAM};\n"
        f"daemon off; pid {file}.pid; error_log stderr crit; worker_processes auto;\n"
        f"events {{ worker_connections {CONNECTIONS_MAX * 2}; }}\nstream {{ {servers} }}\n",
        encoding="utf-8",
    )
    return [program, "-e", "stderr", "-c", str(file)]


PROGRAMS: dict[str, Command] = {"Tradewind": _tradewind, "HAProxy": _haproxy, "nginx": _nginx}


def version(program: str) -> str:
    """Return what HAProxy or nginx says about its version. Raises InstallError."""
    words = [debian_program(program), "-v"]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    line = next(line for line in (said.stdout + said.stderr).splitlines() if "version" in line)
    return " ".join(line.removeprefix("nginx version: ").split()[:3])


@contextmanager
def serving(sky: Sky, program: str, entries: dict[str, list[Entry]], folder: Path) -> Iterator[None]:
    """Run a program in machines of a sky within the block. `entries` are those of each machine.

    Raises RuntimeError if one does not listen in time.
    """
    with ExitStack() as stack:
        started = []
        for machine, wanted in entries.items():
            file = folder / f"{program}-{machine}"
            words = PROGRAMS[program](sky.machines[machine].address, wanted, file)
            process = sky.popen(machine, guarded(words), stdout=subprocess.DEVNULL, start_new_session=True)
            stack.callback(stop, process)
            started.append((process, wanted))
        for process, wanted in started:
            _wait_listening(process, {entry.port for entry in wanted}, program)
        yield


def _wait_listening(process: subprocess.Popen[bytes], ports: set[int], program: str) -> None:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s and process.poll() is None:
        rows = [row.split() for row in Path(f"/proc/{process.pid}/net/tcp").read_text().splitlines()[1:]]
        if ports <= {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == LISTENING}:
            return
        time.sleep(POLL_S)
    raise RuntimeError(f"{program} does not listen")


def forward(sky: Sky, machine: str, entry: Entry) -> None:
    """Make a machine rewrite the addresses of packets, as the paper's forwarding proxy does. No program runs."""
    rules = (
        "table ip forwarding {\n"
        f" chain in {{ type nat hook prerouting priority -100; tcp dport {entry.port} dnat to {entry.to}; }}\n"
        " chain out { type nat hook postrouting priority 100; masquerade; }\n}\n"
    )
    sky.run(machine, ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"], check=True)
    sky.run(machine, [debian_program("nft"), "-f", "-"], input=rules, text=True, check=True)
