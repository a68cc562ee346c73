"""Measure the rate that the emulator handles without being late, over a few fast links and a mesh of slow ones."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.sky.table import Figure, Table
from testbed.sky import GOODPUT_PER_WIRE, send, sink
from tradewind.sky.file import network_from_document
from tradewind.sky.running import Sky

RTT_MS = 20
#: Title, number of machines, rate of each link [Mbit/s], and whether each machine sends to all others or to the next.
SHAPES = (
    ("1 link of 1 Gbit/s", 2, 1000, False),
    ("3 links of 1 Gbit/s", 6, 1000, False),
    ("mesh of 6, 30 links of 10 Mbit/s", 6, 10, True),
    ("mesh of 6, 30 links of 20 Mbit/s", 6, 20, True),
    ("mesh of 6, 30 links of 50 Mbit/s", 6, 50, True),
)


def measure_capacity(quick: bool) -> Table:
    """Measure each shape once, with the emulator's lateness and CPU time. Late rows are beyond this host's capacity."""
    table = Table(
        f"Capacity of this host ({RTT_MS} ms, one connection per link)",
        ["shape", "set [Mbit/s]", "goodput / possible", "late, mean [ms]", "CPU-s/GB of the emulator", "valid"],
    )
    for title, machines, rate_mbps, mesh in SHAPES[2:3] if quick else SHAPES:
        table.rows.append([title, *_shape(machines, rate_mbps, mesh, 3.0 if quick else 8.0)])
    return table


def _shape(machines: int, rate_mbps: int, mesh: bool, seconds: float) -> list[Figure]:
    names = [f"m{index}" for index in range(machines)]
    pairs = list(zip(names[::2], names[1::2], strict=True))
    if mesh:
        pairs = [(src, dst) for src in names for dst in names if src != dst]
    link = {"rtt_ms": RTT_MS, "rate": f"{rate_mbps}Mbit/s"}
    links = [{"from": f"site:{src}", "to": f"site:{dst}", **link} for src, dst in pairs]
    if not mesh:
        links += [{**link, "from": link["to"], "to": link["from"]} for link in links]
    document: dict[str, Any] = {"regions": {f"site:{name}": {"name": name} for name in names}, "links": links}
    with Sky.up(network_from_document(document, Path())) as sky, ExitStack() as stack:
        sinks = {name: stack.enter_context(sink(sky, f"{name}-1")) for name in names}
        sinks_used = {dst for _, dst in pairs}
        cpu_before_s = _cpu_s(sky.pid)
        with ThreadPoolExecutor(len(pairs)) as pool:
            sent = [pool.submit(send, sky, f"{src}-1", sinks[dst], seconds=seconds, warmup_s=3.0) for src, dst in pairs]
            # A sink reports to each sender the total that it received from all senders.
            goodput_mbps = sum(each.result() for each in sent) * len(sinks_used) / len(pairs)
        stats = sky.stats()
        carried_gb = sum(path.wire_bytes for path in stats.paths) / 1e9
        cpu_s_per_gb = (_cpu_s(sky.pid) - cpu_before_s) / carried_gb
    possible_mbps = rate_mbps * len(pairs) * GOODPUT_PER_WIRE
    verdict = "yes" if stats.invalid is None else "no"
    return [rate_mbps * len(pairs), goodput_mbps / possible_mbps, stats.lateness_mean_ms, cpu_s_per_gb, verdict]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
