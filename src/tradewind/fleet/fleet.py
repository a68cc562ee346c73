"""The machines of one plan: a desired state that a provider reconciles, under leases that this process renews."""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from tradewind.errors import GatewayError, SkyError, StateError, TradewindError, UsageError
from tradewind.fleet.journal import FleetJournal, FleetRecord, new_fleet_id
from tradewind.fleet.owner import HEARTBEAT_S
from tradewind.fleet.provider import Machine, MachineOrder, Provider
from tradewind.fleet.providers import LOCAL, make_provider
from tradewind.gateway.client import CLIENT_NAME, GatewayClient
from tradewind.gateway.identities import make_identities
from tradewind.gateway.process import READY_S, STOP_S
from tradewind.model.latch import Latch
from tradewind.model.plan import Deployment, GatewayAddress, Plan, PlannedGateway
from tradewind.sky.folders import remove_left

__all__ = ["LEASE_S", "LEASE_S_MIN", "Fleet", "FleetSettings", "Meter", "end_fleet"]

#: A machine ends so long after the last renewal. Long enough for a client that was stopped (Ctrl-Z) for a while, short
#: enough that a client which stands still for good costs no more than minutes of machines.
LEASE_S = 900
#: Under a ceiling a lease is no shorter: the machines of a busy client must not end.
LEASE_S_MIN = 15
#: Leases are renewed so many times before they lapse.
RENEWALS_PER_LEASE = 3
#: So many leases of one fleet are renewed at the same time.
RENEWALS_AT_ONCE_MAX = 16
#: A machine answers a renewal within so long, or the renewal counts as failed until the next one.
RENEWAL_S_MAX = 10.0


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Settings of a start: data ports by gateway name, detours by hop, whether hops are plain TCP; times in seconds."""

    listen: Mapping[str, str] = field(default_factory=dict)
    detours: Mapping[tuple[str, str], str] = field(default_factory=dict)
    plain: bool = False
    lease_s: int = LEASE_S
    ready_s: float = READY_S
    """Timeout for the answers of all machines; after it the fleet is ended."""
    heals: bool = False
    """True if dead machines may be replaced: the key that signs their certificates is kept in the fleet's folder."""
    grows: bool = False
    """True if machines may be added later, and the roles of those that run may change."""


class Meter(Protocol):
    """Counts how long machines live. Any thread may call it; it returns at once."""

    def launched(self, fleet: str, name: str, region: str) -> None:
        """A machine is about to be ordered; nothing for one that lives already."""
        ...

    def ended(self, fleet: str, names: Collection[str] | None = None, ago_s: float = 0.0) -> None:
        """Machines of a fleet are gone, all of them without `names`; nothing for those that were gone before.

        They ended `ago_s` before now.
        """
        ...

    def left_s(self, most_s: float) -> float:
        """Return how long the machines that live may run on, up to `most_s`, because of what they cost."""
        ...


class Fleet:
    """A running fleet. Closing it ends its machines and removes their records; it may be closed more than once."""

    def __init__(
        self,
        provider: Provider,
        journal: FleetJournal,
        plan: Plan,
        binary: str,
        *,
        purpose: str,
        settings: FleetSettings | None = None,
        report: Callable[[str], None] | None = None,
        meter: Meter | None = None,
    ) -> None:
        """Starts the machines and returns when all answer.

        `purpose` is what `fleet list` shows of it; `report` is called from other threads with one line about what goes
        wrong while the fleet runs; `meter` gets each machine's launch and end, whatever happens in between.
        Raises GatewayError, with everything closed that was started.
        """
        self.id = new_fleet_id()
        self.plan = plan
        self.machines: dict[str, Machine] = {}
        self._provider, self._journal, self._binary = provider, journal, binary
        self._settings = settings or FleetSettings()
        self._addresses: dict[str, GatewayAddress] = {}
        self._report = report or _log_warning
        self._meter = meter
        #: When the leases of machines lapse at the latest, on the monotonic clock.
        self._lapses_s: dict[str, float] = {}
        #: Machines whose last renewal failed.
        self._unrenewed: set[str] = set()
        self._ended = Latch()
        #: Held while machines are ordered, and while all are ended.
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
            self.close(grace_s=0.0)
            raise

    def deployment(self) -> Deployment:
        """The plan with the addresses that the machines reported."""
        return self._deployment(self.plan)

    def _deployment(self, plan: Plan) -> Deployment:
        identities = self._identities if self._secured else None
        return Deployment(plan, self._addresses, self._settings.detours, identities)

    def grow(
        self, plan: Plan, ready_s_max: float = float("inf"), replaced: Mapping[str, str] | None = None
    ) -> Deployment:
        """Starts the machines that another plan has beside those of this one, and returns when all answer.

        They answer within `ready_s_max` and the time of the settings. No machine that lives is ended: see `shrink`.
        `replaced` gives the names of new machines by those of dead ones, whose places they take. A fleet that is closed
        meanwhile orders no further machine. Raises GatewayError, with the new machines ended again.
        """
        replaced = replaced or {}
        before, fresh = self.plan, _named(plan) - _named(self.plan)
        there = {gateway.name: gateway for gateway in (*plan.gateways, *before.gateways)}
        self._end(set(replaced))
        for dead, name in replaced.items():
            there.pop(dead, None)
            self._give_place(dead, name)
        try:
            with self._changing():
                self.plan = replace(plan, gateways=tuple(there.values()))
                self._check_capabilities()
                self._write_down()
                self._identify(fresh)
                lease_s = self._lease_s(min(ready_s_max, self._settings.ready_s))
                orders = [replace(order, lease_s=lease_s) for order in self._orders() if order.name in fresh]
            for order in orders:
                with self._changing():
                    self._create(order)
            self._wait_ready(fresh, min(ready_s_max, self._settings.ready_s))
        except BaseException:
            self._end(fresh)
            self._return_to(before)
            raise
        return self._deployment(plan)

    def shrink(self, plan: Plan) -> None:
        """Ends the machines that a plan does not have, of those that `grow` left."""
        self._end(_named(self.plan) - _named(plan))
        self._return_to(plan)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Within the block no other thread orders machines or closes the fleet. Raises GatewayError if it is closed.

        Blocks are short, because a close at the ceiling waits for them: no machine is waited for in one.
        """
        with self._ordering:
            if self._ended.is_set():
                raise GatewayError(f"fleet {self.id} is closed")
            yield

    def _return_to(self, plan: Plan) -> None:
        """Want the machines of a plan, which are there. A closed fleet wants none, and its record is gone."""
        with suppress(GatewayError, StateError), self._changing():
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
        self._delete(surplus)
        self._told_gone({*(machine.name for machine in surplus), *(self.machines.keys() - there.keys())})
        for order in orders.values():
            self._create(order)

    def _create(self, order: MachineOrder) -> None:
        self._lapses_s.pop(order.name, None)  # An earlier machine may have had the name.
        if self._meter is not None and not self.plan.is_guest(order.name):
            self._meter.launched(self.id, order.name, order.region)
        self._journal.launched(self.id, order.name, order.region)
        self.machines[order.name] = self._provider.create(order)

    def _told_gone(self, names: Collection[str]) -> None:
        """Tell the meter of machines that are gone: now, unless their leases have lapsed before.

        Nobody may have looked when they lapsed, because this process stood still.
        """
        now_s = time.monotonic()
        for name in names:
            ago_s = max(0.0, now_s - self._lapses_s.get(name, now_s) - STOP_S)
            self._journal.ended(self.id, {name}, ago_s)
            if self._meter is not None:
                self._meter.ended(self.id, {name}, ago_s)

    def last_words(self, name: str, timeout_s: float) -> str:
        """Describe how a machine ended that should be running."""
        machine = self.machines.get(name)
        return "it was ended" if machine is None else self._provider.last_words(machine, timeout_s)

    def close(self, *, grace_s: float = STOP_S) -> None:
        """Ends all machines within `grace_s`; with 0 without letting them put down what they hold."""
        self._ended.set()
        with self._ordering:
            self._close(grace_s)

    def _close(self, grace_s: float) -> None:
        known = list(self.machines.values())
        try:
            machines = {machine.id: machine for machine in (*self._provider.machines(self.id), *known)}
        except TradewindError:
            # There may be others, so the fleet stays written down; those that we know of must not wait for that.
            self._delete(known, grace_s)
            raise
        self._delete(list(machines.values()), grace_s)
        self.machines = {}
        if self._meter is not None:
            self._meter.ended(self.id)
        self._journal.close(self.id)

    def _delete(self, machines: Sequence[Machine], grace_s: float = STOP_S) -> None:
        """End machines. One that never answered holds nothing, and may not hear that it is to end: it gets no grace."""
        ready = [machine for machine in machines if machine.name in self._addresses]
        unready = [machine for machine in machines if machine not in ready]
        for ending, its_grace_s in ((unready, 0.0), (ready, grace_s)):
            if ending:
                self._provider.delete(
                    ending, grace_s=its_grace_s, on_gone=lambda machine: self._told_gone({machine.name})
                )

    def _write_down(self) -> Path:
        wanted = {gateway.name: gateway.region for gateway in self.plan.gateways}
        return self._journal.open(self.id, self._purpose, self._provider.document(), wanted)

    def _end(self, names: set[str]) -> None:
        """End machines of a fleet that goes on. Nothing is locked meanwhile: the fleet may be closed at any moment."""
        with self._ordering:
            # Also what the provider started and could not report: it is paid for all the same.
            gone = {machine.id: machine for machine in self._provider.machines(self.id) if machine.name in names}
            for name in names:
                if (machine := self.machines.pop(name, None)) is not None:
                    gone[machine.id] = machine
        self._delete(list(gone.values()))
        self._told_gone(names)
        for name in names:
            self._addresses.pop(name, None)

    def _check_capabilities(self) -> None:
        if CLIENT_NAME in _named(self.plan):
            raise GatewayError(f"a gateway cannot be called {CLIENT_NAME}", hint="this name belongs to the client")
        most = self._provider.capabilities().machines
        if most is None:
            return
        counts = Counter(gateway.region for gateway in self.plan.gateways if gateway.name != self.plan.lead)
        for region, count in counts.items():
            if count > most.get(region, 0):
                raise GatewayError(
                    f"the plan needs {count} machines in {region}, the {self._provider.kind} provider has "
                    f"{most.get(region, 0)}",
                    hint="plan with fewer: --max-vms",
                )

    def _start(self) -> None:
        shutil.rmtree(self._identities, ignore_errors=True)
        self._identify(_named(self.plan))
        self.reconcile()
        # The first machines that are ready wait for the last one.
        self._renewer = threading.Thread(target=self._renew, name=f"leases of {self.id}", daemon=True)
        self._renewer.start()
        self._wait_ready(set(self.machines), self._settings.ready_s)
        if self._lease_s() < self._settings.lease_s:
            self._renew_all()  # While they started, a ceiling was no reason to end them.

    def _identify(self, names: set[str]) -> None:
        """Makes certificates, for those who need one and have none."""
        fresh = [name for name in sorted({*names, CLIENT_NAME}) if not (self._identities / name).exists()]
        if fresh and self._secured:
            more_later = self._settings.grows or self._settings.heals
            make_identities(self._binary, self._identities, fresh, grows=more_later)

    def _wait_ready(self, names: set[str], ready_s: float) -> None:
        deadline_s = time.monotonic() + ready_s
        for name, machine in list(self.machines.items()):
            if name not in names:
                continue
            try:
                left_s = max(0.0, deadline_s - time.monotonic())
                self._addresses[name] = self._provider.wait_ready(machine, left_s)
                self._lapses_s[name] = time.monotonic() + self._settings.lease_s
                self._journal.ready(self.id, name, self._settings.lease_s)
            except GatewayError as error:
                raise GatewayError(
                    f"machine {name} in {machine.region} did not answer within {ready_s:.0f} s: {error}"
                    if time.monotonic() >= deadline_s
                    else str(error),
                    hint=error.hint or "the other machines of the fleet were ended",
                ) from error

    def _orders(self) -> list[MachineOrder]:
        orders = []
        with_stores = self._gateways_with_stores()
        for gateway in self.plan.gateways:
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
                    reaches_stores=gateway.name in with_stores,
                    identity=str(self._identities / gateway.name) if self._secured else None,
                    controller=CLIENT_NAME if self._secured else None,
                )
            )
        return orders

    def _gateways_with_stores(self) -> set[str]:
        """Lead, sources and sinks. Where the routes may change, all gateways of their regions."""
        ends = {end for route in self.plan.routes for end in (route.nodes[0], route.nodes[-1])}
        if self._settings.grows:
            regions = {gateway.region for gateway in self.plan.gateways if gateway.name in ends}
            ends |= {gateway.name for gateway in self.plan.gateways if gateway.region in regions}
        return ends | {self.plan.lead}

    def _ordinal(self, gateway: PlannedGateway) -> int:
        """Which of its region's machines it is. None is given to two gateways, not even when the first one is gone."""
        if gateway.name == self.plan.lead and gateway.name not in self._dialled:
            return 0
        given = self._ordinals.setdefault(gateway.region, [])
        if gateway.name not in given:
            given.append(gateway.name)
        return given.index(gateway.name)

    def _give_place(self, dead: str, name: str) -> None:
        """A new machine takes the place that a dead one had among those of its region."""
        for given in self._ordinals.values():
            if dead in given:
                given[given.index(dead)] = name

    @property
    def _dialled(self) -> set[str]:
        """Gateways that others connect to."""
        ends = {end for _, end in self.plan.stations()}
        return ends | {route.nodes[0] for route in self.plan.routes if route.nodes[0] != self.plan.lead}

    @property
    def _networked(self) -> bool:
        return bool(self._dialled)

    @property
    def _secured(self) -> bool:
        """True if the gateways have certificates."""
        return self._networked and not self._settings.plain

    @property
    def _identities(self) -> Path:
        return self.folder / "identities"

    def _lease_s(self, least_s: float = 0.0) -> int:
        """Return for how long machines may live if this process stands still, but `least_s` or more.

        A machine ends by itself within STOP_S after its lease. What they cost by then is below a ceiling, if there is
        one, unless that leaves them less than LEASE_S_MIN.
        """
        longest_s = self._settings.lease_s
        if self._meter is None:
            return longest_s
        left_s = self._meter.left_s(longest_s + STOP_S) - STOP_S
        return math.ceil(min(longest_s, max(left_s, least_s, LEASE_S_MIN)))

    def _renew(self) -> None:
        """Renew all leases, all at the same time, and the record's heartbeat, until the fleet ends."""
        due_s = time.monotonic() + self._settings.lease_s / RENEWALS_PER_LEASE
        while not self._ended.wait(min(HEARTBEAT_S, max(0.0, due_s - time.monotonic()))):
            with self._ordering:
                if not self._ended.is_set():
                    self._journal.beat(self.id)
                    self._look_for_dead()
            if time.monotonic() < due_s:
                continue
            due_s = time.monotonic() + self._renew_all() / RENEWALS_PER_LEASE

    def _renew_all(self) -> int:
        """Renew all leases, and return for how long."""
        lease_s, names = self._lease_s(), list(self._addresses)
        for first in range(0, len(names), RENEWALS_AT_ONCE_MAX):
            # No executor: at the end of the process it would wait for a machine that does not answer.
            calls = [
                threading.Thread(target=self._renew_one, args=(name, lease_s), daemon=True)
                for name in names[first : first + RENEWALS_AT_ONCE_MAX]
            ]
            for call in calls:
                call.start()
            for call in calls:
                call.join()
        return lease_s

    def _look_for_dead(self) -> None:
        """Tell the meter of machines that died: they are charged until this is noticed, HEARTBEAT_S at most."""
        if self._meter is not None:
            with suppress(TradewindError, OSError):
                living = {machine.name for machine in self._provider.machines(self.id)}
                self._told_gone(self.machines.keys() - living)

    def _renew_one(self, name: str, lease_s: int) -> None:
        """Renew one lease. The first failure in a row is reported; who needs the machine notices when it ends."""
        self._lapses_s.pop(name, None)  # Unknown until it answers.
        try:
            client = GatewayClient.of(self.deployment(), name)
            client.renew_lease(lease_s, min(RENEWAL_S_MAX, lease_s / RENEWALS_PER_LEASE))
            self._lapses_s[name] = time.monotonic() + lease_s
            self._journal.leased(self.id, name, lease_s)
        except KeyError:
            return  # Its machine was ended meanwhile.
        except GatewayError as error:
            if name not in self._unrenewed and name in self._addresses and not self._ended.is_set():
                self._unrenewed.add(name)
                self._report(f"the lease of machine {name} could not be renewed: {error}")
        else:
            self._unrenewed.discard(name)


def end_fleet(record: FleetRecord, journal: FleetJournal, binary: str) -> int:
    """Ends the machines of a fleet whose client does not, and forgets it; says how many there still were.

    Raises UsageError for a fleet of another host, GatewayError for a provider that this version does not know.
    """
    if record.ownership == "elsewhere":
        raise UsageError(
            f"fleet {record.id} is on host {record.owner.host_name or 'unknown'} and can only be ended there",
            hint="run `tradewind fleet down` on that host; its machines end by themselves when their client is gone",
        )
    machines: tuple[Machine, ...] = ()
    try:
        provider = make_provider(record.provider, binary, journal)
        machines = provider.machines(record.id)
        provider.delete(machines)
    except SkyError:
        # The network is gone. The gateways in it are processes of this host, and may not be.
        left = make_provider(LOCAL, binary, journal)
        machines = left.machines(record.id)
        left.delete(machines)
        remove_left(Path(record.provider["sky"]))
    journal.close(record.id)
    return len(machines)


def _log_warning(line: str) -> None:
    import logging  # Slow to load, and a job has a report of its own.

    logging.getLogger("tradewind.fleet").warning(line)


def _named(plan: Plan) -> set[str]:
    return {gateway.name for gateway in plan.gateways}
