"""The retry class of a failed run."""

from __future__ import annotations

import errno
import re

from tradewind.errors import (
    FleetTaken,
    GatewayLost,
    Interrupted,
    ProviderRefused,
    SourceNotFound,
    TradewindError,
    Unauthorised,
    Unavailable,
    VerificationMismatch,
)

__all__ = ["failure_kind", "is_state_full"]

#: Refusals of a provider that may end by themselves.
PASSING_REFUSALS = ("capacity", "quota", "throttled")
#: Words of stores that ask to slow down, and the addresses in messages, which may have the same letters and digits.
SLOW_DOWN = re.compile(r"slow ?down|too many requests|throttl|\b429\b", re.IGNORECASE)
ADDRESS = re.compile(r"\b[a-z0-9]+://\S+", re.IGNORECASE)
#: Words of a gateway that cannot write the journal of a job, and of SQLite if the disk is full. A full disk may also
#: show as an error of input and output.
JOURNAL, FULL = "cannot use the journal", ("database or disk is full", "No space left on device")
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_KINDS: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((GatewayLost, Interrupted, FleetTaken), "transient"),
    ((VerificationMismatch,), "integrity"),
    ((Unauthorised,), "permission"),
    ((SourceNotFound,), "not-found"),
)


def failure_kind(error: TradewindError | OSError) -> str:
    """Return the retry class of an error that ended a run."""
    if isinstance(error, Unavailable):
        return "throttled" if SLOW_DOWN.search(ADDRESS.sub("", str(error))) else "transient"
    if isinstance(error, ProviderRefused):
        return "capacity" if error.kind in PASSING_REFUSALS else "permission"
    if JOURNAL in str(error):
        return "transient"
    return next((kind for errors, kind in _KINDS if isinstance(error, errors)), "invalid")


def is_state_full(error: TradewindError | OSError) -> bool:
    """Return whether an error says that the disk of the state folder is full."""
    if isinstance(error, OSError):
        return error.errno in NO_SPACE
    return JOURNAL in str(error) and any(words in str(error) for words in FULL)
