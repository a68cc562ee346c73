"""Machines rented from Amazon EC2.

A machine is an instance with our tags; any process with the account's credentials finds it by them. Each is created by
a RunInstances of its own, because each has its own join token in its user data: the requests for many machines run at
the same time (docs/decisions/0027-cloud-clients.md). Without a zone in the order, EC2 picks one with room.

The document has the settings of `model/aws.py`, and `programs` (see `fleet/boot/user_data.py`).

Leases: the machine's own timer shuts it down when its lease has expired, and EC2 then terminates it with its disk,
because it was launched so (`InstanceInitiatedShutdownBehavior`). With an `end_role`, Amazon's scheduler also terminates
it after `hours_max`, whatever happens inside (docs/decisions/0061-instances-that-never-boot.md).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from tradewind.errors import GatewayError
from tradewind.fleet.aws.api import AwsApi
from tradewind.fleet.aws.console import console_of
from tradewind.fleet.aws.groups import DELETE_S, NO_GROUP, FleetGroup, delete_group, group_leftovers
from tradewind.fleet.aws.instances import OURS, instance_script, is_public, machine_of, own_tags, run_request
from tradewind.fleet.aws.last_end import forget_end, life_s_max, schedule_end
from tradewind.fleet.aws.market import IMAGE_PARAMETER, Ec2Market, instances, region_name
from tradewind.fleet.aws.permissions import permission_answers
from tradewind.fleet.boot.user_data import ProgramSource, programs_from_document
from tradewind.fleet.calls import each_of, machines_of_each
from tradewind.fleet.catalog_offers import CatalogOffers
from tradewind.fleet.console_access import LOOK_S, ConsoleAccess
from tradewind.fleet.earlier_orders import known_machine
from tradewind.fleet.provider import (
    FLEET_TAG,
    CallRefused,
    Ended,
    Home,
    LaunchOrder,
    LaunchResult,
    Leftover,
    Machine,
    Offer,
    PermissionAnswer,
    Quota,
    Refusal,
)
from tradewind.model.aws import AwsSettings
from tradewind.model.records import replace

if TYPE_CHECKING:
    from tradewind.fleet.providers import Settings

__all__ = ["AwsProvider", "connect"]

#: Time that a launch waits for the addresses of new machines, which the firewall needs. `machines` tries again.
ADDRESS_S, LOOK_AGAIN_S = 15.0, 0.5
#: EC2 may not know an instance for this time after its launch, or after a list has shown it. It is far above
#: `settles_s`, and above twice the time between the looks of a running fleet.
FRESH_S = 150.0
#: Error of a call for an instance that EC2 does not know yet, or not any more.
NO_INSTANCE = "InvalidInstanceID.NotFound"
LIVING = {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}
VOLUME, GROUP = "vol-", "sg-"


class AwsProvider:
    """Rents instances of one account."""

    kind = "aws"
    settles_s = 5.0

    def __init__(self, settings: AwsSettings, programs: Sequence[ProgramSource], prices: CatalogOffers) -> None:
        self._settings, self._programs = settings, tuple(programs)
        self._api = AwsApi(settings)
        self._market = Ec2Market(settings, self._api, prices)
        #: Orders that failed, by key: the next request for it needs another client token.
        self._failures: dict[str, int] = {}
        #: Regions in which this object may have launched machines, by fleet.
        self._used: dict[str, set[str]] = {}
        #: Groups of the fleets that this object launched, by fleet and region, and what they admit.
        self._groups: dict[tuple[str, str], FleetGroup] = {}
        self._admitted: dict[tuple[str, str], frozenset[str]] = {}
        #: Groups that could not be deleted yet, by fleet and region.
        self._undeleted: set[tuple[str, str]] = set()
        #: Addresses of machines of a fleet at other providers.
        self._elsewhere: dict[str, frozenset[str]] = {}
        #: Held while groups are made and changed.
        self._admitting = threading.Lock()
        #: Times and results of the latest looks at machines, by id.
        self._looks: dict[str, tuple[float, str | None]] = {}
        #: Machines that this object launched, or that a list has shown as living, by id, each with the latest time of
        #: that. Their end is not known.
        self._seen: dict[str, tuple[float, Machine]] = {}
        #: Ids of machines that EC2 has agreed to end for this object. Lists may show them as running for a while.
        self._ended: set[str] = set()

    def document(self) -> dict[str, Any]:
        """Return the kind, the settings, and the sources of the gateway program."""
        programs = [program.document() for program in self._programs]
        return {"kind": self.kind, "programs": programs, **self._settings.document()}

    def home(self, region: str) -> Home:
        """Return this host. Gateways without public addresses call it at its `home_cidr`."""
        called = None if self._settings.public_address else self._settings.called_home
        return Home() if called is None else Home(address=called)

    def kept_s_max(self, region: str) -> float:
        """Return 0 without public addresses, because instances then call home, and `hours_max` with an `end_role`."""
        if not self._settings.public_address:
            return 0.0
        return math.inf if self._settings.end_role is None else self._settings.hours_max * 3600.0

    def offers(self, regions: Collection[str]) -> tuple[Offer, ...]:
        """Return the machine types of the catalog in these regions, with the zones that the account may use there."""
        wanted = [region for region in sorted(set(regions)) if self._serves(region)]
        return tuple(offer for of in each_of(wanted, self._market.offers) for offer in of)

    def quota(self, region: str) -> Quota | None:
        """Return how many machines of the cheapest type the quota of a region allows; None if it cannot be read."""
        return self._market.quota(region) if self._serves(region) else None

    def _serves(self, region: str) -> bool:
        provider, _, name = region.partition(":")
        return provider == self.kind and (not self._settings.regions or name in self._settings.regions)

    def _regions(self, fleet_id: str | None = None) -> tuple[str, ...]:
        """Return the regions in which machines may be: of a fleet that this object launched, else all."""
        used = self._used.get(fleet_id or "")
        if used is not None:
            return tuple(sorted(used))
        return self._settings.regions or tuple(self._market.fact("", "regions", self._api.regions))

    def permissions(self) -> tuple[PermissionAnswer, ...]:
        """Return which permissions of the smallest policy this login has, by dry runs. Raises CallRefused."""
        default, parameter = self._market.default, IMAGE_PARAMETER.format(processor="x86_64")
        code = self._market.quota_code
        return tuple(permission_answers(self._settings, self._api, default.machine.name, code, parameter))

    def launch(self, orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
        """Start instances concurrently. One that was ordered before with the same key is returned instead."""
        refused = {order.key: words for order in orders if (words := self._impossible(order)) is not None}
        possible = [order for order in orders if order.key not in refused]
        regions = sorted({region_name(order.region) for order in possible})
        listed = dict(
            zip(regions, each_of(regions, lambda region: self._listed_in(region, [OURS, LIVING])), strict=True)
        )
        living = [machine for region in regions for machine in listed[region]]
        known = {order.key: self._known(order, living) for order in possible}
        fresh = [order for order in possible if known[order.key] is None]
        for order in possible:
            self._used.setdefault(order.fleet_id, set()).add(region_name(order.region))
        started = dict(zip([order.key for order in fresh], each_of(fresh, self._started), strict=True))
        results = []
        for order in orders:
            words = refused.get(order.key)
            made = LaunchResult(order, refusal=Refusal("bad request", words)) if words else known.get(order.key)
            results.append(made or started[order.key])
        for fleet_id in {order.fleet_id for order in fresh}:
            results = self._reachable(fleet_id, results)
        self._drop_unused_groups(results)
        return results

    def _known(self, order: LaunchOrder, living: Sequence[Machine]) -> LaunchResult | None:
        """Return the machine of an earlier launch. Its client may have died before it had scheduled its end."""
        known = known_machine(order, living)
        if known is None or known.machine is None:
            return known
        try:
            self._schedule_end(order, known.machine)
        except CallRefused as error:
            return LaunchResult(order, refusal=error.refusal)
        return known

    def _drop_unused_groups(self, results: Sequence[LaunchResult]) -> None:
        """Delete the groups of fleets in regions where all orders were refused for good, or for want of capacity."""
        outcomes: dict[tuple[str, str], set[str]] = {}
        for of in results:
            outcome = "launched" if of.refusal is None else of.refusal.kind
            outcomes.setdefault((of.order.fleet_id, region_name(of.order.region)), set()).add(outcome)
        for key, found in outcomes.items():
            if key in self._groups and not found & {"launched", "throttled", "transient"}:
                self._drop_group(*key, timeout_s=0.0)

    def _impossible(self, order: LaunchOrder) -> str | None:
        """Return why an order can never succeed."""
        if not self._serves(order.region):
            return f"{order.region} is not among the regions of [aws]"
        if not self._programs:
            return "machines cannot download the gateway program: program_url of [fleet] is not set"
        if order.join is None:
            return "a machine of a cloud needs an identity: plain hops are not possible there"
        own_group = self._settings.network(region_name(order.region)).security_group is None
        if is_public(order, self._settings) and own_group and self._settings.home_cidr is None:
            return "the public address of this machine is unknown: set home_cidr in [fleet]"
        if is_public(order, self._settings) and own_group and ":" in (self._settings.home_cidr or ""):
            return f"machines in EC2 have IPv4 addresses, and home_cidr is {self._settings.home_cidr}"
        if not is_public(order, self._settings) and self._settings.called_home is None:
            return "machines without public addresses call home, so home_cidr of [fleet] must be one address"
        return None

    def _started(self, order: LaunchOrder) -> LaunchResult:
        try:
            return LaunchResult(order, self._start(order))
        except CallRefused as error:
            refusal = error.refusal
            if refusal.reason.startswith(NO_GROUP):
                # Lists showed it after its deletion. The next attempt looks again.
                self._groups.pop((order.fleet_id, region_name(order.region)), None)
            if refusal.kind not in ("transient", "throttled"):
                self._failures[order.key] = self._failures.get(order.key, 0) + 1
            return LaunchResult(order, refusal=replace(refusal, reason=f"{order.region}: {refusal.reason}"))
        except GatewayError as error:
            return LaunchResult(order, refusal=Refusal("bad request", str(error)))

    def _start(self, order: LaunchOrder) -> Machine:
        region = region_name(order.region)
        network = self._settings.network(region)
        request = run_request(
            order,
            self._settings,
            machine_type=order.type or self._market.default.machine.name,
            image=network.image or self._market.image(region),
            group=network.security_group or self._group(order, region).make(),
            subnet=self._market.subnet(region, order.zone),
            script=instance_script(order, self._settings, self._programs),
            attempt=self._failures.get(order.key, 0),
        )
        answer = self._api.ec2(region, "run_instances", **request)
        machine = machine_of(region, answer["Instances"][0], self._settings)
        if machine.ended:
            # The client token is that of an instance that has ended since.
            raise CallRefused(Refusal("bad request", f"the instance of this order, {machine.id}, has ended"))
        self._seen[machine.id] = time.monotonic(), machine
        self._schedule_end(order, machine)
        return machine

    def _schedule_end(self, order: LaunchOrder, machine: Machine) -> None:
        """Schedule the end of a machine, if a role for that is configured. If that fails, the machine ends now.

        Raises CallRefused.
        """
        role = self._settings.end_role
        if role is None:
            return
        region, _, name = machine.id.partition("/")
        try:
            schedule_end(self._api, region, name, role, life_s_max(order, self._settings))
        except CallRefused:
            # The next request for this order needs another client token: that of this one has an ended instance.
            self._failures[order.key] = self._failures.get(order.key, 0) + 1
            with suppress(CallRefused):  # `leftovers` reports it.
                self._api.ec2(region, "terminate_instances", InstanceIds=[name])
            raise

    def _group(self, order: LaunchOrder, region: str) -> FleetGroup:
        with self._admitting:
            key = (order.fleet_id, region)
            if key not in self._groups:
                vpc = order.network.network or self._settings.network(region).vpc
                group = FleetGroup(self._api, region, order.fleet_id, order.lease.owner, vpc)
                group.make()
                self._groups[key] = group
            return self._groups[key]

    def _reachable(self, fleet_id: str, results: list[LaunchResult]) -> list[LaunchResult]:
        """Admit the new machines of a fleet. If that can never succeed they are ended, because they would be useless.

        If it does not succeed now, `machines` tries again.
        """
        ours = [of for of in results if of.machine is not None and of.order.fleet_id == fleet_id]
        try:
            machines = self._with_addresses(fleet_id, {of.machine.id for of in ours if of.machine is not None})
            self._admit(fleet_id, machines.values())
        except CallRefused as error:
            if error.refusal.kind in ("throttled", "transient"):
                return results
            self.terminate([of.machine.id for of in ours if of.machine is not None])
            return [LaunchResult(of.order, refusal=error.refusal) if of in ours else of for of in results]
        return [
            replace(of, machine=machines.get(of.machine.id, of.machine)) if of in ours and of.machine else of
            for of in results
        ]

    def _with_addresses(self, fleet_id: str, fresh: Collection[str]) -> dict[str, Machine]:
        """Return the living machines of a fleet by id, the fresh ones with their addresses if these come in time."""
        deadline_s = time.monotonic() + ADDRESS_S
        while True:
            found = {one.id: one for one in self._listed({FLEET_TAG: fleet_id}) if not one.ended}
            public = self._settings.public_address
            known = [one for one in fresh if one in found and (found[one].control is not None or not public)]
            if len(known) == len(fresh) or time.monotonic() >= deadline_s:
                return found
            time.sleep(LOOK_AGAIN_S)

    def _admit(self, fleet_id: str, machines: Collection[Machine]) -> None:
        """Let the machines of a fleet reach each other's data ports."""
        # A group may have 60 rules (Amazon VPC quotas), and others see a machine at the address at which it is dialled.
        addresses = {
            next(iter(machine.addresses.values())) for machine in machines if not machine.ended and machine.addresses
        }
        wanted = frozenset({*addresses, *self._settings.peer_cidrs, *self._elsewhere.get(fleet_id, ())})
        # One call at a time: of two, the one with the older listing might revoke what the other admitted.
        with self._admitting:
            for key, group in list(self._groups.items()):
                if key[0] == fleet_id and self._admitted.get(key) != wanted:
                    group.admit(self._settings.home_cidr, wanted)
                    self._admitted[key] = wanted

    def admit(self, fleet_id: str, addresses: Collection[str]) -> None:
        """Let machines of a fleet at other providers reach its data ports here. Raises CallRefused."""
        self._elsewhere[fleet_id] = frozenset(addresses)
        self._admit(fleet_id, self._listed({FLEET_TAG: fleet_id}))

    def machines(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """Return machines with these tags. Raises ListIncomplete if a region does not answer."""
        found = self._listed(tags)
        fleet_id = tags.get(FLEET_TAG)
        if fleet_id is not None and set(tags) == {FLEET_TAG}:
            with suppress(CallRefused):  # Tried again with the next listing.
                self._admit(fleet_id, found)
        return found

    def _listed(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        filters = [OURS, *({"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items())]
        regions = self._regions(tags.get(FLEET_TAG))
        found = machines_of_each(regions, lambda region: self._listed_in(region, filters))
        return tuple(sorted(found, key=lambda machine: (machine.name, machine.id)))

    def _listed_in(self, region: str, filters: Sequence[Mapping[str, Any]]) -> list[Machine]:
        machines = (machine_of(region, instance, self._settings) for instance in instances(self._api, region, filters))
        ours = (machine for machine in machines if FLEET_TAG in machine.tags)
        found = [replace(one, ended=True, control=None) if one.id in self._ended else one for one in ours]
        for machine in found:
            if machine.ended:
                self._seen.pop(machine.id, None)
            else:
                self._seen[machine.id] = time.monotonic(), machine
        return found

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        """Terminate instances, one call per region, and delete groups of fleets that have no instance any more.

        An instance shuts down as usual, which gives its gateway the time to save its work.
        """
        wanted = list(dict.fromkeys(ids))
        by_region: dict[str, list[str]] = {}
        for machine_id in wanted:
            region, slash, name = machine_id.partition("/")
            if slash:
                by_region.setdefault(region, []).append(name)
        answers: dict[str, Ended] = {}
        fleets: set[str] = set()
        for of_region, its_fleets in each_of(sorted(by_region.items()), lambda each: self._end_in(*each)):
            answers |= of_region
            fleets |= its_fleets
        for fleet_id, region in list(self._undeleted):
            if fleet_id in fleets and region not in by_region:
                self._drop_group(fleet_id, region, 0.0)
        return [answers.get(machine_id, Ended(machine_id)) for machine_id in wanted]

    def _end_in(self, region: str, names: Sequence[str]) -> tuple[dict[str, Ended], set[str]]:
        """End instances, disks and groups of a region. Return the answers, and the fleets of the instances."""
        answers: dict[str, Ended] = {}
        instances = [name for name in names if name.startswith("i-")]
        known: list[Machine] = []
        living: dict[str, Machine] = {}
        try:
            known = self._ours_among(region, instances)
            living = {one.id.partition("/")[2]: one for one in known if not one.ended}
            refusals = self._still_there(region, self._end_all(region, sorted(living)))
            ended_s = time.time()
            answers = {
                one.id: Ended(one.id, refusal=refusals[name])
                if (name := one.id.partition("/")[2]) in refusals
                else Ended(one.id, one.ended_unix_s if one.ended else ended_s)
                for one in known
            }
            known = [one for one in known if answers[one.id].refusal is None]
            if self._settings.end_role is not None:
                each_of(known, lambda one: forget_end(self._api, region, one.id.partition("/")[2]))
        except CallRefused as error:
            answers = {f"{region}/{name}": Ended(f"{region}/{name}", refusal=error.refusal) for name in instances}
            known = []
        for name in names:
            if name.startswith((VOLUME, GROUP)):
                answers[f"{region}/{name}"] = self._remove(region, name)
        fleets = {one.tags[FLEET_TAG] for one in known}
        ended_now = {one.tags[FLEET_TAG] for one in known if not one.ended}
        for fleet_id in fleets:
            # A replacement of a machine that ended by itself must not wait until its network interface is gone.
            self._drop_group(fleet_id, region, DELETE_S if fleet_id in ended_now else 0.0)
        return answers, fleets

    def _end_all(self, region: str, names: Sequence[str]) -> dict[str, Refusal]:
        """End living instances of ours. Return why some could not be ended, by name.

        Amazon may refuse a request because of one of its instances, such as one that is protected. Each is then ended
        by a request of its own.
        """
        if not names:
            return {}
        try:
            self._api.ec2(region, "terminate_instances", InstanceIds=list(names))
        except CallRefused as error:
            if len(names) == 1 or error.refusal.kind not in ("bad request", "permission", "transient"):
                return dict.fromkeys(names, error.refusal)
            refusals: dict[str, Refusal] = {}
            for of_one in each_of(names, lambda name: self._end_all(region, [name])):
                refusals |= of_one
            return refusals
        for name in names:
            self._ended.add(f"{region}/{name}")
            self._seen.pop(f"{region}/{name}", None)
        return {}

    def _ours_among(self, region: str, names: Sequence[str]) -> list[Machine]:
        """Return those instances that are ours, also the ended ones and those that lists do not show, yet or any more.

        Nothing else may be ended. Without a list, those are ended that were ours before. Raises CallRefused.
        """
        if not names:
            return []
        wanted = {f"{region}/{name}" for name in names}
        try:
            listed = self._listed_in(region, [OURS, {"Name": "instance-id", "Values": list(names)}])
        except CallRefused:
            if not wanted <= self._seen.keys():
                raise
            listed = []
        unlisted = wanted - {machine.id for machine in listed}
        seen = dict(self._seen)  # Other threads launch machines meanwhile.
        return [*listed, *(machine for _, machine in seen.values() if machine.id in unlisted)]

    def _still_there(self, region: str, refused: Mapping[str, Refusal]) -> dict[str, Refusal]:
        """Return those refusals to end an instance, by name, whose instance has not ended.

        A call whose answer was lost may have ended it, and another one after it be refused.
        """
        ended: set[str] = set()
        if refused:
            with suppress(CallRefused):
                listed = self._listed_in(region, [OURS, {"Name": "instance-id", "Values": sorted(refused)}])
                ended = {machine.id for machine in listed if machine.ended}
        ids = {name: f"{region}/{name}" for name in refused}
        return {
            name: why for name, why in refused.items() if ids[name] not in ended and not self._is_gone(ids[name], why)
        }

    def _is_gone(self, machine_id: str, refusal: Refusal) -> bool:
        """Return whether the end of an instance was refused because it has ended: lists have not shown it for long."""
        seen_s, _ = self._seen.get(machine_id, (-math.inf, None))
        return refusal.reason.startswith(NO_INSTANCE) and time.monotonic() - seen_s > FRESH_S

    def _drop_group(self, fleet_id: str, region: str, timeout_s: float) -> None:
        """Delete a fleet's group in a region without living machines.

        If it cannot be deleted, `leftovers` reports it, and the next termination of a machine of the fleet tries again.
        """
        key = fleet_id, region
        try:
            if any(not machine.ended for machine in self._listed_in(region, [OURS, _of_fleet(fleet_id), LIVING])):
                return
            for leftover in group_leftovers(self._api, region):
                if leftover.tags[FLEET_TAG] == fleet_id:
                    delete_group(self._api, region, leftover.id.partition("/")[2], timeout_s)
        except CallRefused:
            self._undeleted.add(key)
            return
        self._undeleted.discard(key)
        self._groups.pop(key, None)
        self._admitted.pop(key, None)

    def _remove(self, region: str, name: str) -> Ended:
        try:
            if name.startswith(GROUP):
                if any(left.id == f"{region}/{name}" for left in group_leftovers(self._api, region)):
                    delete_group(self._api, region, name)
            elif any(volume["VolumeId"] == name for volume in self._volumes(region)):
                self._api.ec2(region, "delete_volume", VolumeId=name)
        except CallRefused as error:
            return Ended(f"{region}/{name}", refusal=error.refusal)
        return Ended(f"{region}/{name}")

    def leftovers(self) -> tuple[Leftover, ...]:
        """Return all living instances, disks and security groups of ours. Raises CallRefused."""
        return tuple(found for of in each_of(self._regions(), self._leftovers_in) for found in of)

    @property
    def leaves(self) -> tuple[str, ...]:
        """Kinds of resources that a fleet may leave."""
        return "instances", "disks", "security groups"

    def left_of(self, fleet_id: str) -> tuple[Leftover, ...]:
        """Return what is left of a fleet, in the regions in which it may have had machines. Raises CallRefused."""
        found = each_of(self._regions(fleet_id), self._leftovers_in)
        return tuple(one for of in found for one in of if one.tags.get(FLEET_TAG) == fleet_id)

    def _leftovers_in(self, region: str) -> list[Leftover]:
        machines = self._listed_in(region, [OURS, LIVING])
        found = [Leftover(machine.id, "machine", machine.region, machine.tags) for machine in machines]
        for volume in self._volumes(region):
            if not volume.get("Attachments"):
                found.append(Leftover(f"{region}/{volume['VolumeId']}", "disk", f"aws:{region}", own_tags(volume)))
        return [*found, *group_leftovers(self._api, region)]

    def _volumes(self, region: str) -> Iterator[dict[str, Any]]:
        return self._api.pages(region, "describe_volumes", "Volumes", Filters=[OURS])

    def host(self, machine: Machine) -> ConsoleAccess:
        """Return access to the end of a machine's console. Nobody can log in."""
        return ConsoleAccess(machine, self.look, partial(console_of, self._api))

    def look(self, machine: Machine) -> str | None:
        """Return how a machine ended; None if it has not. Amazon is asked every LOOK_S at most. Raises CallRefused."""
        looked_s, how = self._looks.get(machine.id, (0.0, None))
        if how is None and time.monotonic() - looked_s >= LOOK_S:
            region, _, name = machine.id.partition("/")
            found = self._listed_in(region, [OURS, {"Name": "instance-id", "Values": [name]}])
            if found and found[0].ended:
                how = "its instance was terminated"
            self._looks[machine.id] = time.monotonic(), how
        return how


def _of_fleet(fleet_id: str) -> dict[str, Any]:
    return {"Name": f"tag:{FLEET_TAG}", "Values": [fleet_id]}


def connect(document: Mapping[str, Any], settings: Settings) -> AwsProvider:
    """Return the provider of an account."""
    programs = programs_from_document(document.get("programs", ()))
    prices = CatalogOffers(AwsProvider.kind, settings.catalog)
    return AwsProvider(AwsSettings.from_document(document), programs, prices)
