"""Rate and completion time of TCP connections beyond CloudPilot's model: loss, congestion control, slow start.

- Reno with loss: Padhye, Firoiu, Towsley and Kurose, Modeling TCP Reno Performance, IEEE/ACM Transactions on Networking
  8 (2000), equation 30.
- CUBIC with loss: RFC 9438, equation 6, and never less than Reno.
- bbr: loss does not limit it (below some 15%).
- Slow start: the window doubles in each round trip, from ten segments (RFC 6928).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tradewind.model.flows import CongestionControl
from tradewind.model.records import dataclass

__all__ = ["Hop", "completion_s", "hop_mbps", "loss_for_mbps", "loss_limited_mbps", "part_of_loss"]

SEGMENT_BYTES = 1448.0
"""Payload of a full packet of 1,500 bytes with timestamps."""
INITIAL_SEGMENTS = 10
TIMEOUT_S_MIN = 0.2
"""Linux's least retransmission timeout."""
TIMEOUT_ROUND_TRIPS = 2
"""Round trips of a retransmission timeout, if that is longer."""
CUBIC_C, CUBIC_BETA = 0.4, 0.7
"""Constants of RFC 9438, section 4.1."""
LOSS_MIN, LOSS_MAX = 1e-9, 0.1
"""Losses that a rate may be explained by."""
LOSS_STEPS = 50
"""Halvings of the logarithm of that range."""
MBITS_PER_BYTE = 8e-6


@dataclass(frozen=True, slots=True)
class Hop:
    """One TCP connection of a path."""

    rtt_ms: float
    window_bytes: float
    capacity_mbps: float = math.inf
    """The least of last miles, proxies and limits."""
    loss: float = 0.0
    """Part of the packets that is lost, 0 to 1."""
    congestion_control: CongestionControl = "cubic"
    """Congestion control of the sender."""
    is_between_proxies: bool = False
    """True if TLS 1.3 follows the connect, and then a request and its answer."""
    is_ready: bool = False
    """True if it was connected, TLS included, before the flow came."""

    @property
    def open_s(self) -> float:
        """Time until it can carry bytes: a round trip each for connect, TLS, and the request between proxies."""
        connects = 0 if self.is_ready else 2 if self.is_between_proxies else 1
        return self.rtt_ms / 1e3 * (connects + self.is_between_proxies)


def loss_limited_mbps(control: CongestionControl, rtt_ms: float, loss: float) -> float:
    """Return the rate that a congestion control reaches with this loss; infinite without loss, and for bbr."""
    if loss <= 0 or rtt_ms <= 0 or control == "bbr":
        return math.inf
    rtt_s = rtt_ms / 1e3
    recovery_s = rtt_s * math.sqrt(2 * loss / 3)
    timeout_s = (
        max(TIMEOUT_S_MIN, TIMEOUT_ROUND_TRIPS * rtt_s)
        * min(1.0, 3 * math.sqrt(3 * loss / 8))
        * loss
        * (1 + 32 * loss**2)
    )
    segments_per_s = 1 / (recovery_s + timeout_s)
    if control == "cubic":
        scale: float = (CUBIC_C * (3 + CUBIC_BETA) / (4 * (1 - CUBIC_BETA))) ** 0.25
        cubic: float = scale * (rtt_s / loss) ** 0.75 / rtt_s
        segments_per_s = max(segments_per_s, cubic)
    return segments_per_s * SEGMENT_BYTES * MBITS_PER_BYTE


def loss_for_mbps(control: CongestionControl, rtt_ms: float, rate_mbps: float) -> float | None:
    """Return the loss that limits a congestion control to this rate; None if none up to LOSS_MAX does."""
    if not loss_limited_mbps(control, rtt_ms, LOSS_MAX) <= rate_mbps <= loss_limited_mbps(control, rtt_ms, LOSS_MIN):
        return None
    low, high = LOSS_MIN, LOSS_MAX
    for _ in range(LOSS_STEPS):
        middle = math.sqrt(low * high)
        if loss_limited_mbps(control, rtt_ms, middle) > rate_mbps:
            low = middle
        else:
            high = middle
    return high


def hop_mbps(hop: Hop) -> float:
    """Return the rate of a hop that lasts: the least of window per round trip, loss limit and capacity."""
    by_window = math.inf if hop.rtt_ms <= 0 else hop.window_bytes * MBITS_PER_BYTE / (hop.rtt_ms / 1e3)
    return min(by_window, loss_limited_mbps(hop.congestion_control, hop.rtt_ms, hop.loss), hop.capacity_mbps)


def completion_s(hops: Sequence[Hop], size_bytes: float) -> float:
    """Return the time to open a path and send so many bytes over it [s].

    The hops open one after the other, and then carry bytes at the same time: the hop with the slowest start decides.
    """
    rate_mbps = min(hop_mbps(hop) for hop in hops)
    opening_s = sum(hop.open_s for hop in hops)
    travel_s = sum(hop.rtt_ms for hop in hops) / 2e3
    return opening_s + travel_s + max(_sending_s(hop, rate_mbps, size_bytes) for hop in hops)


def part_of_loss(loss: float, part: float) -> float:
    """Return the loss of a part of a path, 0 to 1 of its round trip, if each part of it loses alike."""
    arrives: float = (1 - loss) ** min(1.0, part)
    return 1 - arrives


def _sending_s(hop: Hop, rate_mbps: float, size_bytes: float) -> float:
    """Return the time to send, with slow start up to the rate [s]."""
    rtt_s, first_bytes = hop.rtt_ms / 1e3, INITIAL_SEGMENTS * SEGMENT_BYTES
    full_bytes = rate_mbps / MBITS_PER_BYTE * rtt_s
    rounds = math.ceil(math.log2(full_bytes / first_bytes)) if full_bytes > first_bytes else 0
    growing_bytes: float = first_bytes * (2**rounds - 1)
    if size_bytes <= growing_bytes:
        return rtt_s * max(0, math.ceil(math.log2(size_bytes / first_bytes + 1)) - 1)
    return rounds * rtt_s + (size_bytes - growing_bytes) * MBITS_PER_BYTE / rate_mbps
