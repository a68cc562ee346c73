"""Completion time with handshakes and slow start, for short flows (the option `slow_start` of a problem).

A flow over hops with the round trips r_h at the rate R, the slowest hop's, takes

    Σ_h 2 r_h + max_h ((n_h − 1) r_h + rest_h / R)

The hops connect one after another, and the first window crosses them one after another and is acknowledged: two round
trips for each. Then all hops carry bytes at the same time, and the slowest decides. A hop sends 10 segments in its
first round trip (RFC 6928) and twice as many in each of the next, until it sends R·r_h. n_h is the number of these
rounds, at least one, and rest_h are the bytes after them. No bytes are lost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tradewind.placement.problem import FloatArray

__all__ = ["FIRST_WINDOW_BYTES", "slow_start_fct_s"]

FIRST_WINDOW_BYTES = 10 * 1460.0
"""Initial window of 10 segments (RFC 6928, section 2)."""
MBITS_PER_BYTE = 8e-6


def slow_start_fct_s(size_bytes: float, rate_mbps: FloatArray, hops_ms: Sequence[FloatArray]) -> FloatArray:
    """Return the completion time of a flow on each path [s].

    `hops_ms` has the first, second and third hop of each path; NaN for a hop that a path does not have.
    """
    rate_bytes = rate_mbps / MBITS_PER_BYTE
    opening_s, slowest_s = np.zeros(len(rate_mbps)), np.zeros(len(rate_mbps))
    for hop_ms in hops_ms:
        rtt_s = hop_ms / 1e3
        opening_s += 2 * np.nan_to_num(rtt_s)
        slowest_s = np.fmax(slowest_s, _after_first_round_s(size_bytes, rate_bytes, rtt_s))
    fct_s: FloatArray = opening_s + slowest_s
    return fct_s


def _after_first_round_s(size_bytes: float, rate_bytes: FloatArray, rtt_s: FloatArray) -> FloatArray:
    """Return the time that a hop needs after its first round trip."""
    full_bytes = rate_bytes * rtt_s
    growth = np.ceil(np.log2(np.fmax(full_bytes / FIRST_WINDOW_BYTES, 1.0)))
    needed = np.ceil(np.log2(size_bytes / FIRST_WINDOW_BYTES + 1))
    rounds = np.maximum(1.0, np.minimum(growth, needed))
    sent_bytes = np.where(growth == 0, full_bytes, FIRST_WINDOW_BYTES * (2**rounds - 1))
    after_s: FloatArray = (rounds - 1) * rtt_s + np.maximum(0.0, size_bytes - sent_bytes) / rate_bytes
    return after_s
