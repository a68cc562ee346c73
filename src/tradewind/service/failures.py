"""The retry class of a failed run, and whether one of its stores does not answer."""

from __future__ import annotations

from collections.abc import Iterable

from tradewind.engine.tasks import store_answers
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
from tradewind.model.url import parse_url
from tradewind.service.limits import PROBE_S_MAX

__all__ = ["failure_kind", "first_down"]

#: Refusals of a provider that may end by themselves.
PASSING_REFUSALS = ("capacity", "quota", "throttled")
#: Words of stores that ask to slow down.
SLOW_DOWN = ("slowdown", "slow down", "too many requests", "throttl", "429")
_KINDS: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((GatewayLost, Interrupted, FleetTaken), "transient"),
    ((VerificationMismatch,), "integrity"),
    ((Unauthorised,), "permission"),
    ((SourceNotFound,), "not-found"),
)


def failure_kind(error: TradewindError | OSError) -> str:
    """Return the retry class of an error that ended a run."""
    if isinstance(error, Unavailable):
        return "throttled" if any(word in str(error).lower() for word in SLOW_DOWN) else "transient"
    if isinstance(error, ProviderRefused):
        return "capacity" if error.kind in PASSING_REFUSALS else "permission"
    return next((kind for errors, kind in _KINDS if isinstance(error, errors)), "invalid")


def first_down(gateway: str | None, places: Iterable[str]) -> str | None:
    """Return the first place whose store does not answer; None if all do. Raises UsageError, GatewayError."""
    for text in places:
        place = parse_url(text, cwd="/")
        if place.kind != "file" and not store_answers(gateway, place.root, timeout_s=PROBE_S_MAX):
            return text
    return None
