"""Hop-by-hop flow control: the sink becomes slow during a transfer, and no gateway's memory grows (Skyplane, §6)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.plots import Frame, line_plot
from benchmarks.sky.carry import OBJECT_BYTES, carry_launch
from benchmarks.sky.table import Table
from testbed.processes import gateways_of
from testbed.sky import valid
from tradewind.engine.launch_spec import planned_launch
from tradewind.engine.running import RunningJob
from tradewind.engine.topology import topology_from_document
from tradewind.errors import SkyInvalid
from tradewind.model.event import Progress
from tradewind.sky.file import network_from_document
from tradewind.sky.running import Sky

#: Rate of each hop, and rate at which the slow sink's machine receives.
RATE_MBPS, SLOW_MBPS = 200, 8
RTT_MS = 40
CONNECTIONS = 16
#: Time until the sink becomes slow, and time for which it is slow.
FAST_S, SLOW_S = 5.0, 25.0
SAMPLES = 60
GATEWAYS = ("source", "relay", "sink")


def measure_flow(quick: bool) -> Table:
    """Return each gateway's resident memory before the sink is slow and the maximum after, and a plot over time."""
    table = Table(
        f"A sink that takes {SLOW_MBPS} Mbit/s after {FAST_S:.0f} s of {RATE_MBPS} Mbit/s: resident memory in MiB",
        ["gateway", "while fast", "most while slow", "at the end"],
    )
    regions = {f"site:{name}": {"name": name} for name in GATEWAYS}
    links = [
        {"between": [f"site:{one}", f"site:{other}"], "rtt_ms": RTT_MS, "rate": f"{RATE_MBPS}Mbit/s"}
        for one, other in (("source", "relay"), ("relay", "sink"))
    ]
    # The lead runs beside the source and connects only to it.
    with Sky.up(network_from_document({"regions": regions, "links": links}, Path())) as sky:
        try:
            samples = valid(sky, partial(_run, sky, SLOW_S / 3 if quick else SLOW_S))
        except SkyInvalid:
            table.rows += [[name, "invalid", "invalid", "invalid"] for name in GATEWAYS]
            return table
    for name in GATEWAYS:
        before = max(row[name] for at_s, row in samples if at_s <= FAST_S)
        after = max(row[name] for at_s, row in samples if at_s > FAST_S)
        table.rows.append([name, before, after, samples[-1][1][name]])
    step = max(1, len(samples) // SAMPLES)
    chosen = samples[::step]
    lines = {name: [row[name] for _, row in chosen] for name in GATEWAYS}
    seconds = [at_s for at_s, _ in chosen]
    frame = Frame("Memory while the sink is slow", "seconds", "MiB", event_x=FAST_S)
    table.picture = line_plot(frame, seconds, lines)
    return table


def _run(sky: Sky, slow_s: float) -> list[tuple[float, dict[str, float]]]:
    """Return the memory of each gateway by seconds since the start."""
    sky.set_machine("sink-1", ingress_mbps=RATE_MBPS)
    document = {
        "lead": {"region": "site:source"},
        "gateways": {
            name: {"role": name, "region": f"site:{name}", "limits": {"memory_bytes": 64 << 20}} for name in GATEWAYS
        },
        "routes": [{"nodes": list(GATEWAYS), "share": 1.0}],
        "connections": CONNECTIONS,
    }
    plan = topology_from_document(document).plan
    bytes_wanted = RATE_MBPS * FAST_S * 0.9 / 8 * 1e6 + SLOW_MBPS * slow_s * 0.9 / 8 * 1e6
    samples: list[tuple[float, dict[str, float]]] = []
    slow = False

    def watch(job: RunningJob, progress: Progress) -> None:
        nonlocal slow
        if not slow and progress.elapsed_s >= FAST_S:
            slow = True
            sky.set_machine("sink-1", ingress_mbps=SLOW_MBPS)
        pids = gateways_of()
        samples.append((progress.elapsed_s, {name: _resident_mib(pids[name]) for name in GATEWAYS}))

    launch = planned_launch(plan, {"kind": "sky", "sky": str(sky.folder)})
    carry_launch(launch, round(bytes_wanted / OBJECT_BYTES), OBJECT_BYTES, None, watch)
    return samples


def _resident_mib(pid: int) -> float:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * 4096 / 2**20
