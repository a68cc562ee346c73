"""One provider over several others, so that a fleet can have machines of several clouds and hosts.

Each region belongs to one member, which gets the orders for it. A machine's id begins with its member's name. All
members are called at the same time. A member that refuses a launch or a termination does not affect the others. A
listing fails if one member cannot be asked, because its machines would otherwise seem to have ended; its error has the
machines of the others.

A member with a firewall of its own gets the addresses of the machines of the others as soon as they are known. A host
that is known by its name is looked up, because firewalls know no names.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tradewind.fleet.addresses import addresses_of_name, is_address
from tradewind.fleet.calls import each_of, machines_of_each
from tradewind.fleet.provider import (
    FLEET_TAG,
    Accountable,
    Admitting,
    Adopting,
    CallRefused,
    Connected,
    Ended,
    Exposing,
    Home,
    Host,
    Keepable,
    LaunchOrder,
    LaunchResult,
    Leftover,
    ListIncomplete,
    Machine,
    Offer,
    Provider,
    Quota,
    Refusal,
)
from tradewind.model.records import dataclass, replace

if TYPE_CHECKING:
    from tradewind.fleet.providers import Settings

__all__ = ["FleetMember", "MixedProvider", "connect"]

#: Time for which the addresses of a host's name are used again, also if it has none.
NAMES_S = 60.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FleetMember:
    """One of the providers, with the regions that belong to it. Its name is the first part of its machines' ids."""

    name: str
    regions: tuple[str, ...]
    provider: Provider

    def own(self, machine: Machine) -> Machine:
        """Return a machine of this member as the mixed provider shows it."""
        return replace(machine, id=f"{self.name}/{machine.id}")


class MixedProvider:
    """Sends each call to the members that it concerns."""

    kind = "mixed"

    def __init__(self, members: Sequence[FleetMember]) -> None:
        self._members = tuple(members)
        self._by_region = {region: member for member in reversed(self._members) for region in member.regions}
        self._by_name = {member.name: member for member in self._members}
        #: Addresses that each member admits, by fleet and the member's name.
        self._admitted: dict[tuple[str, str], frozenset[str]] = {}
        #: Addresses of hosts that are known by name, with the time when they were looked up.
        self._named: dict[str, tuple[float, frozenset[str]]] = {}
        self._admitting = threading.Lock()

    @property
    def settles_s(self) -> float:
        """The longest time of all members."""
        return max((member.provider.settles_s for member in self._members), default=0.0)

    def document(self) -> dict[str, Any]:
        """Return the documents of all members, with the regions of each."""
        return {
            "kind": self.kind,
            "members": [
                {"name": member.name, "regions": list(member.regions), "provider": member.provider.document()}
                for member in self._members
            ],
        }

    def home(self, region: str) -> Home:
        """Return the home that the region's member states.

        If that states no address, gateways of other members still call home: it is the first address that one states.
        """
        member = self._by_region.get(region)
        home = Home() if member is None else member.provider.home(region)
        if home != Home():
            return home
        stated = (each.provider.home(next(iter(sorted(each.regions)), "")) for each in self._members)
        return next((other for other in stated if other.address != home.address and not other.enter), home)

    def adopt(self, fleet_id: str) -> None:
        """Let the members that need it open connections to machines of a fleet."""
        for member in self._members:
            if isinstance(member.provider, Adopting):
                member.provider.adopt(fleet_id)

    def kept_s_max(self, region: str) -> float:
        """Return what the region's member states."""
        provider = self._by_region[region].provider
        return provider.kept_s_max(region) if isinstance(provider, Keepable) else math.inf

    def offers(self, regions: Collection[str]) -> tuple[Offer, ...]:
        """Return the offers of the members that answer. Raises CallRefused if none of them does."""
        asked = [(member, regions_of) for member in self._members if (regions_of := _shared(member, regions))]
        answers = each_of(asked, lambda pair: _answer(lambda: pair[0].provider.offers(pair[1])))
        refusals = [answer for answer in answers if isinstance(answer, CallRefused)]
        if refusals and len(refusals) == len(answers):
            raise refusals[0]
        return tuple(offer for answer in answers if not isinstance(answer, CallRefused) for offer in answer)

    def quota(self, region: str) -> Quota | None:
        """Return the quota that the region's member states; 0 machines for a region without a member."""
        member = self._by_region.get(region)
        return Quota(0) if member is None else member.provider.quota(region)

    def launch(self, orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
        """Start machines at all members concurrently. The orders of a member that refuses them all are refused."""
        asked = [
            (member, [order for order in orders if self._by_region.get(order.region) is member])
            for member in self._members
        ]
        asked = [pair for pair in asked if pair[1]]
        answers = each_of(asked, lambda pair: _answer(lambda: pair[0].provider.launch(pair[1])))
        results: dict[str, LaunchResult] = {}
        for (member, its_orders), answer in zip(asked, answers, strict=True):
            if isinstance(answer, CallRefused):
                results |= {order.key: LaunchResult(order, refusal=answer.refusal) for order in its_orders}
                continue
            for result in answer:
                machine = None if result.machine is None else member.own(result.machine)
                results[result.order.key] = replace(result, machine=machine)
        return [results.get(order.key) or LaunchResult(order, refusal=_no_member(order.region)) for order in orders]

    def machines(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """Return the machines of all members. Raises ListIncomplete if one member cannot be asked."""
        found = machines_of_each(self._members, lambda member: self._machines_of(member, tags))
        if tags.keys() == {FLEET_TAG}:
            self._admit(tags[FLEET_TAG], [machine for machine in found if not machine.ended])
        return tuple(sorted(found, key=lambda machine: (machine.name, machine.id)))

    def _machines_of(self, member: FleetMember, tags: Mapping[str, str]) -> list[Machine]:
        def own(machines: Sequence[Machine]) -> list[Machine]:
            return [member.own(machine) for machine in machines if self._belongs(member, machine.region)]

        try:
            return own(member.provider.machines(tags))
        except ListIncomplete as error:
            raise ListIncomplete(error.refusal, own(error.found)) from error

    def _admit(self, fleet_id: str, machines: Sequence[Machine]) -> None:
        """Tell each member with a firewall the addresses of the living machines of the others, if they have changed.

        A refused call is repeated at the next listing; until then hops to its machines do not open.
        """
        changed = []
        with self._admitting:
            for member in self._members:
                if not isinstance(member.provider, Admitting) or not _owns_any(member, machines):
                    continue
                others = [machine for machine in machines if not _owns(member, machine)]
                outside = frozenset(address for machine in others for address in self._addresses_of(machine))
                if outside != self._admitted.get((fleet_id, member.name), frozenset()):
                    changed.append((member.name, member.provider, outside))
            refusals = each_of(changed, lambda each: _answer(lambda: each[1].admit(fleet_id, each[2])))
            for (name, _, outside), refused in zip(changed, refusals, strict=True):
                if not isinstance(refused, CallRefused):
                    self._admitted[fleet_id, name] = outside

    def _addresses_of(self, machine: Machine) -> frozenset[str]:
        """Return the addresses under which others see a machine; none while it has none."""
        stated = next(iter(machine.addresses.values()), "")
        if not stated or is_address(stated):
            return frozenset({stated} - {""})
        looked_s, found = self._named.get(stated, (-NAMES_S, frozenset()))
        if time.monotonic() - looked_s >= NAMES_S:
            # A lookup that fails must not close the firewalls to a host that was found before.
            found = addresses_of_name(stated) or found
            self._named[stated] = time.monotonic(), found
        return found

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        """End machines at all members concurrently. A member that refuses the call refuses each of its machines."""
        asked = [(member, _own_ids(member, ids)) for member in self._members if _own_ids(member, ids)]
        answers = each_of(
            asked, lambda pair: _answer(lambda: pair[0].provider.terminate(list(pair[1].values()), grace_s=grace_s))
        )
        ended: dict[str, Ended] = {}
        for (member, its_ids), answer in zip(asked, answers, strict=True):
            if isinstance(answer, CallRefused):
                ended |= {machine_id: Ended(machine_id, refusal=answer.refusal) for machine_id in its_ids}
            else:
                ended |= {one.id: one for one in (replace(each, id=f"{member.name}/{each.id}") for each in answer)}
        return [ended.get(machine_id) or Ended(machine_id) for machine_id in ids]

    def leftovers(self) -> tuple[Leftover, ...]:
        """Return what all members have of ours. Raises CallRefused if one member cannot be asked."""
        listed = each_of(self._members, lambda member: member.provider.leftovers())
        return tuple(
            replace(one, id=f"{member.name}/{one.id}")
            for member, found in zip(self._members, listed, strict=True)
            for one in found
            if self._belongs(member, one.region)
        )

    @property
    def leaves(self) -> tuple[str, ...]:
        """Kinds of resources that a fleet may leave at a member."""
        return tuple(dict.fromkeys(kind for _, provider in self._accountable for kind in provider.leaves))

    def left_of(self, fleet_id: str) -> tuple[Leftover, ...]:
        """Return what is left of a fleet at all members. Raises CallRefused if one member cannot be asked."""
        listed = each_of(self._accountable, lambda pair: pair[1].left_of(fleet_id))
        return tuple(
            replace(one, id=f"{member.name}/{one.id}")
            for (member, _), found in zip(self._accountable, listed, strict=True)
            for one in found
            if self._belongs(member, one.region)
        )

    @property
    def _accountable(self) -> list[tuple[FleetMember, Accountable]]:
        members = ((member, member.provider) for member in self._members)
        return [(member, provider) for member, provider in members if isinstance(provider, Accountable)]

    def disconnect(self) -> None:
        """Let each member close the connections that it does not need."""
        for member in self._members:
            if isinstance(member.provider, Connected):
                member.provider.disconnect()

    def host(self, machine: Machine) -> Host | None:
        """Return the access that the machine's member offers."""
        name, _, own_id = machine.id.partition("/")
        member = self._by_name.get(name)
        return None if member is None else member.provider.host(replace(machine, id=own_id))

    def expose(self, machine: Machine, services: Mapping[str, Mapping[int, int]]) -> None:
        """Let the machine's member make Services. Raises CallRefused."""
        name, _, own_id = machine.id.partition("/")
        member = self._by_name.get(name)
        if member is None or not isinstance(member.provider, Exposing):
            raise CallRefused(Refusal("bad request", f"no Service can lead to a machine in {machine.region}"))
        member.provider.expose(replace(machine, id=own_id), services)

    def _belongs(self, member: FleetMember, region: str) -> bool:
        """Return whether a member's machine in a region is its own: two members may see the same processes."""
        return self._by_region.get(region, member) is member


def _shared(member: FleetMember, regions: Collection[str]) -> list[str]:
    return [region for region in member.regions if region in regions]


def _owns(member: FleetMember, machine: Machine) -> bool:
    return machine.id.startswith(f"{member.name}/")


def _owns_any(member: FleetMember, machines: Sequence[Machine]) -> bool:
    return any(_owns(member, machine) for machine in machines)


def _own_ids(member: FleetMember, ids: Collection[str]) -> dict[str, str]:
    """Return the member's own id of each of its machines among `ids`."""
    prefix = f"{member.name}/"
    return {machine_id: machine_id.removeprefix(prefix) for machine_id in ids if machine_id.startswith(prefix)}


def _answer(call: Callable[[], T]) -> T | CallRefused:
    try:
        return call()
    except CallRefused as error:
        return error


def _no_member(region: str) -> Refusal:
    return Refusal("bad request", f"no provider of the fleet has machines in {region}")


def connect(document: Mapping[str, Any], settings: Settings) -> MixedProvider:
    """Return the provider over those that the document names."""
    from tradewind.fleet.providers import connect_provider

    return MixedProvider(
        [
            FleetMember(each["name"], tuple(each["regions"]), connect_provider(each["provider"], settings))
            for each in document["members"]
        ]
    )
