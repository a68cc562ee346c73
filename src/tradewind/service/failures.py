"""The errors of failed runs: their retry class, and the message for their tenants."""

from __future__ import annotations

import errno
import logging
import re

from tradewind.errors import (
    FleetTaken,
    GatewayError,
    GatewayLost,
    Interrupted,
    ProviderRefused,
    SourceNotFound,
    TradewindError,
    TransferError,
    Unauthorised,
    Unavailable,
    VerificationMismatch,
)
from tradewind.fleet.provider import CallRefused
from tradewind.model.units import format_count
from tradewind.service.told import told_error

__all__ = ["failure_kind", "is_state_full", "tenant_error", "text_for_record"]

_LOG = logging.getLogger("tradewind.service")
#: Refusals of a provider that may end by themselves.
PASSING_REFUSALS = ("capacity", "quota", "throttled")
#: Words of stores that ask to slow down, and the addresses in messages, which may have the same letters and digits.
SLOW_DOWN = re.compile(r"slow ?down|too many requests|throttl|\b429\b", re.IGNORECASE)
ADDRESS = re.compile(r"\b[a-z0-9]+://\S+", re.IGNORECASE)
#: Words of a gateway that cannot write the journal of a job, and of SQLite if the disk is full. A full disk may also
#: show as an error of input and output.
_JOURNAL_PATH = re.compile(r"cannot use the journal [^:]*")
JOURNAL, FULL = "cannot use the journal", ("database or disk is full", "No space left on device")
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
#: Hint for the tenant if a provider has refused something to the operator's account.
PROVIDER_HINT = "the operator finds the provider's reason in the server's log"
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


def tenant_error(error: TradewindError | OSError, *, hides_words: bool = False) -> TradewindError | OSError:
    """Return an error as a tenant may read it: without a provider's words, which may name the operator's account.

    With `hides_words` it has no words of stores either, see `told`. Paths of the service itself are left out.
    """
    if isinstance(error, ProviderRefused):
        what = format_count(len(error.regions), "machine")
        text = f"{what} of the operator cannot be launched: {error.kind}"
        return ProviderRefused(text, hint=PROVIDER_HINT, kind=error.kind, regions=error.regions)
    if isinstance(error, CallRefused):
        return GatewayError(f"a provider of the operator refused a call: {error.refusal.kind}", hint=PROVIDER_HINT)
    if isinstance(error, OSError):
        return OSError(error.errno, f"the service failed: {error.strerror or type(error).__name__}")
    if isinstance(error, TransferError):
        return told_error(error) if hides_words else error
    if isinstance(error, GatewayError) and JOURNAL in str(error):
        return GatewayError(_JOURNAL_PATH.sub(JOURNAL, str(error)), hint=error.hint)
    return error


def text_for_record(error: BaseException) -> str:
    """Return the text of an error for the record of a run, which its tenant reads. What is left out is logged."""
    if not isinstance(error, (TradewindError, OSError)):
        return str(error)
    told = str(tenant_error(error))
    if told != str(error):
        _LOG.error("a run: %s", error)
    return told


def is_state_full(error: TradewindError | OSError) -> bool:
    """Return whether an error says that the disk of the state folder is full."""
    if isinstance(error, OSError):
        return error.errno in NO_SPACE
    return JOURNAL in str(error) and any(words in str(error) for words in FULL)
