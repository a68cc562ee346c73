"""A single flow moves one window per round trip, however fast the link is."""

from __future__ import annotations

from pathlib import Path

from benchmarks.sky.table import Figure, Table, counted
from testbed.sky import GOODPUT_PER_WIRE, send, sink
from tradewind.sky.file import network_from_document
from tradewind.sky.running import Sky

RATE_MBPS = 500
RTTS_MS = (10, 50, 100, 200)
WINDOWS_BYTES = (256 << 10, 1 << 20)


def measure_window(quick: bool) -> Table:
    """Measure flows whose receiver limits the window that it advertises."""
    table = Table(
        f"Single flow = window / RTT (link of {RATE_MBPS} Mbit/s, no loss)",
        ["window [KiB]", "RTT [ms]", "window / RTT [Mbit/s]", "measured [Mbit/s]", "measured / theory"],
    )
    for rtt_ms in RTTS_MS[1:2] if quick else RTTS_MS:
        link = {"between": ["site:a", "site:b"], "rtt_ms": rtt_ms, "rate": f"{RATE_MBPS}Mbit/s"}
        document = {"regions": {"site:a": {"name": "a"}, "site:b": {"name": "b"}}, "links": [link]}
        with Sky.up(network_from_document(document, Path())) as sky:
            table.rows += [_row(sky, window_bytes, rtt_ms, quick) for window_bytes in WINDOWS_BYTES]
    return table


def _row(sky: Sky, window_bytes: int, rtt_ms: float, quick: bool) -> list[Figure]:
    theory = min(window_bytes * 8 / (rtt_ms * 1e3), RATE_MBPS * GOODPUT_PER_WIRE)
    with sink(sky, "b-1", window_bytes=window_bytes) as address:
        measured = counted(sky, lambda: send(sky, "a-1", address, seconds=2 if quick else 6, warmup_s=3))
    share: Figure = measured / theory if isinstance(measured, float) else measured
    return [window_bytes >> 10, rtt_ms, theory, measured, share]
