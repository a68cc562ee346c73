"""One slow connection among several: compare dynamic assignment of chunks with equal parts (Skyplane, §6).

The straggler is one of the sender's own TCP connections, paced by the kernel (`testbed.sockets`). *Dynamic* is one
transfer of ours over a hop of CONNECTIONS: each connection takes the next chunk when it is ready. *Round robin* assigns
an equal part to each connection beforehand: it is as many concurrent transfers of ours, with one connection and one
part each, and is done when the last one is. GridFTP is included because the paper cites it as assigning blocks by
turns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.plots import Frame, line_plot
from benchmarks.sky.carry import OBJECT_BYTES, carry_launch
from benchmarks.sky.gridftp import PORT, START_S, fetch_s
from benchmarks.sky.table import Figure, Table, counted
from testbed.processes import gateways_of
from testbed.sky import GOODPUT_PER_WIRE
from testbed.sockets import connections_to, pace, process_tree
from tradewind.engine.launch_spec import LaunchSpec, planned_launch
from tradewind.engine.running import RunningJob
from tradewind.engine.topology import topology_from_document
from tradewind.model.event import Progress
from tradewind.sky.file import network_from_document
from tradewind.sky.running import Sky

#: 5 Gbit/s, the egress cap of a machine on AWS, times 0.02.
RATE_MBPS = 100
RTT_MS = 40
CONNECTIONS = 8
#: 16 MiB, scaled like the rate.
CHUNK_BYTES = 5 * OBJECT_BYTES
#: Rate of the straggler, as a fraction of an equal share of the link.
PARTS = (1.0, 1 / 2, 1 / 4, 1 / 8)
#: Approximate duration of a transfer without a straggler.
SECONDS = 8.0
#: Timeout of a transfer, as a multiple of SECONDS.
PATIENCE = 60
POLL_S = 0.05
FAIR_MBPS = RATE_MBPS * GOODPUT_PER_WIRE / CONNECTIONS


class Straggler:
    """Slows one connection of the given processes, once all connections exist."""

    def __init__(self, address: str, connections: int, part: float) -> None:
        self._address, self._connections, self._part = address, connections, part
        self.found = False

    def look(self, pids: Sequence[int]) -> None:
        """Slow one connection, if that has not been done yet."""
        if self.found:
            return
        # Exclude the connection for the commands of GridFTP's client.
        there = connections_to(pids, self._address, but_port=PORT)
        if len(there) >= self._connections:
            self.found = True
            if self._part < 1:
                pace(*there[0], FAIR_MBPS * self._part)


def measure_straggler(quick: bool) -> Table:
    """Return one row per rate of the straggler, with the total goodput of all connections."""
    table = Table(
        f"One straggler among {CONNECTIONS} connections (link of {RATE_MBPS} Mbit/s, {RTT_MS} ms): Mbit/s",
        ["the straggler sends", "Tradewind, dynamic", "Tradewind, round robin", "GridFTP", "equal parts, in theory"],
    )
    link = {"between": ["site:source", "site:sink"], "rtt_ms": RTT_MS, "rate": f"{RATE_MBPS}Mbit/s"}
    document = {"regions": {"site:source": {"name": "source"}, "site:sink": {"name": "sink"}}, "links": [link]}
    objects = round(RATE_MBPS * GOODPUT_PER_WIRE * 1e6 / 8 * SECONDS / OBJECT_BYTES / CONNECTIONS) * CONNECTIONS
    parts = (1.0, 1 / 4) if quick else PARTS
    with Sky.up(network_from_document(document, Path())) as sky:
        for part in parts:
            ways: list[Callable[[Sky, float, int], float]] = [_dynamic, _round_robin, _gridftp]
            row: list[Figure] = [counted(sky, partial(way, sky, part, objects)) for way in ways]
            shown = "as much as the others" if part == 1 else f"1/{round(1 / part)} of an equal share"
            table.rows.append([shown, *row, RATE_MBPS * GOODPUT_PER_WIRE * part])
    slowness = [1 / part for part in parts]
    lines = {name: [row[index] for row in table.rows] for index, name in enumerate(table.columns[1:], 1)}
    limit = (RATE_MBPS * GOODPUT_PER_WIRE, "what TCP can carry")
    frame = Frame("Goodput with one straggler", "times slower", "Mbit/s", logarithmic=True, limit=limit)
    table.picture = line_plot(frame, slowness, lines)
    return table


def _dynamic(sky: Sky, part: float, objects: int) -> float:
    """Return the rate of one transfer whose connections take chunks when they are ready."""
    straggler = Straggler(sky.machines["sink-1"].address, CONNECTIONS, part)
    return _rate_mbps([_carry(sky, CONNECTIONS, objects, straggler)])


def _round_robin(sky: Sky, part: float, objects: int) -> float:
    """Return the rate of equal parts, each over its own connection."""
    address = sky.machines["sink-1"].address
    stragglers = [Straggler(address, 1, part if index == 0 else 1.0) for index in range(CONNECTIONS)]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        began = [pool.submit(_carry, sky, 1, objects // CONNECTIONS, each) for each in stragglers]
        return _rate_mbps([each.result() for each in began])


def _carry(sky: Sky, connections: int, objects: int, straggler: Straggler) -> Progress:
    def watch(job: RunningJob, _: Progress) -> None:
        straggler.look([gateways_of()["source"]])

    done = carry_launch(_way(sky, connections), objects, CHUNK_BYTES, None, watch)
    if not straggler.found:
        raise RuntimeError("the transfer was over before its connections were seen")
    return done


def _rate_mbps(parts: Sequence[Progress]) -> float:
    """Return all bytes divided by the time of the slowest part."""
    return sum(each.bytes_done for each in parts) * 8e-6 / max(each.elapsed_s for each in parts)


def _way(sky: Sky, connections: int) -> LaunchSpec:
    names = ("source", "sink")
    document = {
        "lead": {"region": "site:source"},
        "gateways": {name: {"role": name, "region": f"site:{name}"} for name in names},
        "routes": [{"nodes": list(names), "share": 1.0}],
        "connections": connections,
    }
    return planned_launch(topology_from_document(document).plan, {"kind": "sky", "sky": str(sky.folder)})


def _gridftp(sky: Sky, part: float, objects: int) -> float:
    source, sink = sky.machines["source-1"], sky.machines["sink-1"]
    straggler = Straggler(sink.address, CONNECTIONS, part)

    def beside(pid: int, ended: threading.Event) -> None:
        while not straggler.found and not ended.wait(POLL_S):
            straggler.look(process_tree(pid))

    size_bytes, patience_s = objects * OBJECT_BYTES, SECONDS * PATIENCE + START_S
    took_s = fetch_s(
        sky, source, sink, streams=CONNECTIONS, size_bytes=size_bytes, patience_s=patience_s, beside=beside
    )
    if not straggler.found:
        raise RuntimeError("the transfer was over before its connections were seen")
    return size_bytes * 8e-6 / took_s
