"""The emulated WAN of Figs. 3, 4 and 15: machines in regions, links with true round trips, rates and windows scaled."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tradewind.placement.paths import paths_of
from tradewind.placement.problem import CLOUD_WINDOW_BYTES, EDGE_WINDOW_BYTES, Flow, PlacementProblem, ProxyRegion
from tradewind.sky.file import network_from_document
from tradewind.sky.network import EmulatedNetwork
from tradewind.sky.running import Sky

LINK_MBPS = 2000.0
"""Rate of each link on the wire before the scale: that of the paper's proxy machines (section 4.3)."""
GOODPUT_PER_WIRE = 1448 / 1538
WINDOW_PER_BUFFER = 0.655
"""Part of `tcp_rmem` that Linux 6.18 advertises as the window, for full segments from a TUN device. In a sky, `ss`
reports 0.650 to 0.660 for the buffers of Figs. 3 and 4, and 0.631 for the smaller ones of Fig. 15. So the buffers are
set such that the windows are about those that the paper observed."""
SEND_PER_WINDOW = 2.0
"""Send buffers, relative to the largest window. So receivers limit every flow, as in the model."""


@dataclass(frozen=True)
class Machine:
    """A machine of the ground."""

    name: str
    region: str
    cloud: bool = False
    """True if it receives from another proxy, with the paper's large window; otherwise with Linux's default."""

    @property
    def in_sky(self) -> str:
        """Its name in the sky."""
        return f"{self.name}-1"


@dataclass(frozen=True)
class Hop:
    """The kernel's figures of the connection that sent most, at its sender."""

    window_bytes: float
    rtt_ms: float


def network_of(
    machines: Sequence[Machine], pairs: Sequence[tuple[str, str]], rtt_ms: Callable[[str, str], float], scale: float
) -> EmulatedNetwork:
    """Return a network with a link for each pair of machines, given by name."""
    region = {machine.name: machine.region for machine in machines}
    links = [
        {
            "between": [f"site:{a}", f"site:{b}"],
            "rtt_ms": rtt_ms(region[a], region[b]),
            "rate": f"{LINK_MBPS:.0f}Mbit/s",
        }
        for a, b in sorted({(min(pair), max(pair)) for pair in pairs})
    ]
    regions = {f"site:{machine.name}": {"name": machine.name} for machine in machines}
    return network_from_document({"regions": regions, "links": links, "scale": scale}, Path())


def set_windows(sky: Sky, machines: Sequence[Machine], scale: float) -> None:
    """Set the buffers of all machines.

    A receive buffer has its final size at once: scaled buffers have few steps to grow in.
    """
    send = round(CLOUD_WINDOW_BYTES * scale * SEND_PER_WINDOW)
    for machine in machines:
        window = CLOUD_WINDOW_BYTES if machine.cloud else EDGE_WINDOW_BYTES
        receive = round(window * scale / WINDOW_PER_BUFFER)
        _set(sky, machine, "tcp_rmem", f"4096 {receive} {receive}")
        _set(sky, machine, "tcp_wmem", f"4096 16384 {send}")


def _set(sky: Sky, machine: Machine, setting: str, value: str) -> None:
    command = ["sh", "-c", f'echo "$1" > /proc/sys/net/ipv4/{setting}', "sh", value]
    sky.run(machine.in_sky, command, check=True)


def predicted_mbps(hops_ms: Sequence[float], scale: float) -> float:
    """Return the rate of the model (CloudPilot, section 4.2) over one, two or three hops, scaled [Mbit/s]."""
    count = len(hops_ms) - 1
    link_mbps = LINK_MBPS * GOODPUT_PER_WIRE * scale
    into, out = np.zeros(count), np.zeros(count)
    if count:
        into[0], out[-1] = hops_ms[0], hops_ms[-1]
    between_ms = np.zeros((count, count))
    if count == 2:
        into[1] = out[0] = between_ms[0, 1] = between_ms[1, 0] = hops_ms[1]
    problem = PlacementProblem(
        regions=tuple(ProxyRegion(f"proxy-{number}", link_mbps, 0.0, 0.0, 1) for number in range(count)),
        rtt_ms=between_ms,
        flows=(Flow("flow", 1.0, sum(hops_ms), into, out, link_mbps, link_mbps),),
        budget_cents=0.0,
        edge_window_bytes=EDGE_WINDOW_BYTES * scale,
        cloud_window_bytes=CLOUD_WINDOW_BYTES * scale,
    )
    paths = paths_of(problem)
    return float(paths.rate_mbps[0, paths.regions.index(tuple(range(count)))])


def largest_hop(sky: Sky, machine: Machine) -> Hop | None:
    """Return the state of a machine's connection that sent most; None if there is none, or `ss` says too little."""
    listing = sky.run(machine.in_sky, ["ss", "-tinH"], capture_output=True, text=True).stdout
    found = []
    for line in listing.splitlines():
        fields: Mapping[str, str] = dict(re.findall(r"(\w+):([\d.]+)", line))
        if {"bytes_acked", "snd_wnd", "rtt"} <= fields.keys():
            found.append((float(fields["bytes_acked"]), Hop(float(fields["snd_wnd"]), float(fields["rtt"]))))
    return max(found, key=lambda one: one[0])[1] if found else None
