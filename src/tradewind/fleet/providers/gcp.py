"""Machines rented from Google Compute Engine.

A machine is a VM with our labels; any process with the project's credentials finds it by them. Each is created by a
request of its own to `regionInstances.bulkInsert`, where Google picks a zone with room: the requests for many machines
run at the same time, and each machine's metadata has its own join token and no other.

The document has the settings of `model/gcp.py` and `programs` (see `fleet/boot/user_data.py`).

Leases. The machine's own timer shuts it down when its lease has expired. The VM then costs nothing, but its disk
(10 GB) does: it remains until the VM is deleted. Every launch and termination deletes VMs of ours that have been down
for STOPPED_S, and `leftovers` lists them. A VM with an identity that may delete it deletes itself. Whatever happens
inside, Google deletes a VM that runs for longer than `hours_max`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tradewind.fleet.addresses import is_ipv4
from tradewind.fleet.boot.ports import CONTROL_PORT, DATA_PORT
from tradewind.fleet.boot.user_data import ProgramSource, programs_from_document, user_data
from tradewind.fleet.calls import each_of
from tradewind.fleet.catalog_offers import CatalogOffers, offer_in
from tradewind.fleet.console_access import LOOK_S, ConsoleAccess
from tradewind.fleet.earlier_orders import known_machine
from tradewind.fleet.gcp.api import ComputeApi, OperationFailed
from tradewind.fleet.gcp.firewall import PREFIX, FleetRules, delete_rule, rule_leftovers, stale_rules
from tradewind.fleet.gcp.instances import (
    PREEMPTION_S,
    insert_body,
    instance_name,
    is_ours,
    is_spot,
    machine_of,
    network_path,
    stopped_unix_s,
)
from tradewind.fleet.gcp.offers import machines_left
from tradewind.fleet.gcp.permissions import permission_answers
from tradewind.fleet.provider import (
    FLEET_TAG,
    KEY_TAG,
    CallRefused,
    Ended,
    Home,
    LaunchOrder,
    LaunchResult,
    Leftover,
    ListIncomplete,
    Machine,
    Offer,
    PermissionAnswer,
    Quota,
    Refusal,
)
from tradewind.model.gcp import GcpSettings
from tradewind.model.machine import MachineOffer
from tradewind.model.records import replace

if TYPE_CHECKING:
    from tradewind.fleet.providers import Settings

__all__ = ["GcpProvider", "connect"]

#: Timeout of the creation of a VM, within the fleet's timeout of a launch.
START_S = 40.0
#: Timeout of the deletion of a VM, in addition to the grace period. Its guest shuts down first.
DELETE_S = 40.0
#: VMs of ours that have been down for this time are deleted. Their fleets have noticed it by then.
STOPPED_S = 300.0
#: Time for which the answer about a region is used again.
REGION_S = 30.0
#: Time for which a machine that was ended is still listed as ended. It is above `settles_s`.
OVER_S = 60.0
#: Machines that are created or deleted at the same time. It is above the size of most fleets, and each takes a while.
AT_ONCE_MAX = 64
#: A type that is sold out in a region is not ordered again in one of its zones for this time.
SOLD_OUT_S = 30.0
#: Filter of all that is ours.
OURS = f"labels.{KEY_TAG}:*"
RULE, DISK = "global/firewalls/", "/disks/"
"""Parts of the ids of leftovers that are not machines."""
STOPPED = "stopped machine, whose disk is billed"
"""Kind of a leftover."""


class GcpProvider:
    """Rents VMs of one project."""

    kind = "gcp"
    settles_s = 5.0

    def __init__(self, settings: GcpSettings, programs: Sequence[ProgramSource], prices: CatalogOffers) -> None:
        self._settings, self._programs, self._prices = settings, tuple(programs), prices
        self._api = ComputeApi(settings.project, settings.endpoint)
        self._regions: dict[str, tuple[float, dict[str, Any]]] = {}
        #: Operations that failed, by order key: the next request for it needs another id.
        self._failures: dict[str, int] = {}
        #: Rules of the fleets that this object launched, the addresses of their machines at other providers, and all
        #: addresses that the rules admit.
        self._rules: dict[str, FleetRules] = {}
        self._elsewhere: dict[str, frozenset[str]] = {}
        self._admitted: dict[str, frozenset[str]] = {}
        #: Held while the rules change.
        self._admitting = threading.Lock()
        #: Times and refusals of types that were sold out in all zones of a region, by region, type, and spot.
        self._sold_out: dict[tuple[str, str | None, bool], tuple[float, Refusal | None]] = {}
        #: Machines that this object has ended lately, which Google does not list any more, by id.
        self._over: dict[str, tuple[float, Machine]] = {}
        #: Times and results of the latest looks at machines, by id.
        self._looks: dict[str, tuple[float, str | None]] = {}

    def document(self) -> dict[str, Any]:
        """Return the kind, the settings, and the sources of the gateway program."""
        programs = [program.document() for program in self._programs]
        return {"kind": self.kind, "programs": programs, **self._settings.document()}

    @property
    def warning(self) -> str | None:
        """A warning before machines are rented; None if there is nothing to say."""
        if self._settings.service_account is not None:
            return None
        return (
            "a machine whose owner is gone shuts down when its lease expires, and its disk is billed until the next "
            "`tradewind fleet sweep`; with `service_account` in [gcp] it deletes itself"
        )

    def home(self, region: str) -> Home:
        """Return this host. Gateways that call home reach it at its `home_cidr`."""
        if self._settings.control == "calls home" and self._settings.home_cidr is not None:
            return Home(address=self._settings.home_cidr.partition("/")[0])
        return Home()

    def kept_s_max(self, region: str) -> float:
        """Return the time after which Google deletes a VM; 0 if VMs call home."""
        return self._settings.hours_max * 3600.0 if self._settings.control in ("public", "private") else 0.0

    def offers(self, regions: Collection[str]) -> tuple[Offer, ...]:
        """Return the machine types of the catalog in these regions, with their zones and quotas there."""
        wanted = [region for region in sorted(set(regions)) if self._serves(region)]
        found = each_of(wanted, self._offers_in)
        return tuple(offer for of in found for offer in of)

    def _offers_in(self, region: str) -> list[Offer]:
        facts = self._region(region)
        zones = tuple(self._zones(region)[0])
        offers = [
            offer_in(region, offer, "running", zones, machines_left(facts, offer, self._settings.public_address))
            for offer in self._prices.offers(region)
        ]
        return sorted(offers, key=lambda offer: offer.usd_per_s)

    def quota(self, region: str) -> Quota | None:
        """Return how many machines of the cheapest type the project may have in a region; None if that is unknown."""
        if not self._serves(region):
            return None
        facts = self._region(region)
        left = machines_left(facts, self._default(), self._settings.public_address)
        if left is None:
            return None
        used = next((int(one["usage"]) for one in facts.get("quotas", ()) if one["metric"] == "INSTANCES"), 0)
        return Quota(used + left, used)

    def permissions(self) -> tuple[PermissionAnswer, ...]:
        """Return which permissions of the smallest role this login has. Raises CallRefused."""
        return tuple(permission_answers(self._settings, self._api))

    def _default(self) -> MachineOffer:
        """Return the offer that an order without a type gets."""
        offers = [offer for offer in self._prices.packaged if offer.spot == self._settings.spot]
        return min(offers, key=lambda offer: offer.usd_per_hour)

    def _serves(self, region: str) -> bool:
        provider, _, name = region.partition(":")
        return provider == self.kind and (not self._settings.regions or name in self._settings.regions)

    def _region(self, region: str) -> dict[str, Any]:
        name = region.partition(":")[2]
        read_s, facts = self._regions.get(name, (0.0, {}))
        if not facts or time.monotonic() - read_s > REGION_S:
            facts = self._api.get(f"regions/{name}")
            self._regions[name] = time.monotonic(), facts
        return facts

    def _zones(self, region: str) -> tuple[list[str], list[str]]:
        """Return the zones of a region in which machines may run, and the others."""
        listed = [zone.rpartition("/")[2] for zone in self._region(region).get("zones", ())]
        # A request to create VMs must not name a zone for accelerators, such as us-central1-ai1a.
        zones = [zone for zone in listed if len(zone.rpartition("-")[2]) == 1]
        allowed = [zone for zone in zones if not self._settings.zones or zone in self._settings.zones]
        return allowed, [zone for zone in zones if zone not in allowed]

    def launch(self, orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
        """Create VMs concurrently. A VM that was ordered before with the same key is returned instead."""
        there = [instance for instance in self._api.aggregated("instances", OURS) if is_ours(instance)]
        self._delete_stopped(there)
        living = [machine for machine in map(self._machine, there) if not machine.ended]
        known = [known_machine(order, living) or self._impossible(order) for order in orders]
        fresh = [order for order, result in zip(orders, known, strict=True) if result is None]
        scripts = {order.key: self._script(order) for order in fresh}
        fleets = {machine.tags.get(FLEET_TAG) for machine in living}
        for order in {order.fleet_id: order for order in fresh}.values():
            self._make_rules(order, is_alone=order.fleet_id not in fleets)
        started = iter(each_of(fresh, lambda order: self._started(order, scripts[order.key])))
        results = [next(started) if result is None else result for result in known]
        for fleet_id in {order.fleet_id for order in fresh}:
            results = self._reachable(fleet_id, results)
            with suppress(CallRefused):
                self._drop_rules(fleet_id, results)
        return results

    def _reachable(self, fleet_id: str, results: list[LaunchResult]) -> list[LaunchResult]:
        """Admit the new machines of a fleet. If that can never succeed they are ended, because they would be useless.

        If it does not succeed now, `machines` tries again.
        """
        try:
            self._admit(fleet_id, self._listed({FLEET_TAG: fleet_id}), results)
            return results
        except CallRefused as error:
            refusal = error.refusal
        if refusal.kind in ("throttled", "transient"):
            return results
        failed = [of for of in results if of.machine is not None and of.order.fleet_id == fleet_id]
        self.terminate([of.machine.id for of in failed if of.machine is not None])
        return [LaunchResult(of.order, refusal=refusal) if of in failed else of for of in results]

    def _drop_rules(self, fleet_id: str, results: Sequence[LaunchResult]) -> None:
        """Delete the rules of a fleet that has no machine, if its orders will not be repeated."""
        kinds = {of.refusal.kind if of.refusal is not None else "launched" for of in results}
        if not kinds & {"launched", "throttled", "transient"} and not self._listed({FLEET_TAG: fleet_id}):
            self._admitted.pop(fleet_id, None)
            rules = self._rules.pop(fleet_id, None)
            if rules is not None:
                rules.delete()

    def _machine(self, instance: Mapping[str, Any]) -> Machine:
        return machine_of(instance, self._settings)

    def _impossible(self, order: LaunchOrder) -> LaunchResult | None:
        """Return the refusal of an order that can never succeed."""
        words = None
        if not self._serves(order.region):
            words = f"{order.region} is not among the regions of [gcp]"
        elif not self._programs:
            words = "machines cannot download the gateway program: program_url of [fleet] is not set"
        elif order.join is None:
            words = "a machine of a cloud needs an identity: plain hops are not possible there"
        elif self._settings.control == "none":
            words = "machines without public addresses call home, so home_cidr of [gcp] must be one address"
        elif self._settings.control == "public" and self._settings.firewall and self._settings.home_cidr is None:
            words = "the public address of this machine is unknown: set home_cidr in [fleet]"
        elif ":" in (self._settings.home_cidr or "") and not self._admits_by_itself:
            # A rule has ranges of IPv4 or of IPv6, and these VMs have addresses of IPv4 only.
            words = f"VMs have IPv4 addresses, and home_cidr is {self._settings.home_cidr}"
        elif order.zone is not None and order.zone not in self._zones(order.region)[0]:
            words = f"{order.region} has no zone {order.zone} that may be used"
        return None if words is None else LaunchResult(order, refusal=Refusal("bad request", words))

    def _started(self, order: LaunchOrder, script: str) -> LaunchResult:
        kind = (order.region, order.type, order.spot)
        sold_out_s, known = self._sold_out.get(kind, (-SOLD_OUT_S, None))
        if order.zone is not None and known is not None and time.monotonic() - sold_out_s < SOLD_OUT_S:
            return LaunchResult(order, refusal=known)  # Google has just looked in all zones.
        try:
            return LaunchResult(order, self._machine(self._start(order, script)))
        except CallRefused as error:
            refusal = error.refusal
            if refusal.kind == "capacity" and order.zone is None:
                reason = f"{order.region}: in all zones: {refusal.reason}"
                self._sold_out[kind] = time.monotonic(), replace(refusal, reason=reason)
            return LaunchResult(order, refusal=replace(refusal, reason=f"{order.region}: {refusal.reason}"))

    def _start(self, order: LaunchOrder, script: str) -> dict[str, Any]:
        """Create the VM of an order, and return it when it runs."""
        allowed, denied = self._zones(order.region)
        if order.zone is not None:
            denied = [zone for zone in (*allowed, *denied) if zone != order.zone]
            allowed = [order.zone]
        if not allowed:
            raise CallRefused(Refusal("bad request", "[gcp] allows none of its zones"))
        machine_type = order.type or self._default().machine.name
        body = insert_body(order, self._settings, machine_type, denied, script)
        region = order.region.partition(":")[2]
        words = (order.fleet_id, order.key, machine_type, is_spot(order, self._settings), order.zone)
        # The same order has the same id, also in another process, until an operation for it has failed.
        request_id = uuid.uuid5(uuid.NAMESPACE_URL, repr((*words, self._failures.get(order.key, 0))))
        try:
            operation = self._api.insert(f"regions/{region}/instances/bulkInsert", body, request_id)
            done = self._api.wait(operation, START_S)
        except OperationFailed as error:
            self._failures[order.key] = self._failures.get(order.key, 0) + 1
            if "ALREADY_EXISTS" not in str(error):
                raise
            done = {}
        if done is None:
            raise CallRefused(Refusal("transient", f"the VM was not created within {START_S:.0f} s"))
        return self._created(order, done, allowed)

    def _created(self, order: LaunchOrder, operation: Mapping[str, Any], zones: Sequence[str]) -> dict[str, Any]:
        """Return the VM that an operation created. It is asked for by name, because lists may lag behind."""
        places = operation.get("instancesBulkInsertOperationMetadata", {}).get("perLocationStatus", {})
        stated = [zone.rpartition("/")[2] for zone in places]
        for zone in dict.fromkeys([*stated, *zones]):
            instance = self._api.find(f"zones/{zone}/instances/{instance_name(order)}")
            if instance is not None and instance.get("labels", {}).get(KEY_TAG) == order.key:
                return instance
        self._failures[order.key] = self._failures.get(order.key, 0) + 1
        raise CallRefused(Refusal("transient", "the VM was created, and is gone"))

    def _script(self, order: LaunchOrder) -> str:
        assert order.join is not None, "checked before"
        data = f"0.0.0.0:{DATA_PORT}" if order.peers else None
        if self._settings.control == "calls home":
            join = order.join.calling(data)
        else:
            join = order.join.listening(f"0.0.0.0:{CONTROL_PORT}", data)
        # The VM's shutdown script announces it.
        notice_s = PREEMPTION_S if is_spot(order, self._settings) else None
        return user_data(
            join, self._programs, order.lease.seconds, order.region, proxy=self._settings.proxy, notice_s=notice_s
        )

    def _make_rules(self, order: LaunchOrder, *, is_alone: bool) -> None:
        """Make the rules of a fleet, again if it has no VM now: another user may have removed them as unused."""
        if not self._settings.firewall or (order.fleet_id in self._rules and not is_alone):
            return
        network = network_path(order.network.network or self._settings.network)
        rules = FleetRules(self._api, self._settings, network, order.fleet_id, order.lease.owner)
        rules.make()
        self._rules[order.fleet_id] = rules
        self._admitted.pop(order.fleet_id, None)

    def _admit(self, fleet_id: str, listed: Sequence[Machine], results: Sequence[LaunchResult] = ()) -> None:
        """Let all machines of a fleet reach the others' data ports."""
        rules = self._rules.get(fleet_id)
        if rules is None:
            return
        started = [of.machine for of in results if of.machine is not None and of.order.fleet_id == fleet_id]
        with self._admitting:
            public = {machine.addresses.get("public") for machine in (*listed, *started) if not machine.ended}
            here = frozenset(address for address in public if address is not None)
            wanted = here | self._elsewhere.get(fleet_id, frozenset())
            if wanted - self._admitted.get(fleet_id, frozenset()):
                rules.open_data(wanted)
                self._admitted[fleet_id] = wanted

    def admit(self, fleet_id: str, addresses: Collection[str]) -> None:
        """Let machines at other providers reach the data ports of a fleet. Only IPv4 addresses can be admitted."""
        if not self._settings.firewall:
            return
        if fleet_id not in self._rules:
            network = network_path(self._settings.network)
            self._rules[fleet_id] = FleetRules(self._api, self._settings, network, fleet_id, "")
        self._elsewhere[fleet_id] = frozenset(address for address in addresses if is_ipv4(address))
        self._admitted.pop(fleet_id, None)  # Addresses that are not there any more must be removed.
        self._admit(fleet_id, self._listed({FLEET_TAG: fleet_id}))

    def _delete_stopped(self, instances: Sequence[Mapping[str, Any]]) -> None:
        """Begin to delete VMs whose guests have shut down: their disks cost money."""
        old_s = time.time() - STOPPED_S
        stopped = [one for one in instances if (at_s := stopped_unix_s(one)) is not None and at_s < old_s]
        for machine in map(self._machine, stopped):
            zone, _, name = machine.id.partition("/")
            with suppress(CallRefused):
                self._api.delete(f"zones/{zone}/instances/{name}")

    def machines(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """Return the VMs with these labels. One that has shut down is listed as ended until it is deleted, and one that
        this object has deleted for OVER_S.
        """
        found = self._listed(tags)
        if FLEET_TAG in tags:
            with suppress(CallRefused):
                self._admit(tags[FLEET_TAG], found)
        # Without them a machine that has just been launched and ended might be one that is not listed yet.
        now_s, there = time.monotonic(), {machine.id for machine in found}
        for over_s, machine in list(self._over.values()):
            if now_s - over_s >= OVER_S:
                self._over.pop(machine.id, None)
            elif machine.id not in there and tags.items() <= machine.tags.items():
                found.append(machine)
        return tuple(sorted(found, key=lambda machine: (machine.name, machine.id)))

    def _listed(self, tags: Mapping[str, str]) -> list[Machine]:
        terms = [OURS, *(f'labels.{name}="{value}"' for name, value in tags.items())]
        # Google accepts several terms only in parentheses.
        found: list[Machine] = []
        try:
            for instance in self._api.aggregated("instances", " AND ".join(f"({term})" for term in terms)):
                if is_ours(instance):
                    found.append(self._machine(instance))
        except CallRefused as error:
            raise ListIncomplete(error.refusal, found) from error
        return found

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        """Delete VMs with their disks and addresses, and the firewall rules of fleets that have no VM left.

        A VM's guest is asked to shut down, and its gateway has DRAIN_S to save its work, whatever `grace_s` says.
        """
        wanted = list(dict.fromkeys(ids))
        fleets: set[str] = set()
        answers = each_of(wanted, lambda one: self._ended(one, grace_s, fleets), AT_ONCE_MAX)
        if fleets:
            with suppress(CallRefused):
                self._clear_up(fleets, {ended.id for ended in answers if ended.refusal is None})
        return answers

    def _ended(self, machine_id: str, grace_s: float, fleets: set[str]) -> Ended:
        try:
            if machine_id.startswith(RULE + PREFIX):
                delete_rule(self._api, machine_id.removeprefix(RULE))
                return Ended(machine_id)
            zone, _, name = machine_id.partition("/")
            if not name:
                return Ended(machine_id)  # Not an id of ours.
            path = f"zones/{zone}/{name.lstrip('/')}" if DISK in machine_id else f"zones/{zone}/instances/{name}"
            there = self._api.find(path)
            if there is None or not is_ours(there):
                return Ended(machine_id)
            fleets.add(there["labels"].get(FLEET_TAG, ""))
            operation = self._api.delete(path)
            if operation is not None and self._api.wait(operation, grace_s + DELETE_S) is None:
                return Ended(machine_id, refusal=Refusal("transient", f"{machine_id} is still being deleted"))
            ended_s = stopped_unix_s(there) or time.time()
            if DISK not in machine_id:
                machine = replace(self._machine(there), ended=True, ended_unix_s=ended_s)
                self._over[machine_id] = time.monotonic(), machine
            return Ended(machine_id, ended_s)
        except CallRefused as error:
            return Ended(machine_id, refusal=error.refusal)

    def _clear_up(self, fleets: Collection[str], gone: Collection[str]) -> None:
        """Delete the rules of fleets without VMs, and what fleets have left that ended long ago."""
        there = [instance for instance in self._api.aggregated("instances", OURS) if is_ours(instance)]
        self._delete_stopped(there)
        living = {one.tags.get(FLEET_TAG) for one in map(self._machine, there) if not one.ended and one.id not in gone}
        if not self._settings.firewall:
            return
        network = network_path(self._settings.network)
        for fleet_id in set(fleets) - living - {""}:
            self._rules.pop(fleet_id, None)
            self._admitted.pop(fleet_id, None)
            FleetRules(self._api, self._settings, network, fleet_id, "").delete()
        for rule_id in stale_rules(self._api, {one for one in living if one is not None}):
            delete_rule(self._api, rule_id.removeprefix(RULE))

    def leftovers(self) -> tuple[Leftover, ...]:
        """Return all VMs of ours, disks that no VM uses, and firewall rules."""
        found = [
            Leftover(one.id, STOPPED if one.ended else "machine", one.region, one.tags) for one in self._listed({})
        ]
        for disk in self._api.aggregated("disks", OURS):
            if not disk.get("users") and is_ours(disk):
                zone = str(disk.get("zone")).rpartition("/")[2]
                tags = {name: value for name, value in disk["labels"].items() if name.startswith("tradewind-")}
                region = f"gcp:{zone.rpartition('-')[0]}"
                found.append(Leftover(f"{zone}{DISK}{disk.get('name')}", "disk", region, tags))
        return (*found, *(rule_leftovers(self._api) if self._settings.firewall else ()))

    @property
    def leaves(self) -> tuple[str, ...]:
        """Kinds of resources that a fleet may leave."""
        return ("VMs", "disks", *(("firewall rules",) if self._settings.firewall else ()))

    def left_of(self, fleet_id: str) -> tuple[Leftover, ...]:
        """Return what is left of a fleet. Raises CallRefused."""
        return tuple(one for one in self.leftovers() if one.tags.get(FLEET_TAG) == fleet_id)

    def host(self, machine: Machine) -> ConsoleAccess:
        """Return access to the end of a machine's console. Nobody can log in."""
        return ConsoleAccess(machine, self.look, self.console)

    @property
    def _admits_by_itself(self) -> bool:
        """True if rules of the user, in which home may have any address, admit this machine to public VMs."""
        return self._settings.control == "public" and not self._settings.firewall

    def console(self, machine: Machine, bytes_max: int) -> str:
        """Return the end of a machine's serial console; nothing if it cannot be read, as that of a deleted machine."""
        path = f"zones/{machine.zone}/instances/{machine.id.rpartition('/')[2]}/serialPort"
        try:
            found: str = self._api.get(path, port="1", start=str(-bytes_max)).get("contents", "")
        except CallRefused as error:
            if error.refusal.kind == "permission":
                raise
            return ""
        return found

    def look(self, machine: Machine) -> str | None:
        """Return how a machine ended; None if it has not. Google is asked every LOOK_S at most."""
        looked_s, how = self._looks.get(machine.id, (0.0, None))
        if how is None and time.monotonic() - looked_s >= LOOK_S:
            instance = self._api.find(f"zones/{machine.zone}/instances/{machine.id.rpartition('/')[2]}")
            if instance is None:
                how = "its VM was deleted"
            elif stopped_unix_s(instance) is not None:
                how = "its VM has shut down"
            self._looks[machine.id] = time.monotonic(), how
        return how


def connect(document: Mapping[str, Any], settings: Settings) -> GcpProvider:
    """Return the provider of a project."""
    programs = programs_from_document(document.get("programs", ()))
    prices = CatalogOffers(GcpProvider.kind, settings.catalog)
    return GcpProvider(GcpSettings.from_document(document), programs, prices)
