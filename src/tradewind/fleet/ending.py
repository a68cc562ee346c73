"""End machines and fleets, including those of other processes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import count

from tradewind.errors import GatewayError, UsageError
from tradewind.fleet.calls import CALL_S, LAUNCH_S, TERMINATE_S, InFlight
from tradewind.fleet.fleet_records import FleetRecord
from tradewind.fleet.home import end_home
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.patience import Patience
from tradewind.fleet.provider import FLEET_TAG, CallRefused, Ended, ListIncomplete, Machine, Provider, Refusal
from tradewind.fleet.providers import make_provider
from tradewind.fleet.settings import LEASE_S_MIN
from tradewind.gateway.process import STOP_S
from tradewind.model.records import dataclass
from tradewind.model.units import format_count

__all__ = ["EndedFleet", "end_extra", "end_fleet", "list_machines", "terminate", "terminate_each"]

#: Attempts to list machines while the provider is throttling or failing, by callers without patience. The waits between
#: them double from LIST_WAIT_S.
LIST_TRIES_MAX = 3
LIST_WAIT_S = 0.5
#: Time after its launch for which a list may omit a machine that the provider has acknowledged. The documented time of
#: a provider is shorter, but its lists are late at times.
UNLISTED_S = 120.0
#: Time for which a cloud may still carry out an order whose client was killed before the answer. The client itself
#: would have waited as long.
LATE_ORDER_S = LAUNCH_S


@dataclass(frozen=True, slots=True)
class EndedFleet:
    """A fleet that was ended in place of its client: the number of machines ended.

    `unlaunched` are names of machines that the client was about to order, or had just ordered, when it was killed, and
    that the provider never had. They cost nothing.
    """

    machines: int
    unlaunched: frozenset[str] = frozenset()


def list_machines(
    provider: Provider, fleet_id: str, in_flight: InFlight, patience: Patience | None = None
) -> tuple[Machine, ...]:
    """Return the machines of a fleet as its provider lists them. Raises CallRefused, ListIncomplete."""
    tags = {FLEET_TAG: fleet_id}
    for tries in count():
        try:
            found = in_flight.within(CALL_S, "list machines", lambda: provider.machines(tags))
        except CallRefused as error:
            if patience is not None:
                if not patience.wait(f"list the machines of fleet {fleet_id}", error.refusal):
                    raise
                continue
            if error.refusal.kind not in ("throttled", "transient") or tries == LIST_TRIES_MAX - 1:
                raise
            time.sleep(error.refusal.pause_s(LIST_WAIT_S * 2**tries))
        else:
            if patience is not None:
                patience.answered()
            return found
    raise AssertionError("the last attempt returns or raises")


def terminate(
    provider: Provider,
    ids: Collection[str],
    grace_s: float,
    in_flight: InFlight,
    on_end: Callable[[Ended], object] | None = None,
    patience: Patience | None = None,
) -> None:
    """End machines, and return when the provider reports them as gone. `on_end` gets each, also if others remain.

    Throttled and temporarily refused calls are retried as long as `patience` says, by default for OUTAGE_S.
    Raises GatewayError if some of them may still run.
    """
    patience = patience or Patience()
    left, lasting = list(ids), dict[str, Refusal]()
    while True:
        passing = dict[str, Refusal]()
        for answer in _try(provider, left, grace_s, in_flight):
            if answer.refusal is None:
                if on_end is not None:
                    on_end(answer)
            else:
                of_kind = passing if answer.refusal.kind in ("throttled", "transient") else lasting
                of_kind[answer.id] = answer.refusal
        left = list(passing)
        slowest = max(passing.values(), key=lambda refusal: refusal.retry_after_s or 0.0, default=None)
        if slowest is None or not patience.wait(f"end {format_count(len(left), 'machine')}", slowest):
            break
    if refused := lasting | passing:
        first = next(iter(refused.values()))
        raise GatewayError(
            f"{len(refused)} of {format_count(len(ids), 'machine')} may still run: {first.kind}: {first.reason}",
            hint=first.missing or "`tradewind fleet down` ends them; otherwise they end when their leases expire",
        )
    patience.answered()


def terminate_each(
    provider: Provider,
    groups: Sequence[tuple[Collection[str], float]],
    in_flight: InFlight,
    on_end: Callable[[Ended], object],
    patience: Patience | None = None,
) -> None:
    """End groups of machines, each with its own grace period [s]: all of them, even if one cannot be ended.

    Raises GatewayError like `terminate`, for the first group that may still run.
    """
    errors: list[GatewayError] = []
    for ids, grace_s in groups:
        try:
            if ids:
                terminate(provider, ids, grace_s, in_flight, on_end, patience)
        except GatewayError as error:
            errors.append(error)  # The others cost money, too.
    if errors:
        raise errors[0]


def _try(provider: Provider, ids: list[str], grace_s: float, in_flight: InFlight) -> Sequence[Ended]:
    try:
        return in_flight.within(TERMINATE_S + grace_s, "terminate", lambda: provider.terminate(ids, grace_s=grace_s))
    except CallRefused as error:
        return [Ended(machine_id, refusal=error.refusal) for machine_id in ids]


def end_fleet(record: FleetRecord, journal: FleetJournal, binary: str, patience: Patience | None = None) -> EndedFleet:
    """End the lead and the machines of a fleet in place of its client.

    Ends are retried as long as `patience` says, by default for OUTAGE_S. A region, host or cloud that does not answer
    keeps only its own machines.

    Raises UsageError for a fleet of another host, GatewayError for a provider that this version does not know.
    """
    if record.ownership == "elsewhere":
        raise UsageError(
            f"fleet {record.id} is on host {record.owner.host_name or 'unknown'} and can only be ended there",
            hint="run `tradewind fleet down` on that host; its machines end by themselves when their client is gone",
        )
    journal.dismiss(record.id)
    unanswered = journal.unanswered(record.id, LEASE_S_MIN)
    in_flight = InFlight()
    provider = make_provider(record.provider, binary, journal)
    patience = patience or Patience()
    listed = _end_listed(provider, record.id, journal, in_flight, patience)
    end_home(journal.path(record.id))
    if provider.settles_s > 0:
        # The first listing may have missed machines that were launched shortly before.
        time.sleep(provider.settles_s)
        listed += _end_listed(provider, record.id, journal, in_flight, patience)
        waits = patience.another()
        while _waits_for_unlisted(provider, record.id, listed, journal, waits):
            listed += _end_listed(provider, record.id, journal, in_flight, patience)
    # Other machines may have ended with their leases before they were looked for, and their provider may have forgotten
    # them. Those that an earlier process found while it tried to end the fleet are not unanswered.
    unlaunched = frozenset(unanswered - {machine.name for machine in listed})
    journal.never_launched(record.id, unlaunched)
    journal.close(record.id)
    return EndedFleet(len({machine.id for machine in listed if not machine.ended}), unlaunched)


def _waits_for_unlisted(
    provider: Provider, fleet_id: str, listed: Iterable[Machine], journal: FleetJournal, waits: Patience
) -> bool:
    """Wait if machines run, or may soon run, that lists do not show yet; return whether to list them again.

    A list may show only machines of the same name that have ended before.
    """
    if provider.settles_s == 0:
        return False
    living = {machine.name for machine in listed if not machine.ended}
    shown = Counter(name for name, _ in {(machine.name, machine.id) for machine in listed})
    expected = journal.may_be_unlisted(fleet_id, UNLISTED_S)
    late = [name for name, launched in expected.items() if name not in living and shown[name] < launched]
    words = "the list of machines does not show what runs"
    if not late:
        late = list(journal.just_ordered(fleet_id, LATE_ORDER_S) - living)
        words = "its killed command had just ordered what the list does not show"
    return bool(late) and waits.wait(f"end {' and '.join(sorted(late))}", Refusal("transient", words))


def end_extra(record: FleetRecord, kept: Mapping[str, str], journal: FleetJournal, binary: str) -> int:
    """End the machines of a warm fleet that are not `kept`, which has regions by name; return their number.

    A job that was killed leaves them. The caller has claimed the fleet. Raises GatewayError.
    """
    in_flight = InFlight()
    provider = make_provider(record.provider, binary, journal)
    listed, waits = list_machines(provider, record.id, in_flight), Patience()
    while _waits_for_unlisted(provider, record.id, listed, journal, waits):
        listed = list_machines(provider, record.id, in_flight)
    extra = {machine.id: machine.name for machine in listed if machine.name not in kept}
    if extra:
        terminate(provider, list(extra), STOP_S, in_flight)
        journal.ended(record.id, extra.values())
        journal.intend(record.id, {name: region for name, region in record.machines.items() if name in kept})
    return sum(1 for machine in listed if machine.id in extra and not machine.ended)


def _end_listed(
    provider: Provider, fleet_id: str, journal: FleetJournal, in_flight: InFlight, patience: Patience
) -> list[Machine]:
    missing: ListIncomplete | None = None
    try:
        listed = list_machines(provider, fleet_id, in_flight)
    except ListIncomplete as error:
        listed, missing = error.found, error
    # One that has ended may be an earlier machine of its name, and the latest may run and not be listed yet.
    ordered = journal.ordered(fleet_id)
    names = {one.id: one.name for one in listed if not one.ended or ordered[one.name] < 2}
    # If this process is killed before it closes the fleet, the next one must not take them for never launched.
    journal.listed(fleet_id, names.values())

    def note(ended: Ended) -> None:
        if ended.id in names:
            journal.ended(fleet_id, [names[ended.id]])

    # A machine that has ended may still be billed: in Azure, one that shut itself down.
    terminate(provider, [machine.id for machine in listed], STOP_S, in_flight, note, patience)
    if missing is not None:
        raise missing
    return list(listed)
