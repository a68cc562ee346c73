"""The emulated WAN in which acceleration is shown: two ends, three cloud regions between them, and what to expect.

All machines lie on one line, so a path through proxies is no longer than the direct one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tradewind.model.records import dataclass
from tradewind.placement.paths import paths_of
from tradewind.placement.problem import EDGE_WINDOW_BYTES, Flow, PlacementProblem, ProxyRegion
from tradewind.sky.file import network_from_document
from tradewind.sky.network import EmulatedNetwork

__all__ = [
    "CLIENT",
    "LINK_MBPS",
    "PROXY_MACHINES",
    "RECEIVE_BYTES",
    "RTT_MS",
    "SCALE",
    "SEND_BYTES",
    "SERVER",
    "TUNED_BYTES",
    "WAYS",
    "Way",
    "predicted_mbps",
    "scene",
]

#: Rates and windows are scaled by this, times are not: two busy cores cannot emulate several gigabits per second.
SCALE = 0.1
#: Where each machine is on the line: the round trip between two is the difference [ms].
POSITIONS_MS = {"client": 0.0, "near": 10.0, "halfway": 100.0, "far": 190.0, "server": 200.0}
CLIENT, SERVER = "client-1", "server-1"
#: Machines on which a proxy can run.
PROXY_MACHINES = ("near-1", "halfway-1", "far-1")
RTT_MS = POSITIONS_MS["server"] - POSITIONS_MS["client"]
#: Rate of each link before the scale, on the wire.
WIRE_MBPS = 1000.0
#: Payload in each byte on the wire at MTU 1500, with timestamps.
GOODPUT = 1448 / 1538
#: Payload that a link carries [Mbit/s], after the scale.
LINK_MBPS = WIRE_MBPS * GOODPUT * SCALE
#: Linux's default maxima of `tcp_rmem` and `tcp_wmem` for many years, after the scale. Linux 6.18 has 32 and 4 MiB.
RECEIVE_BYTES, SEND_BYTES = round(6_291_456 * SCALE), round(4_194_304 * SCALE)
#: A maximum for both that is often recommended for long paths, after the scale.
TUNED_BYTES = round(67_108_864 * SCALE)
#: The part of `tcp_rmem` that becomes the window, as placement assumes it.
WINDOW_PER_BUFFER = EDGE_WINDOW_BYTES / 6_291_456


@dataclass(frozen=True, slots=True)
class Way:
    """One way from the client to the server."""

    name: str
    through: tuple[str, ...] = ()
    """Machines with split proxies, from the client on."""
    tuned: bool = False
    """True if both ends have raised windows, and bbr where the kernel has it."""


#: The free gain comes before everything that costs money.
WAYS = (
    Way("direct"),
    Way("direct, tuned", tuned=True),
    Way("one split", ("halfway-1",)),
    Way("two splits", ("near-1", "far-1")),
)


def scene() -> EmulatedNetwork:
    """Return the network: a link between each two machines."""
    names = list(POSITIONS_MS)
    links = [
        {"between": [f"site:{a}", f"site:{b}"], "rtt_ms": _rtt_ms(a, b), "rate": f"{WIRE_MBPS:.0f}Mbit/s"}
        for number, a in enumerate(names)
        for b in names[number + 1 :]
    ]
    regions = {f"site:{name}": {"name": name} for name in names}
    return network_from_document({"regions": regions, "links": links, "scale": SCALE}, Path())


def predicted_mbps(ways: Sequence[Way]) -> Mapping[str, float]:
    """Return the rate of a large download by each way [Mbit/s], by the model of `tradewind.placement`.

    It is the rate of the slowest hop: one window per round trip, up to the rate of the links. Handshakes and slow start
    are not part of the model.
    """
    return {way.name: _predicted_mbps(way) for way in ways}


def _predicted_mbps(way: Way) -> float:
    names = [machine.removesuffix("-1") for machine in PROXY_MACHINES]
    window_bytes = (TUNED_BYTES if way.tuned else RECEIVE_BYTES) * WINDOW_PER_BUFFER
    # The bytes of a download go from the server to the client.
    flow = Flow(
        "download",
        1.0,
        RTT_MS,
        np.array([_rtt_ms("server", name) for name in names]),
        np.array([_rtt_ms(name, "client") for name in names]),
        LINK_MBPS,
        LINK_MBPS,
    )
    problem = PlacementProblem(
        regions=tuple(ProxyRegion(name, LINK_MBPS, 0.0, 0.0, 1) for name in names),
        rtt_ms=np.array([[_rtt_ms(a, b) for b in names] for a in names]),
        flows=(flow,),
        budget_cents=0.0,
        edge_window_bytes=window_bytes,
        cloud_window_bytes=TUNED_BYTES * WINDOW_PER_BUFFER,
    )
    paths = paths_of(problem)
    regions = tuple(PROXY_MACHINES.index(machine) for machine in reversed(way.through))
    return float(paths.rate_mbps[0, paths.regions.index(regions)])


def _rtt_ms(a: str, b: str) -> float:
    return abs(POSITIONS_MS[a] - POSITIONS_MS[b])
