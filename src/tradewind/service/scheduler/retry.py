"""Retry classes: the number of further attempts after a failure of each kind, and the waits before them."""

from __future__ import annotations

import zlib

from tradewind.model.records import dataclass

__all__ = ["CLASSES", "STORE_DOWN", "RetryClass", "retry_wait_s"]

STORE_DOWN = "store-down"


@dataclass(frozen=True)
class RetryClass:
    """`attempts` more runs after failures of this class. The wait doubles from `wait_s` up to `wait_s_max`."""

    attempts: int
    wait_s: float
    wait_s_max: float
    meaning: str


CLASSES = {
    "transient": RetryClass(8, 5, 900, "a connection or a gateway was lost"),
    "throttled": RetryClass(20, 30, 1800, "a store or a cloud asked to slow down"),
    "capacity": RetryClass(48, 60, 1800, "no machine could be rented"),
    "integrity": RetryClass(2, 5, 60, "bytes did not match"),
    "permission": RetryClass(0, 0, 0, "credentials are missing or refused"),
    "not-found": RetryClass(0, 0, 0, "the source does not exist"),
    "invalid": RetryClass(0, 0, 0, "the job cannot be carried out as it is"),
}
"""Retry classes by name. A failure because a store is down has no class: it uses no attempt."""


def retry_wait_s(rule: RetryClass, job_id: str, attempt: int) -> float:
    """Return the wait before the attempt, counted from 1: half of it fixed, half spread by the job's id.

    Equal inputs give equal waits, and jobs that failed together do not return together.
    """
    wait_s = min(rule.wait_s * 2.0 ** min(attempt - 1, 30), rule.wait_s_max)
    spread = zlib.crc32(f"{job_id} {attempt}".encode()) / 2**32
    return wait_s * (0.5 + 0.5 * spread)
