"""The machines of one plan: a desired state that a provider reconciles, under leases that this process renews."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tradewind.errors import GatewayError, SkyError
from tradewind.fleet.journal import FleetJournal, FleetRecord, new_fleet_id
from tradewind.fleet.provider import Machine, MachineOrder, Provider
from tradewind.fleet.providers import make_provider
from tradewind.gateway.client import GatewayClient
from tradewind.gateway.process import READY_S
from tradewind.gateway.tls import make_identities
from tradewind.model.deployment import Deployment, GatewayAddress
from tradewind.model.plan import Plan, PlannedGateway
from tradewind.sky.folders import remove_left

__all__ = ["LEASE_S", "Fleet", "FleetSettings", "end_fleet"]

#: A machine ends so long after the last renewal. Long enough for a client that was stopped (Ctrl-Z) for a while, short
#: enough that a client which stands still for good costs no more than minutes of machines.
LEASE_S = 900
#: Leases are renewed so many times before they lapse.
RENEWALS_PER_LEASE = 3


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """How to start: data ports by gateway name, detours by hop, whether hops are plain TCP; times in seconds."""

    listen: Mapping[str, str] = field(default_factory=dict)
    detours: Mapping[tuple[str, str], str] = field(default_factory=dict)
    plain: bool = False
    lease_s: int = LEASE_S
    ready_s: float = READY_S
    """All machines answer within so long, or the fleet is given up."""
    grows: bool = False
    """Whether machines may be added later: the key that signs their certificates is then kept in the fleet's folder."""


class Fleet:
    """A running fleet. To close it ends its machines and removes what is known of it; more than once is no error."""

    def __init__(
        self,
        provider: Provider,
        journal: FleetJournal,
        plan: Plan,
        binary: str,
        *,
        purpose: str,
        settings: FleetSettings | None = None,
    ) -> None:
        """Starts the machines and returns when all answer.

        `purpose` is what `fleet list` shows of it. Raises GatewayError, with everything closed that was started.
        """
        self.id = new_fleet_id()
        self.plan = plan
        self.machines: dict[str, Machine] = {}
        self._provider, self._journal, self._binary = provider, journal, binary
        self._settings = settings or FleetSettings()
        self._addresses: dict[str, GatewayAddress] = {}
        self._ended = threading.Event()
        #: Held while machines are ordered or ended.
        self._ordering = threading.Lock()
        #: By region, the gateways that were given its machines, in their order.
        self._ordinals: dict[str, list[str]] = {}
        self._renewer: threading.Thread | None = None
        self._check_capabilities()
        self._purpose = purpose
        self.folder = self._write_down()
        try:
            self._start()
        except BaseException:
            self.close(at_once=True)
            raise

    def deployment(self) -> Deployment:
        """The plan with the addresses that the machines told."""
        return Deployment(self.plan, self._addresses, self._settings.detours)

    def grow(self, plan: Plan) -> Deployment:
        """Starts the machines that another plan has beside those of this one, and returns when all answer.

        No machine is ended: see `shrink`. Raises GatewayError, with the new machines ended again.
        """
        before, fresh = self.plan, _named(plan) - _named(self.plan)
        with self._ordering:
            if self._ended.is_set():
                raise GatewayError(f"fleet {self.id} is closed")
            there = {gateway.name: gateway for gateway in (*plan.gateways, *before.gateways)}
            self.plan = replace(plan, gateways=tuple(there.values()))
            try:
                self._check_capabilities()
                self._write_down()
                self._identify(fresh)
                for order in self._orders():
                    if order.name in fresh:
                        self.machines[order.name] = self._provider.create(order)
            except BaseException:
                self._give_up(fresh, before)
                raise
        try:
            self._wait_ready(fresh)
        except BaseException:
            with self._ordering:
                self._give_up(fresh, before)
            raise
        return Deployment(plan, self._addresses, self._settings.detours)

    def shrink(self, plan: Plan) -> None:
        """Ends the machines that a plan does not have, of those that `grow` left."""
        with self._ordering:
            if not self._ended.is_set():
                self._end(_named(self.plan) - _named(plan))
                self.plan = plan
                self._write_down()

    def living(self) -> set[str]:
        """Names of the machines that the provider says are alive."""
        return {machine.name for machine in self._provider.machines(self.id)}

    def reconcile(self) -> None:
        """Orders what the plan wants and is not there, and ends what is there and not wanted."""
        orders = {order.name: order for order in self._orders()}
        there = {machine.name: machine for machine in self._provider.machines(self.id)}
        surplus = [machine for name, machine in there.items() if name not in orders]
        if surplus:
            self._provider.delete(surplus)
        for name, order in orders.items():
            self.machines[name] = self._provider.create(order)

    def last_words(self, name: str, timeout_s: float) -> str:
        """How a machine that should be alive ended."""
        return self._provider.last_words(self.machines[name], timeout_s)

    def close(self, *, at_once: bool = False) -> None:
        """Ends all machines; `at_once` without letting them put down what they hold."""
        self._ended.set()
        with self._ordering:
            self._close(at_once=at_once)

    def _close(self, *, at_once: bool) -> None:
        machines = {machine.id: machine for machine in self._provider.machines(self.id)}
        machines.update((machine.id, machine) for machine in self.machines.values())
        self._provider.delete(list(machines.values()), at_once=at_once)
        self.machines = {}
        self._journal.close(self.id)

    def _write_down(self) -> Path:
        wanted = {gateway.name: gateway.region for gateway in self.plan.gateways}
        return self._journal.open(self.id, self._purpose, self._provider.document(), wanted)

    def _give_up(self, names: set[str], plan: Plan) -> None:
        self._end(names)
        self.plan = plan
        self._write_down()

    def _end(self, names: set[str]) -> None:
        gone = [machine for name in sorted(names) if (machine := self.machines.pop(name, None)) is not None]
        if gone:
            self._provider.delete(gone)
        for name in names:
            self._addresses.pop(name, None)

    def _check_capabilities(self) -> None:
        most = self._provider.capabilities().machines
        if most is None:
            return
        counts = Counter(gateway.region for gateway in self.plan.gateways if gateway.name != self.plan.lead)
        for region, count in counts.items():
            if count > most.get(region, 0):
                raise GatewayError(
                    f"the plan wants {count} machines in {region}, the {self._provider.kind} provider has "
                    f"{most.get(region, 0)}",
                    hint="plan with fewer: --max-vms",
                )

    def _start(self) -> None:
        shutil.rmtree(self._identities, ignore_errors=True)
        self._identify(_named(self.plan))
        self.reconcile()
        self._wait_ready(set(self.machines))
        self._renewer = threading.Thread(target=self._renew, name=f"leases of {self.id}", daemon=True)
        self._renewer.start()

    def _identify(self, names: set[str]) -> None:
        """Makes certificates, for those who need one and have none."""
        fresh = [name for name in sorted(names) if not (self._identities / name).exists()]
        if fresh and self._networked and not self._settings.plain:
            make_identities(self._binary, self._identities, fresh, grows=self._settings.grows)

    def _wait_ready(self, names: set[str]) -> None:
        deadline_s = time.monotonic() + self._settings.ready_s
        for name, machine in list(self.machines.items()):
            if name not in names:
                continue
            try:
                left_s = max(0.0, deadline_s - time.monotonic())
                self._addresses[name] = self._provider.wait_ready(machine, left_s)
            except GatewayError as error:
                raise GatewayError(
                    f"machine {name} in {machine.region} did not answer within {self._settings.ready_s:.0f} s: {error}"
                    if time.monotonic() >= deadline_s
                    else str(error),
                    hint=error.hint or "the other machines of the fleet were ended",
                ) from error

    def _orders(self) -> list[MachineOrder]:
        orders = []
        for gateway in self.plan.gateways:
            secured = self._networked and not self._settings.plain
            orders.append(
                MachineOrder(
                    self.id,
                    gateway.name,
                    gateway.region,
                    token=f"{self.id}/{gateway.name}",
                    lease_s=self._settings.lease_s,
                    ordinal=self._ordinal(gateway),
                    dialled=gateway.name in self._dialled,
                    listen=self._settings.listen.get(gateway.name),
                    identity=str(self._identities / gateway.name) if secured else None,
                )
            )
        return orders

    def _ordinal(self, gateway: PlannedGateway) -> int:
        """Which of its region's machines it is. None is given to two gateways, not even when the first one is gone."""
        if gateway.name == self.plan.lead and gateway.name not in self._dialled:
            return 0
        given = self._ordinals.setdefault(gateway.region, [])
        if gateway.name not in given:
            given.append(gateway.name)
        return given.index(gateway.name)

    @property
    def _dialled(self) -> set[str]:
        """Gateways that others connect to."""
        ends = {end for _, end in self.plan.stations()}
        return ends | {route.nodes[0] for route in self.plan.routes if route.nodes[0] != self.plan.lead}

    @property
    def _networked(self) -> bool:
        return bool(self._dialled)

    @property
    def _identities(self) -> Path:
        return self.folder / "identities"

    def _renew(self) -> None:
        """Says that we are alive. A machine that does not answer is the business of those who use it."""
        while not self._ended.wait(self._settings.lease_s / RENEWALS_PER_LEASE):
            for address in list(self._addresses.values()):
                with suppress(GatewayError):
                    GatewayClient(address.control).renew_lease(self._settings.lease_s)


def end_fleet(record: FleetRecord, journal: FleetJournal, binary: str) -> int:
    """Ends the machines of a fleet whose client does not, and forgets it; says how many there still were.

    Raises GatewayError for a provider that this version does not know.
    """
    machines: tuple[Machine, ...] = ()
    try:
        provider = make_provider(record.provider, binary, journal)
        machines = provider.machines(record.id)
        provider.delete(machines)
    except SkyError:
        # A sky that is down took its machines with it.
        remove_left(Path(record.provider["sky"]))
    journal.close(record.id)
    return len(machines)


def _named(plan: Plan) -> set[str]:
    return {gateway.name for gateway in plan.gateways}
