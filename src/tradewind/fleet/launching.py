"""Launch machines, many in one call, and react to each refusal.

| refusal | reaction |
|---|---|
| permission, bad request | fail at once, and name the missing action |
| quota | fail: the plan needs fewer machines there |
| capacity | try the other zones, then other types; then fail, so that the planner can avoid the region |
| throttled, transient | retry with exponential backoff and jitter |

A call whose answer is lost may have started machines. They are looked up by their tags before they are ordered again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from tradewind.errors import ProviderRefused, TradewindError
from tradewind.fleet.calls import CALL_S, LAUNCH_S, InFlight
from tradewind.fleet.fleet_records import Attempt
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import (
    ANY_TYPE,
    FLEET_TAG,
    KEY_TAG,
    CallRefused,
    LaunchOrder,
    LaunchResult,
    Machine,
    Offer,
    Provider,
    Refusal,
)
from tradewind.model.latch import Latch
from tradewind.model.records import dataclass, field, replace
from tradewind.model.units import SECONDS_PER_HOUR, format_usd

__all__ = [
    "BACKOFF_S_MAX",
    "CHOICES_MAX",
    "LAUNCH_OUTAGE_S",
    "PRICE_RATIO_MAX",
    "Launcher",
    "choices_of",
    "offer_for",
    "other_type",
]

#: Maximum number of zones and types to try for one machine if a region lacks capacity, including the first.
CHOICES_MAX = 8
#: Maximum price of another type, as a multiple of the planned type's price.
PRICE_RATIO_MAX = 1.5
#: Time for which the order of one machine is retried after throttling or transient errors, from the first of them.
LAUNCH_OUTAGE_S = 90.0
#: First wait after throttling or a transient error. It doubles with each retry, up to BACKOFF_S_MAX.
BACKOFF_S = 0.5
BACKOFF_S_MAX = 20.0
DOUBLINGS_MAX = 16


@dataclass(slots=True)
class _Pending:
    """A machine that is not launched yet: its planned and its current order, the remaining choices, and the retries."""

    planned: LaunchOrder
    order: LaunchOrder
    choices: Iterator[LaunchOrder] | None = None
    waits: int = 0
    since_s: float | None = None
    """Monotonic time of the first of the refusals after which it waits."""
    due_s: float = 0.0


@dataclass
class Launcher:
    """Launches machines of one fleet.

    `wanted` returns whether an order is still valid. If it is not, the machine that it launched is ended. `can_pay`
    returns whether the cost ceiling allows another order in place of the planned one, for so many machines. Nothing is
    retried for longer than the ceiling can pay for the machines that run.
    """

    provider: Provider
    journal: FleetJournal
    wanted: Callable[[LaunchOrder], bool]
    stopped: Latch
    """Set when the fleet ends: no more machines are ordered, and waits are cut short."""
    in_flight: InFlight
    offers: Mapping[str, Sequence[Offer]]
    """Offers by region."""
    can_pay: Callable[[LaunchOrder, LaunchOrder, int], bool]
    repriced: Callable[[LaunchOrder, LaunchOrder], LaunchOrder] = lambda _, other: other
    """Charges another order in place of the planned one from now on, and returns it with a lease that can be paid."""
    left_s: Callable[[float], float] = lambda most_s: most_s
    """Returns how long the cost ceiling allows to retry an order, up to so many seconds."""
    unanswered: set[str] = field(default_factory=set)
    """Machines whose last order was not answered, or refused because its own answer was lost: they may run."""
    unwanted: set[str] = field(default_factory=set)
    """Machines that were launched when they were no longer wanted, and ended at once: they are billed for that time."""
    launched_s: float | None = None
    """Monotonic time at which the latest launch was answered, or given up; None before the first."""

    @property
    def ever_launched(self) -> bool:
        """True once a launch was begun."""
        return self.launched_s is not None

    def launch(self, orders: Sequence[LaunchOrder]) -> Iterator[tuple[LaunchOrder, Machine]]:
        """Yield each machine when it is launched, with its last order.

        Raises ProviderRefused if a machine cannot be launched. The caller must end the others, which may have been.
        """
        pending = {order.name: _Pending(order, order) for order in orders}
        while pending:
            if self.stopped.is_set():
                return
            now_s = time.monotonic()
            due = [each for each in pending.values() if each.due_s <= now_s]
            if not due:
                self.stopped.wait(min(each.due_s for each in pending.values()) - now_s)
                continue
            given_up: dict[str, Refusal] = {}
            self.launched_s = now_s
            for result in self._call([each.order for each in due]):
                self._record(result)
                if result.machine is not None:
                    del pending[result.order.name]
                    yield result.order, result.machine
                elif result.refusal is not None and not self._prepare_retry(
                    pending[result.order.name], result.refusal, len(pending)
                ):
                    given_up[result.order.name] = result.refusal
            if given_up:
                raise _given_up(given_up, orders)

    def _call(self, orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
        """Return one result per order, even if the call as a whole is refused or not answered."""
        names = {order.name for order in orders}
        self.unwanted -= names
        self.unanswered |= names  # Also if this thread is interrupted meanwhile.
        try:
            results = self.in_flight.within(LAUNCH_S, "launch", lambda: self._launch_wanted(orders))
        except CallRefused as error:
            there = self._launched_before(orders) if error.refusal.kind == "transient" else {}
            results = [
                LaunchResult(order, there.get(order.key), None if order.key in there else error.refusal)
                for order in orders
            ]
        self.unanswered -= {result.order.name for result in results if not _may_run(result)}
        self.launched_s = time.monotonic()
        return results

    def _launch_wanted(self, orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
        """Launch in this thread, and at once end machines that are no longer wanted, even if the caller timed out."""
        results = self.provider.launch(orders)
        surplus = [of.machine for of in results if of.machine is not None and not self.wanted(of.order)]
        if surplus:
            self.unwanted |= {machine.name for machine in surplus}
            self.provider.terminate([machine.id for machine in surplus])
        return [of if of.machine not in surplus or of.machine is None else _not_wanted(of) for of in results]

    def _launched_before(self, orders: Sequence[LaunchOrder]) -> dict[str, Machine]:
        """Return the machines that were started by a call whose answer was lost, by key."""
        keys, tags = {order.key for order in orders}, {FLEET_TAG: orders[0].fleet_id}
        self.stopped.wait(self.provider.settles_s)
        try:
            found = self.in_flight.within(CALL_S, "list machines", lambda: self.provider.machines(tags))
        except CallRefused:
            return {}  # The provider recognizes the next order by its key.
        return {
            machine.tags[KEY_TAG]: machine
            for machine in found
            if machine.tags.get(KEY_TAG) in keys and not machine.ended
        }

    def _prepare_retry(self, pending: _Pending, refusal: Refusal, machines: int) -> bool:
        """Prepare the next attempt; return False if none is left. As many `machines` as this may need another type."""
        if refusal.kind == "capacity":
            pending.since_s = None
            if pending.choices is None:
                pending.choices = iter(choices_of(pending.order, self.offers.get(pending.order.region, ())))
            able = (each for each in pending.choices if self.can_pay(pending.planned, each, machines))
            fresh = next(able, None)
            if fresh is not None:
                pending.order = self.repriced(pending.planned, fresh)
            return fresh is not None
        if refusal.kind not in ("throttled", "transient"):
            return False
        from random import uniform

        now_s = time.monotonic()
        pending.since_s = now_s if pending.since_s is None else pending.since_s
        # Others may run and be charged meanwhile.
        left_s = self.left_s(pending.since_s + LAUNCH_OUTAGE_S - now_s)
        if left_s <= 0:
            return False
        longest_s = min(BACKOFF_S_MAX, BACKOFF_S * 2 ** min(pending.waits, DOUBLINGS_MAX))
        # The last try is at the end of the time.
        wait_s = min(uniform(longest_s / 2, longest_s), left_s)
        pending.waits += 1
        pending.due_s = now_s + refusal.pause_s(wait_s, left_s)
        return True

    def _record(self, result: LaunchResult) -> None:
        order, refusal = result.order, result.refusal
        outcome = "launched" if refusal is None else refusal.kind
        zone = order.zone if result.machine is None else result.machine.zone
        reason, action = ("", None) if refusal is None else (refusal.reason, refusal.action)
        attempt = Attempt(self.journal.unix_s(), order.name, order.region, outcome, reason, order.type, zone, action)
        self.journal.record_attempt(order.fleet_id, attempt)


def choices_of(order: LaunchOrder, offers: Collection[Offer]) -> list[LaunchOrder]:
    """Return alternative orders for a machine: first the other zones of its type, then equivalent types.

    A type is equivalent if its network is as fast and it costs at most PRICE_RATIO_MAX times as much; the cheapest
    comes first. An on-demand machine may replace a spot machine. Without a planned type only the zone varies.
    """
    first = offer_for(order, offers)
    mine = [] if first is None else [first]
    zones = dict.fromkeys(zone for offer in mine for zone in offer.zones if zone != order.zone)
    found = [replace(order, zone=zone) for zone in zones] if order.zone is not None or len(zones) > 1 else []
    if order.type is not None and first is not None and first.type != ANY_TYPE:
        planned = first
        others = [
            offer
            for offer in offers
            if offer not in mine
            and offer.region == order.region
            and (offer.spot <= order.spot)
            and offer.egress_gbps >= planned.egress_gbps
            and offer.ingress_gbps >= planned.ingress_gbps
            and (offer.usd_per_s <= planned.usd_per_s * PRICE_RATIO_MAX or offer.type == planned.type)
            and offer.left != 0
        ]
        others.sort(key=lambda offer: (offer.type != planned.type, offer.usd_per_s))
        found += [replace(order, type=offer.type, spot=offer.spot, zone=None) for offer in others]
    return found[: CHOICES_MAX - 1]


def offer_for(order: LaunchOrder, offers: Collection[Offer]) -> Offer | None:
    """Return the offer that matches an order, or None."""
    for offer in offers:
        is_type = offer.type == ANY_TYPE or order.type is None or (offer.type, offer.spot) == (order.type, order.spot)
        if offer.region == order.region and is_type:
            return offer
    return None


def other_type(planned: LaunchOrder, order: LaunchOrder, offers: Collection[Offer]) -> str | None:
    """Return a line for the user if a machine has another type or price than the plan; None if it has not."""
    offer = offer_for(order, offers)
    if offer is None or (planned.type, planned.spot) == (order.type, order.spot):
        return None
    missing = f"a {planned.type} spot machine" if planned.spot else f"a {planned.type}"
    what = order.type if order.type != planned.type else f"{order.type} on demand"
    price = f"{format_usd(offer.usd_per_s * SECONDS_PER_HOUR)} per hour"
    return f"{order.region} has no capacity for {missing}: machine {order.name} is a {what}, for {price}"


def _may_run(result: LaunchResult) -> bool:
    """Return whether a machine may run that the provider has not reported."""
    return result.refusal is not None and result.refusal.kind == "transient"


def _not_wanted(result: LaunchResult) -> LaunchResult:
    words = "it was ended: when its launch was done, it was no longer wanted"
    return LaunchResult(result.order, refusal=Refusal("bad request", words))


def _given_up(refusals: dict[str, Refusal], orders: Sequence[LaunchOrder]) -> TradewindError:
    """Return the error of a fleet that cannot be launched: its first refusal, and the refused machines' regions."""
    by_name = {order.name: order for order in orders}
    name, refusal = next(iter(refusals.items()))
    order = by_name[name]
    more = "" if len(refusals) == 1 else f" and {len(refusals) - 1} more"
    hints = {
        "permission": refusal.missing,
        "quota": "use fewer machines: --max-vms, or --machines of `fleet up`",
    }
    return ProviderRefused(
        f"machine {name} in {order.region}{more} cannot be launched: {refusal.kind}: {refusal.reason}",
        hint=hints.get(refusal.kind) or f"`tradewind fleet explain {order.fleet_id}` shows each attempt",
        kind=refusal.kind,
        regions={name: by_name[name].region for name in refusals},
    )
