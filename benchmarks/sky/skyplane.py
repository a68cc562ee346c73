"""Compare with Skyplane's gateways (package `skyplane` 0.3.2): CPU time per gigabyte, and small objects per second.

Both move the same files from tmpfs to tmpfs through two gateways of this machine that are connected over loopback.
Skyplane's part is the software that it installs on its machines: the gateway daemon with its operators
`read_object_store`, `send`, `receive` and `write_object_store`, with its own `local` stores. This file replaces its
client: it submits the list of chunks and polls the state of each through the daemons' API.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import run
from benchmarks.sky.table import Figure, Table
from testbed.chains import chain, write
from testbed.debian import debian_program
from testbed.drive import find_binary
from testbed.servers.install import InstallError, python_environment
from testbed.servers.process import spawn, temporary_folder

VERSION = "0.3.2"
#: Loopback addresses on which the ports are free.
ADDRESSES = {"source": "127.83.0.1", "sink": "127.83.0.2"}
API_PORT = 8081
CONNECTIONS = 8
ROUNDS = 3
START_S, RUN_S = 60.0, 300.0
#: Poll interval, as in Skyplane's client.
POLL_S = 0.5
#: A folder in memory.
TMPFS = Path("/dev/shm")


@dataclass(frozen=True)
class Load:
    """Files of random bytes."""

    objects: int
    object_bytes: int

    @property
    def gigabytes(self) -> float:
        """Total size."""
        return self.objects * self.object_bytes / 1e9


@dataclass(frozen=True)
class Run:
    """Time of one transfer, and CPU time of all its processes."""

    wall_s: float
    cpu_s: float


def measure_skyplane(quick: bool) -> Table:
    """Return one row per variant, with medians of runs in turn. If Skyplane is unavailable, its row has the reason."""
    table = Table(
        f"Beside Skyplane {VERSION}'s gateways: two of each on one machine, {CONNECTIONS} connections",
        ["gateways", "CPU-s/GB", "Gbit/s", "64 KiB objects/s", "CPU-s per 1,000 of them"],
    )
    bulk = Load(4, 64 << 20) if quick else Load(16, 64 << 20)
    # Skyplane's gateway processes at most ten chunks a second.
    few, many = Load(30, 64 << 10) if quick else Load(300, 64 << 10), Load(2_000 if quick else 20_000, 64 << 10)
    try:
        python, stunnel = _skyplane(), debian_program("stunnel")
        ways = {"Skyplane (its default: lz4, NaCl)": True, "Skyplane (neither)": False}
    except InstallError as error:
        ways = {}
        table.rows.append([f"Skyplane is left out: {' '.join(str(error).split())}", "–", "–", "–", "–"])
    runs: dict[str, list[tuple[Run, Run, int]]] = {}
    for _ in range(1 if quick else ROUNDS):
        runs.setdefault("Tradewind (sealed end to end)", []).append((_ours(bulk), _ours(many), many.objects))
        for name, seal in ways.items():
            large, small = (_theirs(python, stunnel, load, seal) for load in (bulk, few))
            runs.setdefault(name, []).append((large, small, few.objects))
    table.rows += [[name, *_figures(each, bulk)] for name, each in runs.items()]
    return table


def _figures(runs: list[tuple[Run, Run, int]], bulk: Load) -> list[Figure]:
    return [
        median(large.cpu_s for large, _, _ in runs) / bulk.gigabytes,
        bulk.gigabytes * 8 / median(large.wall_s for large, _, _ in runs),
        median(objects / small.wall_s for _, small, objects in runs),
        median(small.cpu_s / objects * 1e3 for _, small, objects in runs),
    ]


def _skyplane() -> Path:
    """Return the Python interpreter of Skyplane's environment. Raises InstallError."""
    # Skyplane needs pyarrow 10, which does not work with numpy 2.
    return python_environment(f"skyplane-{VERSION}", [f"skyplane[gateway]=={VERSION}", "numpy<2"]) / "bin" / "python"


@contextmanager
def _files(load: Load) -> Iterator[tuple[Path, Path, Path]]:
    """Yield a source with the files, an empty sink, and a folder for other files, all on tmpfs. Then check the copy."""
    folder = temporary_folder("skyplane", TMPFS if TMPFS.is_dir() else None)
    source, sink = folder / "from", folder / "to"
    source.mkdir()
    sink.mkdir()
    try:
        for number in range(load.objects):
            (source / f"{number:06}").write_bytes(os.urandom(load.object_bytes))
        yield source, sink, folder
        names = [path.name for path in source.iterdir()]
        same, _, _ = filecmp.cmpfiles(source, sink, names, shallow=False)
        if len(same) != load.objects:
            raise RuntimeError(f"{load.objects - len(same)} of {load.objects} files did not arrive as they were sent")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ours(load: Load) -> Run:
    """Measure the whole command, including the start of its gateways."""
    with _files(load) as (source, sink, folder):
        topology = write(chain(connections=CONNECTIONS), folder / "topology.json")
        command: list[str | Path] = [
            find_binary("tradewind"),
            "cp",
            "-r",
            source,
            sink,
            "--topology",
            topology,
            "--quiet",
        ]
        environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        cost = run(command, environment, RUN_S)
        if cost.failure:
            raise RuntimeError(cost.failure)
        return Run(cost.wall_s, cost.cpu_s)


def _theirs(python: Path, stunnel: str, load: Load, seal: bool) -> Run:
    """Measure from the first chunk submitted to the source until the sink reports the last one as written."""
    with _files(load) as (source, sink, folder), _gateways(python, stunnel, source, sink, folder, seal) as groups:
        chunks = [
            {
                "src_key": str(path),
                "dest_key": str(sink / path.name),
                "chunk_id": uuid.uuid4().hex,
                "chunk_length_bytes": load.object_bytes,
                "partition_id": "0",
                "file_offset_bytes": 0,
            }
            for path in sorted(source.iterdir())
        ]
        cpu_before_s, began_s = _cpu_s(groups), time.monotonic()
        handed = _ask("source", "chunk_requests", chunks)["n_added"]
        if handed != load.objects:
            raise RuntimeError(f"Skyplane took {handed} of {load.objects} chunks")
        deadline_s = began_s + RUN_S
        while _written() < load.objects:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"Skyplane: {_written()} of {load.objects} chunks after {RUN_S:.0f} s")
            time.sleep(POLL_S)
        return Run(time.monotonic() - began_s, _cpu_s(groups) - cpu_before_s)


def _written() -> int:
    """Return the number of chunks that the sink has completed, counted like Skyplane's tracker."""
    for gateway in ADDRESSES:
        if errors := _ask(gateway, "errors")["errors"]:
            raise RuntimeError(f"Skyplane's {gateway}: {errors[0]}")
    log = _ask("sink", "chunk_status_log")["chunk_status_log"]
    return len({entry["chunk_id"] for entry in log if entry["state"] == "complete"})


@contextmanager
def _gateways(python: Path, stunnel: str, source: Path, sink: Path, folder: Path, seal: bool) -> Iterator[list[int]]:
    """Start both daemons, and yield their process groups once they are ready."""
    connections = {"num_connections": CONNECTIONS}
    write_out = _operator("write_object_store", bucket_name=str(sink), **_LOCAL, key_prefix="", **connections)
    send = _operator("send", target_gateway_id="sink", region="local", private_ip=False, compress=seal, **connections)
    programs = {
        "source": _operator("read_object_store", send, bucket_name=str(source), **_LOCAL, **connections),
        "sink": _operator("receive", write_out),
    }
    (folder / "key").write_bytes(os.urandom(32))
    addresses = {
        name: {"public_ip_address": address, "private_ip_address": address} for name, address in ADDRESSES.items()
    }
    (folder / "gateways.json").write_text(json.dumps(addresses))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for name, address in ADDRESSES.items():
            home = folder / name
            home.mkdir()
            (home / "program.json").write_text(json.dumps([{"partitions": ["0"], "value": [programs[name]]}]))
            environment = {
                "HOME": str(home),
                "PATH": f"{Path(stunnel).parent}:{os.environ['PATH']}",
                "SKYPLANE_IS_GATEWAY": "1",
                "GATEWAY_PROGRAM_FILE": str(home / "program.json"),
                "GATEWAY_INFO_FILE": str(folder / "gateways.json"),
                "E2EE_KEY_FILE": str(folder / "key"),
            }
            script = str(Path(__file__).with_name("skyplane_gateway.py"))
            words = [address, str(API_PORT), "local:here", str(home / "chunks"), "sealed" if seal else "plain"]
            # -I: otherwise Python would search the script's folder first for the package.
            processes.append(spawn([str(python), "-I", "-u", script, *words], home, environment))
        for name, process in zip(ADDRESSES, processes, strict=True):
            _wait_ready(name, process, folder / name / "log")
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            # Each worker is a separate process, and does not end with the daemon.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


_LOCAL = {"bucket_region": "local:here"}


def _operator(kind: str, *children: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return {"op_type": kind, "handle": kind, "children": list(children), **settings}


def _wait_ready(name: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + START_S
    ended = os.WEXITED | os.WNOHANG | os.WNOWAIT  # Leave it a zombie, so that its group's id is not reused.
    while time.monotonic() < deadline_s and os.waitid(os.P_PID, process.pid, ended) is None:
        try:
            _ask(name, "status")
        except urllib.error.URLError:
            time.sleep(POLL_S)
        else:
            return
    raise RuntimeError(f"Skyplane's {name} did not start: {log.read_text(errors='replace')[-2000:]}")


def _ask(gateway: str, what: str, document: Any = None) -> Any:
    request = urllib.request.Request(f"http://{ADDRESSES[gateway]}:{API_PORT}/api/v1/{what}")
    if document is not None:
        request.data = json.dumps(document).encode()
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        return json.load(answer)


def _cpu_s(groups: list[int]) -> float:
    """Return the CPU time of all processes of these groups, and of their children that have ended."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # The process has ended meanwhile.
        if int(fields[2]) in groups:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")
