"""The machines of one plan: a desired state that the fleet reconciles through a provider, under leases that it renews.

The lead is not one of the machines: it runs at home, beside this process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.errors import GatewayError, GatewayLost, MachineReclaimed, ProviderRefused, StateError, TradewindError
from tradewind.fleet.calls import LAUNCH_S
from tradewind.fleet.given import GivenCredentials
from tradewind.fleet.home import HomeGateway, end_home
from tradewind.fleet.journal import FleetJournal, new_fleet_id
from tradewind.fleet.leases import Leases, lease_within
from tradewind.fleet.lending import ON_THIS_HOST, store_uses
from tradewind.fleet.machines import FleetMachines
from tradewind.fleet.orders import dialled_gateways
from tradewind.fleet.provider import (
    Accountable,
    CallRefused,
    Connected,
    Exposing,
    LaunchOrder,
    Machine,
    Provider,
)
from tradewind.fleet.renewals import Renewals
from tradewind.fleet.settings import FleetSettings, Meter
from tradewind.gateway.client import GatewayClient
from tradewind.gateway.process import OWNER_NAME, STOP_S
from tradewind.model.document import to_document
from tradewind.model.latch import Latch
from tradewind.model.plan import Deployment, GatewayAddress, Plan
from tradewind.model.program import Program
from tradewind.model.records import replace

if TYPE_CHECKING:
    from tradewind.fleet.enrolment import Enrolment
    from tradewind.fleet.keeping import Keeper
    from tradewind.fleet.remains import Look

__all__ = ["Fleet", "Replanner"]

#: Returns another plan for a fleet that starts, and how long its machines may run under the cost ceiling [s], after a
#: cloud has refused machines or has taken spot machines back, for which the plan may be the same; None if there is no
#: other plan. Arguments: the refusal or the loss, and the names of the machines that run.
Replanner = Callable[["ProviderRefused | MachineReclaimed", Collection[str]], "tuple[Plan, float] | None"]


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
        logs: Path | None = None,
        taken: str | None = None,
        credentials: GivenCredentials | None = None,
        stopping: Latch | None = None,
        replan: Replanner | None = None,
    ) -> None:
        """Start the machines and return when all of them answer.

        `purpose` is shown by `fleet list`. `report` is called from other threads with one line per problem while the
        fleet runs. `meter` gets the launch and the end of each machine, whatever happens in between. `logs` is the
        folder for the lead's standard error, by default in the fleet's own folder. `taken` is the id of a warm fleet to
        claim; its machines are used, and given back at the end. The settings then say how they are kept. `credentials`
        are for the lead and the other gateways, in place of this machine's. Another thread may set `stopping` while the
        machines start: they are then ended, and this raises GatewayError. If a cloud refuses machines, `replan` may
        return another plan; its machines that run already stay.
        Raises GatewayError after closing everything that was started; FleetTaken if another process has claimed it.
        """
        self.id, self.plan = taken or new_fleet_id(), plan
        self._provider, self._journal, self._binary, self._logs = provider, journal, binary, logs
        self._settings = settings = settings or FleetSettings()
        self._credentials, self._purpose, self._replan = credentials, purpose, replan
        self._ready_s = settings.ready_s
        #: Lease of the machines that are ordered until all of them answer.
        self._start_lease_s = settings.lease_s
        #: By the names of the gateways that have answered.
        self._addresses: dict[str, GatewayAddress] = {}
        self._report = report or _log_warning
        self._leases = Leases(self._client_of, self._report_trouble, self._note_lease)
        self._ended = stopping or Latch()
        #: Set to close the fleet without waiting for a provider that does not answer.
        self._hurried = Latch()
        #: Held while the plan and the sets of machines change. No provider is called while it is held.
        self._changing_plan = threading.Lock()
        #: Held by the thread that closes the fleet.
        self._closing = threading.Lock()
        #: True once its machines are worth keeping: they were kept before, or all of them have answered.
        self._is_kept = self._taken = taken is not None
        self._machines = self._make_machines(meter)
        self._home: HomeGateway | None = None
        #: None if the gateways have no identities.
        self._enrolment: Enrolment | None = None
        self._keeper = self._make_keeper()
        self._renewals = self._make_renewals(meter)
        #: True once its machines were given back. Another job may use them from then on.
        self.is_given_back = False
        self._generation = 1
        self.folder = self._record()
        try:
            self._start()
            self._is_kept = self._keeper is not None
        except BaseException as error:
            self.close(grace_s=0.0)
            if isinstance(error, Exception):
                self._sweep_failed_start()
            raise

    @property
    def machines(self) -> dict[str, Machine]:
        """The known machines, by name."""
        return self._machines.by_name

    def _sweep_failed_start(self) -> None:
        """Remove what the provider has made of a fleet that did not start, although it may have answered with an error.

        That may be listed only `settles_s` after the last launch.
        """
        from tradewind.fleet.remains import lines_after_failure

        launched_s = self._machines.launched_s
        if launched_s is not None:
            self._hurried.wait(max(0.0, launched_s + self._provider.settles_s - time.monotonic()))
        look = self.look_for_remains()
        if look is not None and (remains := look.result()) is not None:
            for line in lines_after_failure(remains):
                self._report(line)

    def _make_machines(self, meter: Meter | None) -> FleetMachines:
        return FleetMachines(
            self.id,
            self._provider,
            self._journal,
            self._settings,
            self._leases,
            self._addresses,
            meter=meter,
            taken=self._taken,
            ended=self._ended,
            hurried=self._hurried,
            dismiss=self._dismiss,
            report=self._report,
        )

    def _make_keeper(self) -> Keeper | None:
        keeping = self._settings.keeping
        if keeping is None:
            return None
        from tradewind.fleet.keeping import Keeper

        return Keeper(self._journal, self.id, keeping, self._report)

    def _make_renewals(self, meter: Meter | None) -> Renewals:
        return Renewals(
            self.id,
            self._journal,
            self._leases,
            self._settings,
            meter=meter,
            keeper=self._keeper,
            ended=self._ended,
            changing=self._changing_plan,
            machines=self._answering,
            charge_dead=self._machines.charge_dead,
        )

    def _record(self) -> Path:
        """Check and record the fleet, or claim the warm one, and return its folder."""
        self._check_names()
        if self._taken:
            return self._journal.take(self.id, self._wanted())
        self._machines.look_up_offers(self._settings.rented(self.plan))
        return self._journal.open(self.id, self._purpose, self._provider.document(), self._wanted())

    def deployment(self) -> Deployment:
        """Return the plan with the addresses that the machines reported."""
        return self._deployment(self.plan)

    def _deployment(self, plan: Plan) -> Deployment:
        return Deployment(plan, self._addresses, self._settings.detours)

    def _client_of(self, name: str) -> GatewayClient:
        return GatewayClient.of(self.deployment(), name)

    def grow(self, plan: Plan, ready_s_max: float = float("inf"), replaced: Collection[str] = ()) -> Deployment:
        """Start the machines that another plan adds to the present one, and return when all of them answer.

        All machines together may run for `ready_s_max`: no start takes longer, and no lease of a new one lasts longer
        if it may start before. No living machine is ended: see `shrink`. `replaced` are the names of dead machines
        whose names may be used again. If the fleet is closed meanwhile, no further machine is ordered. Raises
        GatewayError after ending the new machines.
        """
        before, fresh = self.plan, plan.names - self.plan.names
        there = {gateway.name: gateway for gateway in (*plan.gateways, *before.gateways)}
        self._machines.end(set(replaced))
        for dead in replaced:
            there.pop(dead, None)
        ready_s = min(ready_s_max, self._settings.ready_s)
        try:
            self._machines.look_up_offers([gateway for gateway in plan.machines if gateway.name in fresh])
            with self._changing():
                self.plan = replace(plan, gateways=tuple(there.values()))
                self._check_names()
                self._generation = self._journal.intend(self.id, self._wanted())
                lease_s = lease_within(ready_s_max, self._renewals.lease_s(ready_s), ready_s)
                orders = [order for order in self._orders(lease_s) if order.name in fresh]
            self._launch(orders)
            self._wait_ready(fresh, ready_s)
        except BaseException:
            try:
                self._machines.end(fresh)
            finally:
                self._return_to(before)
            raise
        self._renewals.shorten(plan.names - fresh)
        return self._deployment(plan)

    def shrink(self, plan: Plan) -> None:
        """End the machines that `plan` does not have."""
        self._machines.end(self.plan.names - plan.names)
        self._return_to(plan)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Keep other threads from changing the plan or closing the fleet. Raises GatewayError if it is closed.

        Keep the block short and never wait for a machine in it: closing the fleet at the cost ceiling waits for it.
        """
        with self._changing_plan:
            self._require_open()
            yield

    def _require_open(self) -> None:
        if self._ended.is_set():
            raise GatewayError(f"fleet {self.id} is closed")

    def _return_to(self, plan: Plan) -> None:
        """Make `plan`, whose machines already run, the wanted one. No effect on a closed fleet, which has no record."""
        with suppress(GatewayError, StateError), self._changing():
            self.plan = plan
            self._generation = self._journal.intend(self.id, self._wanted())

    @property
    def lead_lives(self) -> bool:
        """True while the lead's process runs. The provider is not asked."""
        return self._home is not None and self._home.alive

    def living(self) -> set[str]:
        """Return the names of the living gateways.

        A machine is dead if the provider says so or its lease has expired. A machine that does not answer may live.
        """
        lead = {self.plan.lead} if self.lead_lives else set[str]()
        return lead | (self.machines.keys() - self._machines.dead())

    def reconcile(self) -> None:
        """Order the machines that the plan wants and that do not run; end those that run and are not wanted."""
        wanted = self._wanted()
        if wanted or self.machines:
            self._machines.keep_only(wanted)
            self._launch([order for order in self._orders(self._start_lease_s) if order.name not in self.machines])

    def _take_machines(self) -> None:
        """Take the machines of the warm fleet that the plan wants. Those that cannot be used again are ended."""
        keeper, enrolment = self._keeper, self._enrolment
        if keeper is None or enrolment is None:
            return
        wanted = self._wanted()
        ready = self._machines.take(wanted, lambda machines: keeper.take(machines, enrolment, self._purpose))
        missing = wanted.keys() - ready
        self._machines.look_up_offers(
            [gateway for gateway in self._settings.rented(self.plan) if gateway.name in missing]
        )

    def _launch(self, orders: Sequence[LaunchOrder]) -> None:
        """Launch machines, all in one call. Raises ProviderRefused, GatewayError if the fleet is closed meanwhile."""
        if orders and not self._machines.launch(orders):
            self._require_open()

    def ending(self, name: str, timeout_s: float) -> str:
        """Describe how a gateway ended that should be running. Waits up to the timeout for its end."""
        if self._home is not None and name == self.plan.lead:
            return self._home.ending(timeout_s)
        machine = self.machines.get(name)
        host = None if machine is None else self._provider.host(machine)
        if host is None:
            return "it was ended"
        return host.ending(timeout_s) or "it still runs"

    def crash(self, name: str) -> None:
        """Kill a gateway as if it had crashed: the fleet notices it as it notices any other crash."""
        if self._home is not None and name == self.plan.lead:
            self._home.crash()
        else:
            self._provider.terminate([self.machines[name].id])

    def hurry(self) -> None:
        """Let `close` not wait any longer for a provider that does not answer. Any thread may call it, at any time."""
        self._hurried.set()

    def close(self, *, grace_s: float = STOP_S) -> None:
        """End the lead and all machines within `grace_s`. With 0 they are killed at once and cannot save their work.

        A provider that throttles or does not answer is asked again for OUTAGE_S, until `hurry`.
        Raises GatewayError if machines may still run.
        """
        with self._changing_plan:
            self._ended.set()
        with self._closing:
            if self.is_given_back or (self._is_kept and self._give_back(grace_s)):
                return
            try:
                self._close(grace_s)
            except BaseException:
                self._journal.give_back(self.id)  # Any command may end what is left, although this process lives.
                raise

    def look_for_remains(self) -> Look | None:
        """Begin to look for what the closed fleet has left; None if it had no machines, or others keep them."""
        if self.is_given_back or not self._machines.may_exist or not isinstance(self._provider, Accountable):
            return None
        from tradewind.fleet.remains import Look

        return Look(self._provider, self.id, self._machines.in_flight, self._hurried)

    def _give_back(self, grace_s: float) -> bool:
        """Keep the machines for later jobs, and end the lead and the owner. Return False if no machine is left."""
        if self._keeper is None:
            return False
        self._is_kept = False
        if self._enrolment is None:
            self._release()  # No machine was taken yet.
            return True
        left: set[str] | None = None
        try:
            if self._home is not None:
                self._home.close(grace_s)
            self._renewals.stop()
            kept = self._keeper.give_back(list(self.machines.values()), self._enrolment)
            self._machines.terminate([machine for name, machine in self.machines.items() if name not in kept])
            there = {machine.name: machine.region for machine in self._machines.alive()}
            left = set(there)
            if left:
                self._journal.intend(self.id, there)
        except TradewindError as error:
            self._report(f"warm fleet {self.id} cannot be kept, and ends when its leases expire: {error}")
        if left == set():
            return False
        self._machines.charges.all_ended()
        self._enrolment.close(grace_s)
        self._release()
        return True

    def _release(self) -> None:
        self.is_given_back = True
        self._journal.give_back(self.id)

    def _close(self, grace_s: float) -> None:
        try:
            if self._machines.may_exist:
                self._journal.dismiss(self.id)
        finally:
            # Machines cost money, whether or not their end can be recorded.
            self._end_processes(grace_s)
            if isinstance(self._provider, Connected):
                self._provider.disconnect()
        self._machines.charges.all_ended()
        self._journal.close(self.id)

    def _end_processes(self, grace_s: float) -> None:
        """End the lead, the machines, and the owner of their gateways."""
        deadline_s = time.monotonic() + grace_s
        if self._home is not None:
            self._home.begin_close() if grace_s > 0 else self._home.close(0.0)
        try:
            self._machines.end_all(grace_s)
        finally:
            if self._home is not None:
                self._home.close(max(0.0, deadline_s - time.monotonic()))
            if self._enrolment is not None:
                self._enrolment.close(grace_s)

    def _wanted(self) -> dict[str, str]:
        return {gateway.name: gateway.region for gateway in self._settings.rented(self.plan)}

    def _check_names(self) -> None:
        if OWNER_NAME in self.plan.names:
            raise GatewayError(
                f"a gateway cannot be called {OWNER_NAME}", hint="this name belongs to the fleet's owner"
            )

    def _start(self) -> None:
        if self._taken:
            end_home(self.folder)  # The processes of a killed client end a moment after it.
        elif self._settings.keeping is not None:
            from tradewind.fleet.warm import WarmBook

            WarmBook(self._journal).keep(self.id, self._settings.keeping)
        if self._secured:
            from tradewind.fleet.enrolment import Enrolment

            region = next(gateway.region for gateway in self.plan.gateways if gateway.name == self.plan.lead)
            keeps_ca = self._keeper is not None
            home = self._provider.home(region)
            self._enrolment = Enrolment(
                self._binary, self.folder, home, self._logs, keeps_ca=keeps_ca, credentials=self._credentials
            )
        if self._settings.led:
            self._start_lead()
        if self._taken:
            self._take_machines()
        try:
            self.reconcile()
        except ProviderRefused as refused:
            self._start_around(refused)
        # The first machines that are ready wait for the last one.
        self._renewals.start()
        self._wait_started()
        if self._taken or self._renewals.lease_s() < self._settings.lease_s:
            self._renewals.renew_all()  # While the machines started, their leases ignored the cost ceiling.

    def _wait_started(self) -> None:
        """Wait until all machines answer. A spot machine that ends before is replaced, if `replan` allows it."""
        while True:
            try:
                # Machines of other types may cost more than planned ones, and their launch may have taken a while.
                return self._wait_ready(self.plan.names, self._machines.charges.left_s(self._ready_s))
            except MachineReclaimed as error:
                if self._replan is None:
                    raise
                self._machines.end({*error.names, *self._machines.dead()})
                self._start_around(error)

    def _start_around(self, refused: ProviderRefused | MachineReclaimed) -> None:
        """Order what another plan needs, without refused machines or in place of lost ones. Those that run and that it
        has stay: the minimum time of a machine is charged once. Raises the refusal if there is no other plan.
        """
        found = None if self._replan is None else self._replan(refused, set(self.machines))
        if found is None:
            raise refused
        plan, room_s = found
        unwanted = self.plan.names - plan.names
        with self._changing():
            self.plan, self._ready_s = plan, min(self._ready_s, room_s)
            self._start_lease_s = lease_within(room_s, self._start_lease_s, self._ready_s)
            self._check_names()
            self._generation = self._journal.intend(self.id, self._wanted())
        self._machines.end(unwanted)
        try:
            self._machines.look_up_offers([one for one in self._settings.rented(plan) if one.name not in self.machines])
            self.reconcile()
        except ProviderRefused as error:
            self._start_around(error)

    @property
    def home_enter(self) -> tuple[str, ...]:
        """Prefix of commands that run in the lead's network. Raises GatewayError."""
        lead = next(gateway for gateway in self.plan.gateways if gateway.name == self.plan.lead)
        return self._provider.home(lead.region).enter

    def _start_lead(self) -> None:
        """Start the lead at home: beside this process, or where the sky assumes the client to be."""
        lead = next(gateway for gateway in self.plan.gateways if gateway.name == self.plan.lead)
        self._home = HomeGateway(
            self._binary,
            self.folder,
            lead.name,
            self._provider.home(lead.region),
            listen=self._settings.listen.get(lead.name, "" if lead.name in dialled_gateways(self.plan) else None),
            join=None if self._enrolment is None else self._enrolment.lead_join(lead.name),
            logs=self._logs,
            credentials=self._credentials,
        )

    def _dismiss(self, name: str) -> None:
        """Let a gateway neither enrol nor be reached any more."""
        if self._enrolment is not None:
            self._enrolment.dismiss(name)

    def give_program(self, deployment: Deployment, program: Program) -> None:
        """Send a gateway its program, after the owner has sent it the credentials of the program's stores.

        The lead needs none sent: it runs here and has the credentials of this machine. So does each gateway of a fleet
        without identities. A guest gets none. Raises CredentialsNotSent, GatewayError.
        """
        stores = store_uses(program)
        machine = self.machines.get(program.node)
        is_guest = machine is not None and machine.is_guest
        if self._enrolment is not None and program.node != self.plan.lead and stores and not is_guest:
            self._enrolment.owner.delegate(program.node, stores, on_this_host=self._provider.kind in ON_THIS_HOST)
        GatewayClient.of(deployment, program.node).put_program(to_document(program))

    def moved(self, names: Iterable[str]) -> None:
        """Note that bytes move on routes of these gateways."""
        self._machines.boots.moved(names)

    def machine_id(self, name: str) -> str:
        """Return the provider's id of a machine. Raises GatewayError while it is replaced."""
        if name not in self.machines:
            raise GatewayError(f"the machine of {name} is being replaced")
        return self.machines[name].id

    def expose(self, name: str, services: Mapping[str, Mapping[int, int]]) -> None:
        """Make Services that lead to a machine and end with it; see `provider.Exposing`. Raises GatewayError."""
        machine = self.machines.get(name)
        if machine is None or not isinstance(self._provider, Exposing):
            raise GatewayError(f"no Service can lead to {name}")
        provider = self._provider
        try:
            self._machines.in_flight.within(LAUNCH_S, f"Services of {name}", lambda: provider.expose(machine, services))
        except CallRefused as error:
            action = error.refusal.action
            raise GatewayError(
                f"{name}: {error.refusal.reason}", hint=None if action is None else f"it needs {action}"
            ) from error

    def leaving(self) -> dict[str, float]:
        """Return the gateways whose machines the cloud takes back, each with the time for which it still works [s]."""
        return {} if self._enrolment is None else self._enrolment.owner.leaving()

    def gateway_states(self) -> dict[str, dict[str, Any]]:
        """Return the state of each gateway from the owner, by name; empty without identities. Raises GatewayError."""
        return {} if self._enrolment is None else self._enrolment.owner.states()

    def _reach(self, machine: Machine) -> str | None:
        return machine.control if self._enrolment is None else self._enrolment.reach(machine)

    def _trouble(self, machine: Machine) -> str | None:
        """Return why the owner does not reach a machine; None if that is unknown."""
        return None if self._enrolment is None else self._enrolment.owner.failure(machine.name)

    def _wait_ready(self, names: Collection[str], ready_s: float) -> None:
        """Wait concurrently for the gateways that do not answer yet."""
        deadline_s = time.monotonic() + ready_s
        waited = [machine for name, machine in self.machines.items() if name in names and name not in self._addresses]

        def on_ready(machine: Machine, address: GatewayAddress, booted_ago_s: float | None) -> None:
            self.machines[machine.name] = machine
            self._addresses[machine.name] = address
            self._journal.ready(self.id, machine.name, self._settings.lease_s, booted_ago_s)

        if self._home is not None and self.plan.lead in names:
            self._addresses[self.plan.lead] = self._home.wait_ready(ready_s)
        if not waited:
            return
        from tradewind.fleet.readiness import Readiness

        readiness = Readiness(self._provider, self._machines.listed, self._ended, self._reach, self._trouble)
        try:
            readiness.wait(waited, deadline_s, on_ready)
        except GatewayLost as error:
            late = [machine for machine in waited if machine.name not in self._addresses]
            first = late[0]
            more = "" if len(late) == 1 else f" and {len(late) - 1} more"
            raise GatewayError(
                f"machine {first.name} in {first.region}{more} did not answer within {ready_s:.0f} s: {error}",
                hint="the other machines of the fleet were ended",
            ) from error
        except GatewayError as error:
            error.hint = error.hint or "the other machines of the fleet were ended"
            raise

    def _orders(self, lease_s: int) -> list[LaunchOrder]:
        return self._machines.orders(self.plan, lease_s, self._generation, self._enrolment)

    @property
    def _secured(self) -> bool:
        """True if the gateways have certificates. Those of a plan without hops, or with plain TCP hops, have none."""
        return self._keeper is not None or (bool(dialled_gateways(self.plan)) and not self._settings.plain)

    def _answering(self) -> list[str]:
        """Return the machines that have answered. The lead at home has no lease."""
        return [name for name in list(self._addresses) if name in self.machines]

    def _note_lease(self, name: str, lease_s: float) -> None:
        self._journal.leased(self.id, name, lease_s)

    def _report_trouble(self, line: str) -> None:
        if not self._ended.is_set():
            self._report(line)


def _log_warning(line: str) -> None:
    import logging  # Slow to load, and jobs do not need it: they pass their own `report`.

    logging.getLogger("tradewind.fleet").warning(line)
