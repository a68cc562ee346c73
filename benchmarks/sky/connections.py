"""Goodput by number of parallel connections under random loss, with cubic and bbr (Skyplane, Fig. 9a)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.plots import Frame, line_plot
from benchmarks.sky.table import Table, counted
from testbed.sky import GOODPUT_PER_WIRE, send, sink
from tradewind.sky.file import network_from_document
from tradewind.sky.running import Sky

#: 5 Gbit/s, the egress cap of a machine on AWS, times 0.02.
RATE_MBPS = 100
RTT_MS = 100
LOSSES = (0.0001, 0.001)
CONTROLS = ("cubic", "bbr")
CONNECTIONS = (1, 2, 4, 8, 16, 32, 64)


def measure_connections(quick: bool) -> Table:
    """Return one row per number of connections, and one column per congestion control and loss."""
    counts = (1, 8) if quick else CONNECTIONS
    series = [(control, loss) for loss in (LOSSES[-1:] if quick else LOSSES) for control in CONTROLS]
    table = Table(
        f"Parallel connections under loss (link of {RATE_MBPS} Mbit/s, {RTT_MS} ms): goodput in Mbit/s",
        ["connections", *(f"{control}, loss {loss:.2%}" for control, loss in series)],
    )
    link = {"between": ["site:a", "site:b"], "rtt_ms": RTT_MS, "rate": f"{RATE_MBPS}Mbit/s"}
    document = {"regions": {"site:a": {"name": "a"}, "site:b": {"name": "b"}}, "links": [link]}
    with Sky.up(network_from_document(document, Path())) as sky, sink(sky, "b-1") as address:

        def goodput(count: int, control: str, loss: float) -> float:
            sky.set_link("site:a", "site:b", one_way=True, loss=loss)
            seconds, warmup_s = (3.0, 2.0) if quick else (12.0, 6.0)
            return send(sky, "a-1", address, connections=count, seconds=seconds, warmup_s=warmup_s, cc=control)

        for count in counts:
            row = [counted(sky, partial(goodput, count, *each)) for each in series]
            table.rows.append([count, *row])
    lines = {name: [row[index] for row in table.rows] for index, name in enumerate(table.columns[1:], 1)}
    limit = (RATE_MBPS * GOODPUT_PER_WIRE, "what TCP can carry")
    frame = Frame("Goodput over parallel connections", "connections", "Mbit/s", logarithmic=True, limit=limit)
    table.picture = line_plot(frame, counts, lines)
    return table
