"""Take the machines of a warm fleet for a job, and give them back with gateways that keep nothing of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from tradewind.errors import GatewayError, GatewayLost, StateError, TradewindError
from tradewind.fleet.calls import each_of
from tradewind.fleet.enrolment import Enrolment
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import Machine
from tradewind.fleet.warm import Keeping, WarmBook
from tradewind.gateway.client import GatewayClient
from tradewind.model.latch import Latch

__all__ = ["Keeper"]

#: Timeout until the new process of a gateway answers. It starts on a machine that runs.
RENEW_S = 20.0
#: The same if the gateway did not answer that it becomes one: then it may not live. A living one drains for up to 8 s
#: before (`DRAIN_AT_EXIT_TIMEOUT`), and tries to enrol every 2 s at least.
RENEW_UNANSWERED_S = 12.0
#: Interval between two attempts to reach it.
LOOK_S = 0.02
#: Timeout of one attempt: a request to the former process may never be answered.
ATTEMPT_S = 2.0


class Keeper:
    """Takes and gives back the machines of one warm fleet. `report` gets one line per problem."""

    def __init__(self, journal: FleetJournal, fleet_id: str, keeping: Keeping, report: Callable[[str], None]) -> None:
        self.keeping = keeping
        self._journal, self._fleet_id, self._report = journal, fleet_id, report
        self._book = WarmBook(journal)

    def take(self, machines: Sequence[Machine], enrolment: Enrolment, job: str) -> set[str]:
        """Let the gateways of machines become new processes, and return the names of those that did."""
        ready = self._renew(machines, enrolment)
        with suppress(StateError):
            self._book.used(self._fleet_id, job, ready)
        return ready

    def give_back(self, machines: Sequence[Machine], enrolment: Enrolment) -> set[str]:
        """Renew the gateways of machines, and set their leases to the idle timeout. Return the names of those that are
        kept; the caller must end the others.
        """
        kept = set[str]()

        def idle(machine: Machine) -> None:
            if (control := enrolment.reach(machine)) is None:
                return
            with suppress(GatewayError):
                lease_s = self.keeping.lease_s(self.keeping.idle_s)
                GatewayClient(control).renew_lease(lease_s)
                self._journal.leased(self._fleet_id, machine.name, lease_s)
                kept.add(machine.name)

        ready = self._renew([machine for machine in machines if machine.name in self.keeping.machines], enrolment)
        each_of([machine for machine in machines if machine.name in ready], idle)
        with suppress(StateError):
            self._book.returned(self._fleet_id)
        return kept

    def _renew(self, machines: Collection[Machine], enrolment: Enrolment) -> set[str]:
        ready = set[str]()

        def renew(machine: Machine) -> None:
            try:
                answered = enrolment.renew_process(machine)
                _wait_answer(machine, enrolment, RENEW_S if answered else RENEW_UNANSWERED_S)
                ready.add(machine.name)
            except TradewindError as error:
                self._report(f"machine {machine.name} of warm fleet {self._fleet_id} cannot be used again: {error}")

        each_of(list(machines), renew)
        return ready


def _wait_answer(machine: Machine, enrolment: Enrolment, timeout_s: float) -> None:
    """Wait until the new process of a gateway has enrolled. Raises GatewayError."""
    deadline_s = time.monotonic() + timeout_s
    pause = Latch()
    while True:
        control = enrolment.reach(machine)
        assert control is not None  # It has an address, else its process would not have been renewed.
        try:
            GatewayClient(control).version(max(LOOK_S, min(ATTEMPT_S, deadline_s - time.monotonic())))
            return
        except GatewayLost:
            if time.monotonic() >= deadline_s:
                raise
        pause.wait(LOOK_S)
