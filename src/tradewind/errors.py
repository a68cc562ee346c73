"""Errors, grouped by meaning.

::

    TradewindError
    ├── UsageError                 2    invalid arguments
    │   ├── UrlError               2    an invalid URL or path
    │   ├── TopologyError          2    a topology or plan that cannot be carried out
    │   ├── SkyFileError           2    an invalid sky file
    │   └── ConfigError            2    config.toml or a TRADEWIND_* variable
    ├── PlanError                  1    nothing was planned
    │   ├── InfeasibleGoal         1    no plan meets the goal; has `.because` and `.nearest`
    │   ├── SolverLimitReached     1    the work limit was reached before any plan was found
    │   └── InvalidPlan            1    the check refused a plan: a bug
    ├── JobNotFound                3    no such job or acceleration in the state folder
    ├── FleetNotFound              3    no such fleet in the state folder
    ├── JobUnreadable              1    a job's record in the state folder is damaged
    ├── JobBusy                    1    another process is working on this job
    ├── StateError                 1    the state folder's database is damaged, blocked, full, or of a newer version
    ├── PriceApiError              1    a cloud's price API sent an answer that cannot be parsed
    │   ├── PriceApiUnavailable    5    it does not answer, or not in time
    │   └── PriceApiRefused        7    it needs an API key, or refused the one it got
    ├── GatewayError               1    the gateway program is missing, of another version, or refused its program
    │   ├── GatewayLost            5    a required gateway died
    │   ├── GuestAbsent            5    the user's host that sends or receives did not join
    │   ├── CredentialsNotSent     7    a store's credentials cannot be limited, so no other machine gets them
    │   ├── MachinesMayRun        10   a transfer is done and proven, but its machines could not be ended
    │   ├── FleetTaken             1    a warm fleet that a plan uses is in use, or has ended: plan again
    │   └── ProviderRefused        1    a provider refused to launch machines; has `.kind` and `.regions`
    ├── MarketError                1    a price, quote, bid or reservation is not possible
    │   ├── EmptyMargin            1    no price pays for both the service and its users
    │   └── BudgetExceeded         8    the amount is more than what is left of a budget
    ├── ReceiptMismatch            6    a receipt is not as the transfer service signed it
    ├── SkyError                   1    the emulated WAN is not running, or refused a request
    │   ├── SkyUnavailable         11   this host cannot run one: no root, no TUN device
    │   └── SkyInvalid             1    the emulator was overloaded: its measurements do not count
    └── TransferError                   a job did not succeed; has `.summary` and `.job_id`
        ├── JobFailed              1    failed as a whole
        ├── JobRefused             2    it would lose or overwrite data; nothing was started
        ├── SourceNotFound         3    the source does not exist, or nothing is below it
        ├── SomeObjectsFailed      4    the other objects are done and proven
        ├── Unavailable            5    only temporary errors: a retry may succeed
        ├── VerificationMismatch   6    bytes did not match
        ├── Unauthorised           7    credentials missing or refused
        ├── CeilingReached         8    stopped by the cost or size ceiling
        ├── DeadlineMissed         9    everything is done and proven, but after the deadline
        └── Interrupted            130  stopped before the end; resumable

The message of an error says what happened; `hint`, if set, says what to do. Both are one line. The number is the exit
code of the command line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tradewind.model.event import Outcome, Summary
    from tradewind.model.overlay import MulticastOverlay, UnicastOverlay


class TradewindError(Exception):
    """Base class of all errors that Tradewind raises on purpose.

    `exit_code` is what the command line returns for it. Messages and hints name arguments of Python; the programs call
    `name_options`, so theirs name options.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self._hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return message if _names_options else with_paths(_for_caller(message))

    @property
    def hint(self) -> str | None:
        """One line of advice, or None."""
        return self._hint and _for_caller(self._hint)

    @hint.setter
    def hint(self, hint: str | None) -> None:
        self._hint = hint


_names_options = False


def name_options(wanted: bool = True) -> None:
    """Let all messages of this process name options of the command line, instead of arguments of Python."""
    global _names_options
    _names_options = wanted


def _for_caller(text: str) -> str:
    if _names_options:
        return text
    from tradewind.model.arguments import in_python

    return in_python(text)


def with_paths(message: str) -> str:
    """Return a message with files named by their paths, as users type them, in place of their `file://` URLs."""
    return re.sub(r"(?<!\S)('?)file://(?=/)", r"\1", message)


_text_of_error: Callable[[BaseException], str] = str


def record_errors_as(text_of: Callable[[BaseException], str]) -> None:
    """Let this process write errors into the records of runs, which others may read, as `text_of` returns them."""
    global _text_of_error
    _text_of_error = text_of


def recorded_text(error: BaseException) -> str:
    """Return the text of an error for the record of a run: its notices, and how it ended."""
    return _text_of_error(error)


class UsageError(TradewindError):
    """Invalid arguments; nothing was started."""

    exit_code = 2


class UrlError(UsageError):
    """An invalid URL or path."""


class TopologyError(UsageError):
    """A topology or plan that cannot be carried out."""


class SkyFileError(UsageError):
    """An invalid sky file."""


class ConfigError(UsageError):
    """An invalid setting in config.toml or in a TRADEWIND_* variable."""


class PlanError(TradewindError):
    """Nothing was planned."""


class InfeasibleGoal(PlanError):
    """No plan meets the goal. `because` names the limit; `nearest` is the plan that comes closest, if one exists."""

    def __init__(self, because: str, *, hint: str | None, nearest: UnicastOverlay | MulticastOverlay | None) -> None:
        super().__init__(because, hint=hint)
        self.because = because
        self.nearest = nearest


class SolverLimitReached(PlanError):
    """The work limit was reached before any plan was found."""


class InvalidPlan(PlanError):
    """The check found that a plan violates a constraint: a bug, or figures beyond the solver's precision."""


class JobNotFound(TradewindError):
    """No such job or acceleration in the state folder."""

    exit_code = 3


class FleetNotFound(TradewindError):
    """No such fleet in the state folder."""

    exit_code = 3


class JobUnreadable(TradewindError):
    """A job's record in the state folder is damaged."""


class JobBusy(TradewindError):
    """Another process works on this job."""


class StateError(TradewindError):
    """The state folder's database is damaged, locked by another process, not writable, or of a newer version."""


class PriceApiError(TradewindError):
    """A cloud's price API sent an answer that cannot be parsed. The catalog is unchanged."""


class PriceApiUnavailable(PriceApiError):
    """A cloud's price API does not answer, or not in time. The catalog is unchanged."""

    exit_code = 5


class PriceApiRefused(PriceApiError):
    """A cloud's price API needs an API key, or refused the one it got. The catalog is unchanged."""

    exit_code = 7


class GatewayError(TradewindError):
    """The gateway program is missing, of another version, or refused its program."""


class GatewayLost(GatewayError):
    """A gateway that the transfer needed died. The journal is safe; the job can be resumed."""

    exit_code = 5


class MachinesMayRun(GatewayError):
    """A transfer is done and proven, but machines that were rented for it could not be ended."""

    exit_code = 10


class GuestAbsent(GatewayError):
    """The user's host that sends or receives did not join the job, or could not. The job can be resumed."""

    exit_code = 5


class CredentialsNotSent(GatewayError):
    """The credentials of a store cannot be limited to the transfer, so they were not sent to another machine."""

    exit_code = 7


class FleetTaken(GatewayError):
    """Another process uses a warm fleet, or it has ended. Nothing was started; a new plan does without it."""


class MachineReclaimed(GatewayError):
    """Spot machines ended before they had work, as clouds may take them back at any time. Another start may succeed.

    `names` are those that are known to have ended.
    """

    def __init__(self, message: str, *, hint: str | None = None, names: Collection[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.names = frozenset(names)


class ProviderRefused(GatewayError):
    """A provider refused to launch machines, and further attempts would not help.

    `kind` is the kind of refusal (`capacity`, `quota`, `permission`, …); `regions` has the machines' regions, by name.
    """

    def __init__(self, message: str, *, hint: str | None, kind: str, regions: Mapping[str, str]) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.regions = regions


class MarketError(TradewindError):
    """A price, quote, bid or reservation is not possible."""


class EmptyMargin(MarketError):
    """The lower bound of the service's price is above its upper bound."""


class BudgetExceeded(MarketError):
    """The amount is more than what is left of a budget, or of a reservation."""

    exit_code = 8


class ReceiptMismatch(TradewindError):
    """A receipt, or the list of objects beside it, is not as the transfer service signed it."""

    exit_code = 6


class SkyError(TradewindError):
    """The emulated WAN is not running, or refused a request."""


class SkyUnavailable(SkyError):
    """This host cannot run an emulated WAN: it needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN) and /dev/net/tun."""

    exit_code = 11


class SkyInvalid(SkyError):
    """The emulator was overloaded: its measurements show this host, not the network."""


class TransferError(TradewindError):
    """A job did not succeed. `summary` has the counts, `job_id` names it for `jobs show` and `jobs resume`."""

    def __init__(
        self, message: str, *, hint: str | None = None, summary: Summary | None = None, job_id: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.summary = summary
        self.job_id = job_id


class JobFailed(TransferError):
    """Failed as a whole."""

    exit_code = 1


class JobRefused(TransferError):
    """The job would lose or overwrite data; nothing was started."""

    exit_code = 2


class SourceNotFound(TransferError):
    """The source does not exist, or nothing is below it."""

    exit_code = 3


class SomeObjectsFailed(TransferError):
    """Some objects could not be moved; the others are done and proven."""

    exit_code = 4


class Unavailable(TransferError):
    """Only temporary errors: a retry may succeed."""

    exit_code = 5


class VerificationMismatch(TransferError):
    """Bytes did not match; no wrong object is visible at the destination."""

    exit_code = 6


class Unauthorised(TransferError):
    """Credentials are missing, or the store refused them."""

    exit_code = 7


class CeilingReached(TransferError):
    """Stopped by the cost or size ceiling."""

    exit_code = 8


class DeadlineMissed(TransferError):
    """Everything is done and proven, but the job ended after its deadline."""

    exit_code = 9


class Interrupted(TransferError):
    """Stopped by a signal or by `drain`. Resume the job with `jobs resume`."""

    exit_code = 130


#: Errors by outcome of a job, for all outcomes except `done`.
ERROR_BY_OUTCOME: dict[Outcome, type[TransferError]] = {
    "failed": JobFailed,
    "refused": JobRefused,
    "source_not_found": SourceNotFound,
    "some_failed": SomeObjectsFailed,
    "unavailable": Unavailable,
    "mismatch": VerificationMismatch,
    "unauthorised": Unauthorised,
    "ceiling": CeilingReached,
    "interrupted": Interrupted,
}
