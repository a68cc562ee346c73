"""Rates that packet loss allows on the hops of a path (the keys `loss` and `congestion_control` of a flow).

Each part of the direct path is assumed to lose alike, by its round trip, and so are the hops that replace it. A flow's
sender has the flow's congestion control, and a proxy that of the problem. Formulas are those of `tcp.py`, for arrays.
"""

from __future__ import annotations

import numpy as np

from tradewind.model.flows import CongestionControl
from tradewind.placement.problem import FloatArray, Flow
from tradewind.placement.tcp import (
    CUBIC_BETA,
    CUBIC_C,
    MBITS_PER_BYTE,
    SEGMENT_BYTES,
    TIMEOUT_ROUND_TRIPS,
    TIMEOUT_S_MIN,
)

__all__ = ["loss_limits_mbps", "loss_of_hops"]


def loss_of_hops(flow: Flow, rtt_ms: FloatArray) -> FloatArray:
    """Return the part of the packets that hops with these round trips lose."""
    part = np.minimum(1.0, rtt_ms / flow.rtt_direct_ms) if flow.rtt_direct_ms > 0 else np.ones_like(rtt_ms)
    loss: FloatArray = 1 - (1 - flow.loss) ** part
    return loss


def loss_limits_mbps(control: CongestionControl, rtt_ms: FloatArray, loss: FloatArray) -> FloatArray:
    """Return the rate of each hop that a congestion control reaches; infinite where nothing is lost, and for bbr."""
    limits_mbps = np.full(np.shape(rtt_ms), np.inf)
    lossy = (loss > 0) & (rtt_ms > 0)
    if control == "bbr" or not lossy.any():
        return limits_mbps
    rtt_s, part = rtt_ms[lossy] / 1e3, loss[lossy]
    timeouts = np.minimum(1.0, 3 * np.sqrt(3 * part / 8)) * part * (1 + 32 * part**2)
    timeout_s = np.maximum(TIMEOUT_S_MIN, TIMEOUT_ROUND_TRIPS * rtt_s) * timeouts
    segments_per_s = 1 / (rtt_s * np.sqrt(2 * part / 3) + timeout_s)
    if control == "cubic":
        scale = (CUBIC_C * (3 + CUBIC_BETA) / (4 * (1 - CUBIC_BETA))) ** 0.25
        segments_per_s = np.maximum(segments_per_s, scale * (rtt_s / part) ** 0.75 / rtt_s)
    limits_mbps[lossy] = segments_per_s * SEGMENT_BYTES * MBITS_PER_BYTE
    return limits_mbps
