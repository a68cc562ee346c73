"""Table 2 of the Skyplane paper, executed: GridFTP, the direct path, RON's route, and two plans, memory to memory."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.peers import debian_program
from benchmarks.sky.carry import Carried, carried
from benchmarks.sky.machines import BETWEEN, World
from benchmarks.sky.table import INVALID, Figure, Table
from testbed.servers.process import guarded
from testbed.sky import valid
from tradewind.errors import SkyInvalid
from tradewind.model.goal import Fastest, MinThroughput
from tradewind.model.overlay import OverlayPlan
from tradewind.planner.baseline import gridftp, ron
from tradewind.planner.plan import answer_goal
from tradewind.sky.running import Sky, SkyMachine

SCALE = 0.003
SECONDS = 15.0
MACHINES = 4
VOLUME_GB = 16
#: As the paper's cost-optimised plan: so many times the rate of the direct path of one machine.
TIMES_DIRECT = 2.27
#: As many streams as our gateways have connections.
STREAMS = 64
PORT = 50000
START_S = 20.0
#: A run of GridFTP that takes so many times as long as planned is given up, and is a failure.
PATIENCE = 8


def measure_systems(quick: bool) -> Table:
    """One row per method. Time and cost are those of 16 GB at full scale, from the rate that was measured."""
    table = Table(
        f"Table 2 of the Skyplane paper: {VOLUME_GB} GB, {BETWEEN[0]} → {BETWEEN[1]}, rates × {SCALE:g} undone",
        ["method", "predicted [Gbit/s]", "measured [Gbit/s]", "time [s]", "cost [USD]", "predicted [USD]"],
    )
    seconds = 5.0 if quick else SECONDS
    world = World(BETWEEN, MACHINES, SCALE)
    with world.sky as sky:
        straight = world.straight(1)
        alone = gridftp(world.transfer(1))
        assert alone is not None, "there is a direct link"
        table.rows.append(_row("GridFTP (1 machine)", alone, _gridftp(sky, alone, seconds)))
        transfer = world.transfer(MACHINES)
        relayed = ron(transfer)
        assert relayed is not None, "there is a path"
        goal = MinThroughput(straight.throughput_gbps * TIMES_DIRECT)
        plans = {
            "Tradewind (1 machine, direct)": straight,
            f"Tradewind on RON's route ({MACHINES} machines)": relayed,
            f"Tradewind (cheapest at {TIMES_DIRECT} × direct, {MACHINES} machines)": answer_goal(transfer, goal),
            f"Tradewind (fastest, {MACHINES} machines)": answer_goal(transfer, Fastest()),
        }
        for name, plan in plans.items():
            table.rows.append(_row(name, plan, carried(sky, SCALE, plan, seconds)))
    return table


def _row(name: str, plan: OverlayPlan, done: Carried | None) -> list[Figure]:
    predicted_gbps, predicted_usd = plan.throughput_gbps / SCALE, plan.cost.total_usd / SCALE
    if done is None:
        return [name, predicted_gbps, INVALID, INVALID, INVALID, predicted_usd]
    measured_gbps = done.mbps / 1e3 / SCALE
    machines_usd_per_s = sum(each.count * each.offer.usd_per_s for each in plan.machines) / SCALE
    egress_usd = plan.cost.egress_usd / SCALE if done.egress_usd_per_gb is None else done.egress_usd_per_gb * VOLUME_GB
    time_s = VOLUME_GB * 8 / measured_gbps
    usd = egress_usd + machines_usd_per_s * (plan.boot_s + time_s)
    return [name, predicted_gbps, measured_gbps, time_s, usd, predicted_usd]


def _gridftp(sky: Sky, plan: OverlayPlan, seconds: float) -> Carried | None:
    """Memory to memory in clear text, over as many streams as a gateway has connections."""
    source, sink = (sky.machines_in(region)[0] for region in BETWEEN[:2])
    size_bytes = round(plan.throughput_gbps * 1e9 / 8 * seconds)
    server = [
        debian_program("globus-gridftp-server"), "-aa", "-anonymous-user", "nobody", "-anonymous-group", "nogroup",
        "-p", str(PORT), "-control-interface", source.address, "-data-interface", source.address,
        "-c", "/dev/null", "-no-detach",
    ]  # fmt: skip
    client = [
        debian_program("globus-url-copy"), "-p", str(STREAMS), "-len", str(size_bytes),
        f"ftp://anonymous:x@{source.address}:{PORT}/dev/zero", "file:///dev/null",
    ]  # fmt: skip

    with tempfile.NamedTemporaryFile("w", suffix=".hosts") as hosts:
        # GridFTP asks for the names of addresses, and in a sky nobody answers.
        hosts.write(f"127.0.0.1 localhost\n{source.address} {source.name}\n{sink.address} {sink.name}\n")
        hosts.flush()
        named = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', hosts.name]
        return _served(sky, (source, [*named, *server]), (sink, [*named, *client]), size_bytes, seconds)


def _served(
    sky: Sky,
    server: tuple[SkyMachine, list[str]],
    client: tuple[SkyMachine, list[str]],
    size_bytes: int,
    seconds: float,
) -> Carried | None:
    """The client's rate from its start to its end, while the server runs."""
    (source, serve), (sink, fetch) = server, client

    def environment(address: str) -> dict[str, str]:
        return {**os.environ, "GLOBUS_HOSTNAME": address}

    def measure() -> Carried:
        began_s = time.monotonic()
        sky.run(
            sink.name,
            fetch,
            env=environment(sink.address),
            check=True,
            capture_output=True,
            timeout=seconds * PATIENCE + START_S,
        )
        mbps = size_bytes * 8e-6 / (time.monotonic() - began_s)
        return Carried(mbps, mbps, None)

    quiet = subprocess.DEVNULL
    with sky.popen(source.name, guarded(serve), env=environment(source.address), stdout=quiet, stderr=quiet) as process:
        try:
            _wait_listening(sky, source.name, process)
            return valid(sky, measure)
        except SkyInvalid:
            return None
        finally:
            process.terminate()


def _wait_listening(sky: Sky, machine: str, process: subprocess.Popen[bytes]) -> None:
    """Until the server's port is open in its namespace, whose sockets any of its processes shows."""
    deadline_s = time.monotonic() + START_S
    wanted = f":{PORT:04X}"
    while time.monotonic() < deadline_s and process.poll() is None:
        listing = Path(f"/proc/{process.pid}/net/tcp").read_text().splitlines()[1:]
        if any(line.split()[1].endswith(wanted) and line.split()[3] == "0A" for line in listing):
            return
        time.sleep(0.05)
    raise RuntimeError(f"globus-gridftp-server did not listen in {machine}")
