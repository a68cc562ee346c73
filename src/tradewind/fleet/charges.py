"""Records of a fleet about its machines: in the journal that they exist, in the meter since when they are charged."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from tradewind.fleet.boots import BootRecorder
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.launching import offer_for
from tradewind.fleet.leases import Leases
from tradewind.fleet.provider import LaunchOrder, Machine, Offer
from tradewind.fleet.settings import Meter
from tradewind.fleet.warm import WarmMachine
from tradewind.gateway.process import STOP_S
from tradewind.model.ledger import MachinePrice

__all__ = ["Charges"]


class Charges:
    """Records the machines of one fleet. With `states_prices` the meter gets the price of each new machine."""

    def __init__(
        self,
        fleet_id: str,
        journal: FleetJournal,
        meter: Meter | None,
        leases: Leases,
        boots: BootRecorder,
        *,
        states_prices: bool,
    ) -> None:
        self._fleet_id, self._journal, self._meter = fleet_id, journal, meter
        self._leases, self._boots, self._states_prices = leases, boots, states_prices

    def ordered(self, order: LaunchOrder) -> None:
        """Record a machine that is about to be ordered: it may run from now on."""
        self._journal.launched(self._fleet_id, order.name, order.region, order.lease.seconds)
        self._boots.ordered(order.name)
        if self._meter is not None:
            self._meter.launched(self._fleet_id, order.name, order.region)

    def taken(self, machine: Machine, kept: WarmMachine | None, began_unix_s: float) -> None:
        """Record a warm machine that the fleet takes. Its minimum time was paid when it was rented."""
        if self._meter is not None:
            price = None if kept is None else MachinePrice(kept.usd_per_s, kept.price_source)
            self._meter.launched(self._fleet_id, machine.name, machine.region)
            self._meter.reported(self._fleet_id, machine.name, began_unix_s, price)

    def repriced(self, planned: LaunchOrder, other: LaunchOrder, offers: Sequence[Offer]) -> None:
        """Charge a machine that was ordered at the price of another type, which is about to be ordered instead."""
        offer = offer_for(other, offers)
        if self._meter is not None and offer is not None and _is_other(planned, other):
            self._meter.reported(self._fleet_id, other.name, None, _price_of(offer))

    def left_s(self, most_s: float) -> float:
        """Return how long the machines may run within the cost ceiling, up to `most_s`, as far as that is known."""
        return most_s if self._meter is None or most_s <= 0 else self._meter.left_s(most_s)

    def launched(self, planned: LaunchOrder, order: LaunchOrder, machine: Machine, offers: Sequence[Offer]) -> None:
        """Record since when a machine is billed, and its price if its type is not the planned one."""
        self._boots.listed([machine])
        if self._meter is None:
            return
        offer = offer_for(order, offers)
        began_s = machine.launched_unix_s
        if offer is not None and offer.billing.begins == "running":
            began_s = machine.running_unix_s
        price = None
        if offer is not None and (_is_other(planned, order) or self._states_prices):
            price = _price_of(offer)
        self._meter.reported(self._fleet_id, order.name, began_s, price)

    def can_pay(self, planned: LaunchOrder, other: LaunchOrder, offers: Sequence[Offer], machines: int) -> bool:
        """Return whether the ceiling allows `machines` of another type in place of planned ones, which are charged.

        Only their minimum charge counts: what they cost beyond it, the ceiling stops in time.
        """
        first, second = offer_for(planned, offers), offer_for(other, offers)
        if self._meter is None or first is None or second is None:
            return True
        more_usd = second.usd_per_s * second.billing.least_s - first.usd_per_s * first.billing.least_s
        return more_usd <= 0 or self._meter.can_pay(more_usd * machines)

    def ended(self, name: str, ended_unix_s: float | None = None) -> None:
        """Record the end of a machine: the end that the provider reports, or of its lease.

        The lease may have expired unnoticed while this process was suspended. The clocks of provider and host may be
        wrong, but a machine that answered had not ended yet.
        """
        expired_s = self._leases.expired_s(name) - STOP_S
        reported_s = 0.0 if ended_unix_s is None else time.time() - ended_unix_s
        ago_s = max(0.0, min(max(expired_s, reported_s), self._leases.unseen_s(name)))
        self._journal.ended(self._fleet_id, {name}, ago_s)
        if self._meter is not None:
            self._meter.ended(self._fleet_id, {name}, ago_s)

    def refused(self, names: Collection[str]) -> None:
        """Record machines that were ordered but not launched."""
        if names:
            self._journal.refused(self._fleet_id, names)
            if self._meter is not None:
                self._meter.refused(self._fleet_id, names)

    def all_ended(self) -> None:
        """Let the meter charge no machine of the fleet any more."""
        if self._meter is not None:
            self._meter.ended(self._fleet_id)


def _is_other(planned: LaunchOrder, order: LaunchOrder) -> bool:
    return (order.type, order.spot) != (planned.type, planned.spot)


def _price_of(offer: Offer) -> MachinePrice:
    return MachinePrice(offer.usd_per_s, offer.price_source, offer.billing.least_s, offer.billing.unit_s)
