"""``chain``: memory to memory through gateways, compared with GridFTP and with the machine's TCP throughput.

The source generates bytes in memory and the sink counts and drops them, so that only the data plane is measured:
framing, mutual TLS 1.3, bodies sealed from source to sink. The other programs send clear text and verify nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.measure import Cost, CpuByName, Spread, run
from benchmarks.tables import GB, OURS, Cell, Entry
from testbed.chains import chain, write
from testbed.debian import debian_program
from testbed.drive import MissingBinary, find_binary
from testbed.processes import gateway_name
from testbed.servers.process import free_port, guarded

RELAYS = (0, 1, 2)
CONNECTIONS = (1, 8, 64)
CONGESTION_CONTROL = "cubic"


@dataclass(frozen=True)
class Load:
    """The objects that a run moves."""

    title: str
    objects: int
    object_bytes: int

    @property
    def size_bytes(self) -> int:
        """Total size."""
        return self.objects * self.object_bytes


@dataclass(frozen=True)
class Sizes:
    """Loads, number of rounds and time limit."""

    loads: tuple[Load, Load]
    rounds: int
    timeout_s: float


FULL = Sizes((Load("16 MiB chunks", 1, 8 << 30), Load("64 KiB objects", 100_000, 64 << 10)), rounds=3, timeout_s=180)
QUICK = Sizes((Load("16 MiB chunks", 1, 512 << 20), Load("64 KiB objects", 8_000, 64 << 10)), rounds=1, timeout_s=60)


def run_chain(quick: bool) -> list[Cell]:
    """Measure all cells of `chain`."""
    sizes = QUICK if quick else FULL
    iperf3, server, client = (debian_program(name) for name in ("iperf3", "globus-gridftp-server", "globus-url-copy"))
    cells = []
    with tempfile.TemporaryDirectory(prefix="tradewind-bench-") as scratch:
        folder = Path(scratch)
        bulk, small = sizes.loads
        sealed_tcp = _sealed_tcp_program()
        for connections in CONNECTIONS:
            yardsticks = {
                f"iperf3 -P {connections} (the machine's TCP)": partial(_iperf3, iperf3, connections, bulk, sizes),
                f"TCP + AES-GCM + CRC alone, {connections}": partial(_sealed_tcp, sealed_tcp, connections, bulk, sizes),
                f"GridFTP -p {connections}": partial(_gridftp, (server, client), connections, bulk, sizes),
            }
            cells.append(_cell(folder, bulk, connections, sizes, yardsticks))
            cells.append(_cell(folder, small, connections, sizes, {}))
    return cells


def _cell(
    folder: Path, load: Load, connections: int, sizes: Sizes, yardsticks: Mapping[str, Callable[[], Cost]]
) -> Cell:
    """Measure one number of connections: no, one and two relays, and the programs for comparison, in turn."""
    runs: dict[str, list[Cost]] = {}
    roles: dict[str, dict[str, dict[str, float]]] = {}
    for _ in range(sizes.rounds):
        for relays in RELAYS:
            name = f"{OURS}, {relays} relay{'' if relays == 1 else 's'}"
            cost, roles[name] = _tradewind(folder, load, connections, relays, sizes)
            runs.setdefault(name, []).append(cost)
        for name, measure in yardsticks.items():
            runs.setdefault(name, []).append(measure())
    entries = tuple(Entry(name, Spread(tuple(costs)), roles=roles.get(name, {})) for name, costs in runs.items())
    plural = "" if connections == 1 else "s"
    return Cell(f"{load.title}, {connections} connection{plural} per hop", load.objects, load.size_bytes, entries)


def _tradewind(
    folder: Path, load: Load, connections: int, relays: int, sizes: Sizes
) -> tuple[Cost, dict[str, dict[str, float]]]:
    document = chain(*(f"relay-{number}" for number in range(1, relays + 1)), connections=connections)
    topology = write(document, folder / "topology.json")
    source = f"mem:?objects={load.objects}&size_bytes={load.object_bytes}"
    command: list[str | Path] = [
        find_binary("tradewind"),
        "cp",
        "-r",
        source,
        "mem:",
        "--topology",
        topology,
        "--quiet",
    ]
    watched = CpuByName(gateway_name)
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    cost = run(command, environment, sizes.timeout_s, watched.watch)
    shares = {
        name: {"cpu_s_per_gb": watched.cpu_s[name] / load.size_bytes * GB, "rss_bytes": float(watched.rss_bytes[name])}
        for name in sorted(watched.cpu_s)
    }
    return cost, shares


def _iperf3(program: str, connections: int, load: Load, sizes: Sizes) -> Cost:
    """Send as many bytes over as many plain connections. The cost is that of both ends."""
    port = str(free_port())
    server = [program, "--server", "--one-off", "--bind", "127.0.0.1", "--port", port]
    client = [program, "--client", "127.0.0.1", "--port", port, "--parallel", str(connections)]
    # As hops inside one host.
    client += ["--bytes", str(load.size_bytes), "--congestion", CONGESTION_CONTROL]
    return _with_server(server, client, sizes.timeout_s, port)


def _sealed_tcp_program() -> Path:
    """Build the yardstick from our repository. Raises MissingBinary."""
    root = Path(__file__).resolve().parent.parent
    # With the whole workspace, so that cargo builds its libraries with the same features as `make setup`.
    build = ["cargo", "build", "--quiet", "--release", "--workspace", "--locked", "--example", "sealed_tcp"]
    try:
        subprocess.run(build, cwd=root, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise MissingBinary(f"the yardstick of sealed TCP cannot be built: {error}") from error
    return Path(os.environ.get("CARGO_TARGET_DIR", root / "target")) / "release" / "examples" / "sealed_tcp"


def _sealed_tcp(program: Path, connections: int, load: Load, sizes: Sizes) -> Cost:
    """Seal, check and send as many bytes without any protocol: a lower bound. The cost is that of both ends."""
    return run([program, str(load.size_bytes), str(connections)], dict(os.environ), sizes.timeout_s)


def _gridftp(programs: tuple[str, str], connections: int, load: Load, sizes: Sizes) -> Cost:
    """Copy memory to memory in clear text, with GridFTP's best block and buffer sizes."""
    port = str(free_port())
    server = [
        programs[0], "-aa", "-anonymous-user", "nobody", "-anonymous-group", "nogroup", "-p", port,
        "-control-interface", "127.0.0.1", "-data-interface", "127.0.0.1", "-c", "/dev/null", "-no-detach",
    ]  # fmt: skip
    client = [
        programs[1], "-p", str(connections), "-bs", "4194304", "-tcp-bs", "8388608", "-len", str(load.size_bytes),
        f"ftp://anonymous:x@127.0.0.1:{port}/dev/zero", "file:///dev/null",
    ]  # fmt: skip
    return _with_server(server, client, sizes.timeout_s, port)


def _with_server(server: list[str], client: list[str], timeout_s: float, port: str) -> Cost:
    """Return the client's cost plus the CPU time of its server's process tree."""
    environment = {**os.environ, "GLOBUS_HOSTNAME": "127.0.0.1"}
    process = subprocess.Popen(
        guarded(server), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        _wait_for_listener(int(port))
        cost = run(client, environment, timeout_s)
    finally:
        # Until wait4 the process is at least a zombie, so its id cannot be reused.
        os.killpg(process.pid, signal.SIGTERM)
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
    total = cost.cpu_s + usage.ru_utime + usage.ru_stime
    return Cost(cost.wall_s, total, max(cost.rss_bytes, usage.ru_maxrss << 10), cost.failure)


def _wait_for_listener(port: int) -> None:
    """Wait for a listener by reading the kernel's table: iperf3 would take a test connection for its only client."""
    wanted = f":{port:04X}"
    for _ in range(200):
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[3] == "0A":
                return
        signal.sigtimedwait([], 0.05)
    raise RuntimeError(f"nobody listens on port {port}")
