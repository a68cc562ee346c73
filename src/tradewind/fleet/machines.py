"""The machines of one fleet: launched, listed, charged and ended through its provider."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from tradewind.errors import TradewindError
from tradewind.fleet.boots import BootRecorder
from tradewind.fleet.calls import LAUNCH_S, InFlight, each_of
from tradewind.fleet.charges import Charges
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.launching import Launcher, other_type
from tradewind.fleet.leases import Leases, lease_within
from tradewind.fleet.liveness import Liveness
from tradewind.fleet.offers import OfferBook
from tradewind.fleet.orders import Orders
from tradewind.fleet.patience import Patience
from tradewind.fleet.provider import Adopting, Ended, LaunchOrder, ListIncomplete, Machine, Offer, Provider
from tradewind.fleet.settings import FleetSettings, Meter
from tradewind.gateway.process import STOP_S
from tradewind.model.latch import Latch
from tradewind.model.plan import GatewayAddress, Plan, PlannedGateway
from tradewind.model.records import replace

if TYPE_CHECKING:
    from tradewind.fleet.enrolment import Enrolment

__all__ = ["FleetMachines"]


class FleetMachines:
    """Starts and ends the machines of one fleet, and records them: in the journal, for their leases and for the meter.

    `addresses` are those of the gateways that have answered; an ended machine loses its address. With `taken` the fleet
    was warm, and its machines may run already. No machine is launched once `ended` is set, and with `hurried` no
    provider that does not answer is waited for. `dismiss` is called with the name of each machine that was ended.
    """

    def __init__(
        self,
        fleet_id: str,
        provider: Provider,
        journal: FleetJournal,
        settings: FleetSettings,
        leases: Leases,
        addresses: dict[str, GatewayAddress],
        *,
        meter: Meter | None,
        taken: bool,
        ended: Latch,
        hurried: Latch,
        dismiss: Callable[[str], None],
        report: Callable[[str], None],
    ) -> None:
        self.by_name: dict[str, Machine] = {}
        self.in_flight = InFlight()
        self.boots = BootRecorder(journal, fleet_id)
        self.charges = Charges(fleet_id, journal, meter, leases, self.boots, states_prices=settings.states_prices)
        self._fleet_id, self._provider, self._journal, self._settings = fleet_id, provider, journal, settings
        self._leases, self._addresses, self._taken = leases, addresses, taken
        #: Machines that were dead when they were last looked at, and are charged no more.
        self._uncharged: set[str] = set()
        self._ended, self._hurried, self._dismiss, self._report = ended, hurried, dismiss, report
        self._liveness = Liveness(fleet_id, provider, self.in_flight, leases, self.boots)
        self._ordering = Orders(fleet_id, settings)
        self._offers = OfferBook(provider, self.in_flight, self._may_rent)
        self._launcher = Launcher(
            provider,
            journal,
            self._is_wanted,
            ended,
            self.in_flight,
            self._offers.by_region,
            self._can_pay,
            self._repriced,
            self._retried_s,
        )

    @property
    def launched_s(self) -> float | None:
        """Monotonic time at which the latest launch was answered, or given up; None before the first."""
        return self._launcher.launched_s

    @property
    def may_exist(self) -> bool:
        """False before the first launch of a fleet that was not warm: no machine can have its tags."""
        return self._taken or self._launcher.ever_launched

    def listed(self) -> tuple[Machine, ...]:
        """Return the machines as the provider lists them, also ended ones. Raises GatewayError."""
        return self._liveness.listed()

    def alive(self, patience: Patience | None = None) -> list[Machine]:
        """Return the machines that have not ended, as the provider lists them. Raises GatewayError."""
        return [machine for machine in self._liveness.listed(patience) if not machine.ended]

    def dead(self) -> dict[str, Machine | None]:
        """Return the known machines that have ended; the value is the listing of the machine, or None."""
        return self._liveness.dead(dict(self.by_name))

    def look_up_offers(self, gateways: Sequence[PlannedGateway]) -> None:
        """Get the provider's offers for new machines. Raises ProviderRefused if a region's quota is too small."""
        self._offers.look_up(gateways)

    def orders(self, plan: Plan, lease_s: int, generation: int, enrolment: Enrolment | None) -> list[LaunchOrder]:
        """Return the orders of all machines that a plan wants."""
        return self._ordering.of(plan, lease_s, generation, enrolment)

    def launch(self, orders: Sequence[LaunchOrder]) -> bool:
        """Launch machines, all in one call. Return whether all were, before the fleet ended. Raises ProviderRefused."""
        for order in orders:
            self.charges.ordered(order)
        planned = {order.name: order for order in orders}
        missing = dict(planned)
        try:
            for order, machine in self._launcher.launch(orders):
                del missing[order.name]
                self._liveness.launched(order.name)
                self._leases.begin(order.name, order.lease.seconds)
                self.by_name[order.name] = machine
                offers = self._offers.by_region.get(order.region, ())
                self.charges.launched(planned[order.name], order, machine, offers)
                if (note := other_type(planned[order.name], order, offers)) is not None:
                    self._report(note)
        finally:
            # A machine whose launch was not answered may run: it is charged until the provider says that it does not.
            self.charges.refused(missing.keys() - self._launcher.unanswered - self._launcher.unwanted)
        return not missing

    def take(self, wanted: Collection[str], renew: Callable[[Sequence[Machine]], set[str]]) -> set[str]:
        """Take the machines of the warm fleet that are wanted and whose gateways `renew` has renewed; end the others.

        Return the names of those that were taken.
        """
        began_s = time.time()
        if isinstance(self._provider, Adopting):
            self._provider.adopt(self._fleet_id)
        there = [machine for machine in self.alive() if machine.name in wanted]
        for machine in there:
            self.charges.taken(machine, self._settings.kept_machines.get(machine.name), began_s)
            self._leases.begin(machine.name, self._settings.lease_s)
        ready = renew(there)
        self.by_name.update({machine.name: machine for machine in there if machine.name in ready})
        self.terminate([machine for machine in there if machine.name not in ready])
        for name in set(wanted) - ready:
            self._ordering.taken_over(name, began_s)
        return ready

    def keep_only(self, wanted: Collection[str]) -> None:
        """Know the wanted machines that run; end those that are not wanted, and clear away the dead ones."""
        # Before the first launch no machine has this fleet's tags.
        listed = {machine.name: machine for machine in self.alive()} if self._launcher.ever_launched else {}
        surplus = [
            machine
            for name, machine in listed.items()
            if name not in wanted and name not in self._settings.kept_machines
        ]
        self.end(set(self.dead()))
        self.terminate(surplus)
        self.by_name.update({name: machine for name, machine in listed.items() if name in wanted})

    def end(self, names: set[str]) -> None:
        """End machines of a fleet that keeps running. Holds no lock: the fleet may be closed at any moment.

        Raises GatewayError if some may still run: they are charged, and ended when the fleet is closed.
        """
        if not names:
            return
        gone: dict[str, Machine] = {}
        with suppress(TradewindError):
            # Include machines whose launch was not answered: they are billed too.
            self._settle(names)
            gone = {machine.id: machine for machine in self.alive() if machine.name in names}
            self._charge_no_unlaunched(names, gone.values())
        for name in names:
            if (machine := self.by_name.pop(name, None)) is not None:
                gone[machine.id] = machine
        try:
            self.terminate(list(gone.values()))
        finally:
            for name in names:
                self._leases.end(name)
                self._addresses.pop(name, None)
                self._dismiss(name)
        for name in names:
            self.charges.ended(name)

    def end_all(self, grace_s: float) -> None:
        """End the known machines, those that the provider lists, and those that are being launched."""
        known = list(self.by_name.values())
        if not (known or self.may_exist):
            return
        patience = Patience(self._hurried, self._report)
        try:
            listed = self.alive()
        except TradewindError as error:
            # Other machines may run. Those that are known must not wait for a listing.
            seen = error.found if isinstance(error, ListIncomplete) else ()
            known = [*{machine.id: machine for machine in (*seen, *known) if not machine.ended}.values()]
            self.terminate(known, grace_s, patience)
            # If it fails again, the record stays open.
            ended = {machine.id for machine in known}
            listed = [machine for machine in self.alive(patience) if machine.id not in ended]
            known = []
        self.terminate([*{machine.id: machine for machine in (*listed, *known)}.values()], grace_s, patience)
        launching = self.in_flight.is_busy
        if launching and not self.in_flight.wait(LAUNCH_S):
            self._report(
                f"fleet {self._fleet_id}: a launch was not answered; "
                "machines that it started end when their leases expire"
            )
        unanswered = set(self._launcher.unanswered)
        if launching or unanswered:
            time.sleep(self._provider.settles_s)
            late = self.alive(patience)
            self._charge_no_unlaunched(unanswered, [*listed, *late])
            self.terminate(late, patience=patience)
        self.by_name = {}

    def terminate(self, machines: Sequence[Machine], grace_s: float = STOP_S, patience: Patience | None = None) -> None:
        """End machines. One that never answered gets no grace period: it has no work to save.

        Without `patience`, those of a fleet that runs: when it is closed, all are ended anyway.
        """
        from tradewind.fleet.ending import terminate_each

        ready = [machine.id for machine in machines if machine.name in self._addresses]
        unready = [machine.id for machine in machines if machine.id not in ready]
        names = {machine.id: machine.name for machine in machines}

        def note(answer: Ended) -> None:
            self.charges.ended(names[answer.id], answer.ended_unix_s)
            self._ordering.ended(names[answer.id])
            self._dismiss(names[answer.id])

        patience = patience or Patience(self._ended)
        terminate_each(self._provider, [(unready, 0.0), (ready, grace_s)], self.in_flight, note, patience)

    def charge_dead(self) -> None:
        """Report dead machines to the meter. They are charged until this is noticed, for HEARTBEAT_S at most.

        A list may omit a machine for a while. One whose gateway answers is charged all the same.
        """
        with suppress(TradewindError, OSError):
            dead = self.dead()
            unlisted = [name for name, ended in dead.items() if ended is None and name not in self._uncharged]
            answers = dict(zip(unlisted, each_of(unlisted, self._leases.answers), strict=True))
            for name, ended in dead.items():
                if not answers.get(name, False):
                    self.charges.ended(name, ended.ended_unix_s if ended else None)
            self._uncharged = {name for name in dead if not answers.get(name, False)}

    def _settle(self, names: Collection[str]) -> None:
        """Wait until the provider lists the machines whose launch was not answered."""
        if self._launcher.unanswered & set(names):
            time.sleep(self._provider.settles_s)

    def _charge_no_unlaunched(self, names: Collection[str], listed: Iterable[Machine]) -> None:
        """Cancel the charges of machines that were not launched: their orders were not answered, and none is listed."""
        never = self._launcher.unanswered & set(names) - {machine.name for machine in listed} - self.by_name.keys()
        self._launcher.unanswered -= never
        self.charges.refused(never - self._launcher.unwanted)

    def _is_wanted(self, order: LaunchOrder) -> bool:
        """Return whether a launched machine is still wanted. It is not if any process ended the fleet, or if the plan
        changed.
        """
        return not self._ended.is_set() and order.name in self._journal.intent(self._fleet_id).machines

    def _can_pay(self, planned: LaunchOrder, other: LaunchOrder, machines: int) -> bool:
        return self.charges.can_pay(planned, other, self._offers.by_region.get(other.region, ()), machines)

    def _retried_s(self, most_s: float) -> float:
        """Return how long an order may be retried, up to `most_s`, while other machines may run and are charged."""
        return self.charges.left_s(most_s) if self.by_name or self._launcher.unanswered else most_s

    def _repriced(self, planned: LaunchOrder, other: LaunchOrder) -> LaunchOrder:
        """Charge a machine at the price of another type. Return its order with a lease that the ceiling allows then."""
        self.charges.repriced(planned, other, self._offers.by_region.get(other.region, ()))
        longest_s = planned.lease.seconds
        room_s = self.charges.left_s(longest_s + STOP_S)
        lease_s = lease_within(room_s, longest_s, min(self._settings.ready_s, room_s))
        return replace(other, lease=replace(other.lease, seconds=lease_s))

    def _may_rent(self, offer: Offer) -> bool:
        """Return whether an offer, where machines are to be kept, is the one that the user agreed to."""
        kept = [one for one in self._settings.kept_machines.values() if one.region == offer.region and one.type]
        return self._taken or not kept or any((one.type, one.spot) == (offer.type, offer.spot) for one in kept)
