"""The section of the page about short flows, with and without connections that proxies keep ready."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.acceleration.page import wrapped
from tradewind.acceleration.scene import LINK_MBPS, POSITIONS_MS, RTT_MS


def pools_section(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of the section."""
    between_ms = POSITIONS_MS["far"] - POSITIONS_MS["near"]
    note = (
        f"Not of the paper. A client asks a server {RTT_MS:g} ms away for a number of bytes, over a new connection "
        f"each time, directly or through two proxies {between_ms:g} ms apart with mutual TLS between them. Flows "
        "come one at a time, 1.5 s apart. *Cold* is the first flow of new processes, whose first handshakes take "
        "longer; no connection is ready for it. *Warm* is the median of those after it. Times are from the start of "
        f"the client's connection, in ms; medians of all rounds. Links carry {LINK_MBPS:.0f} Mbit/s."
    )
    lines = ["### Short flows and connections that are ready", "", wrapped(note), ""]
    single = [row for row in rows if "setting" in row]
    sizes = sorted({row["size_bytes"] for row in single})
    heads = " | ".join(f"{_size(size)}: cold | warm" for size in sizes)
    lines += ["Table: time to the last byte [ms].", "", f"| path | first byte, cold | warm | {heads} |"]
    lines += ["|---|" + "---:|" * (2 + 2 * len(sizes))]
    for setting in dict.fromkeys(row["setting"] for row in single):
        mine = [row for row in single if row["setting"] == setting]
        cells = [_median(mine, "cold_ms", 0), _median(mine, "warm_ms", 0)]
        for size in sizes:
            of_size = [row for row in mine if row["size_bytes"] == size]
            cells += [_median(of_size, "cold_ms", 1), _median(of_size, "warm_ms", 1)]
        lines.append(f"| {setting} | {' | '.join(cells)} |")
    return [*lines, *_bursts([row for row in rows if "burst" in row])]


def _bursts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return []
    sizes = sorted({row["burst"] for row in rows})
    heads = " | ".join(f"{size} at once: first byte | ready" for size in sizes)
    lines = ["", "Table: median time to the first byte [ms] of flows that start together, and how many of them took a "]
    lines[-1] += "ready connection [%]."
    lines += ["", f"| pool | {heads} |", "|---:|" + "---:|" * (2 * len(sizes))]
    for pool in sorted({row["pool"] for row in rows}):
        cells = []
        for size in sizes:
            mine = [row for row in rows if (row["pool"], row["burst"]) == (pool, size)]
            # The first flow of each row was cold.
            taken, flows = sum(row["taken"] for row in mine), sum(len(row["warm_ms"]) for row in mine)
            cells += [_median(mine, "warm_ms", 0), f"{taken / flows:.0%}" if flows else ""]
        lines.append(f"| {pool} | {' | '.join(cells)} |")
    return lines


def _size(size_bytes: int) -> str:
    return f"{size_bytes} B" if size_bytes < 1_000 else f"{size_bytes / 1e3:,.0f} kB"


def _median(rows: Sequence[Mapping[str, Any]], key: str, which: int) -> str:
    times = [times[which] for row in rows for times in row[key]]
    return f"{statistics.median(times):,.0f}" if times else ""
