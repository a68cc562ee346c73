"""Ending machines, and removing what belongs to them and to their fleets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from tradewind.fleet.azure.client import Clients, NotThere
from tradewind.fleet.azure.listing import SCHEDULES_VERSION, Listing, is_ours
from tradewind.fleet.azure.names import (
    ADDRESSES,
    DISKS,
    GROUPS,
    INTERFACES,
    MACHINES,
    NETWORKS,
    SCHEDULES,
    Names,
    location_of,
    machine_of,
    region_of,
)
from tradewind.fleet.calls import each_of
from tradewind.fleet.provider import FLEET_TAG, CallRefused, Refusal
from tradewind.model.azure import AzureSettings
from tradewind.model.records import dataclass

__all__ = ["AT_ONCE_MAX", "Removal"]

#: Machines that are started or ended at the same time. Each takes its time in Azure, and none may wait for another.
AT_ONCE_MAX = 128
#: Attempts to remove a resource that another one still uses, and the wait between two of them [s].
TRIES_MAX = 4
WAIT_S = 2.0
#: Order of removal by type. A machine takes its interface, address and disk with it.
ORDER = ((MACHINES,), (INTERFACES, SCHEDULES), (ADDRESSES, DISKS), (GROUPS, NETWORKS))
#: Errors of a resource that another one uses.
IN_USE = ("InUse", "CannotBeDeleted", "OperationNotAllowed", "NicReservedForAnotherVm", "AnotherOperationInProgress")


def _blocking(one: tuple[str, str], refusals: Mapping[tuple[str, str], Refusal]) -> Refusal | None:
    """Return why a resource cannot be removed yet: the machine that uses it, or may use it, could not be removed."""
    kind, name = one
    for (other, machine), why in refusals.items():
        if other == MACHINES and (kind in (GROUPS, NETWORKS) or machine_of(kind, name).lower() == machine.lower()):
            return why
    return None


def _without_strangers(
    wanted: Collection[tuple[str, str]], there: Mapping[str, Collection[Any]]
) -> list[tuple[str, str]]:
    """Return the resources, by type and name, without those that are there and not ours."""
    strangers = {
        (kind, one.name.lower()) for kind, resources in there.items() for one in resources if not is_ours(kind, one)
    }
    return [(kind, name) for kind, name in wanted if (kind, name.lower()) not in strangers]


@dataclass(frozen=True, slots=True)
class Removal:
    """Removes resources in the resource group. Removing one that is gone is not an error."""

    settings: AzureSettings
    clients: Clients
    names: Names
    listing: Listing
    attaching: threading.Lock
    """Held while networks of fleets are removed: no interface may be attached to one meanwhile."""

    def remove(self, wanted: Collection[tuple[str, str]], force: bool) -> dict[tuple[str, str], Refusal]:
        """Remove resources, by type and name, with all that belongs to them. Return those that could not be removed.

        What is not ours is left alone.
        A machine that may be forced is not shut down first.
        """
        listed = self.listing.several([MACHINES, *(kind for kind in self.listing.kinds if kind != MACHINES)])
        names = {name.lower() for kind, name in wanted if kind == MACHINES}
        unlisted = sorted(names - {vm.name.lower() for vm in listed[MACHINES]})
        fresh = [vm for vm in each_of(unlisted, self.listing.machine, AT_ONCE_MAX) if vm is not None]
        there = {**listed, MACHINES: [*listed[MACHINES], *fresh]}
        wanted = _without_strangers(wanted, there)
        machines = {name.lower() for kind, name in wanted if kind == MACHINES}
        fleets = self._fleets(wanted, there)
        parts = {
            (kind, one.name)
            for kind, resources in listed.items()
            if kind in (INTERFACES, ADDRESSES, DISKS, SCHEDULES)
            for one in resources
            if machine_of(kind, one.name).lower() in machines
        }
        refusals: dict[tuple[str, str], Refusal] = {}
        for stage in ORDER[:-1]:
            now = {one for one in wanted if one[0] in stage}
            if MACHINES not in stage:
                now |= {part for part in self._left(parts) if part[0] in stage}
            if SCHEDULES in stage and SCHEDULES in listed:
                now |= {(SCHEDULES, self.names.part(SCHEDULES, vm.name)) for vm in fresh}
            self._remove_stage(now, refusals, force)
        with self.attaching:
            now = {one for one in wanted if one[0] in ORDER[-1]}
            self._remove_stage(now | self._unused(fleets), refusals, force)
        # Everything that belongs to a machine is ours to remove, whoever asked for the machine.
        for kind, name in [part for part in refusals if part not in wanted]:
            owner = next((one for one in wanted if one[1].lower() == machine_of(kind, name).lower()), None)
            if owner is not None:
                refusals.setdefault(owner, refusals[kind, name])
        return {one: refusals[one] for one in wanted if one in refusals}

    def _remove_stage(
        self, now: Collection[tuple[str, str]], refusals: dict[tuple[str, str], Refusal], force: bool
    ) -> None:
        """Remove resources of which none needs another, and add those that could not be removed to `refusals`."""
        blocked = {one: why for one in now if (why := _blocking(one, refusals)) is not None}
        refusals.update(blocked | self._remove_all(sorted(set(now) - blocked.keys()), force))

    def discard(self, machine: str) -> None:
        """Remove what there is of a machine that was not launched. What cannot be removed is a leftover."""
        parts = [INTERFACES, *([ADDRESSES] if self.settings.public_address else []), DISKS]
        try:
            if self.listing.machine(machine) is not None:
                self._delete(MACHINES, machine, force=True)
        except CallRefused:
            pass  # Its schedule must stay.
        else:
            parts += [SCHEDULES] if self.settings.auto_shutdown else []
        for kind in parts:
            with suppress(CallRefused):
                self._delete(kind, self.names.part(kind, machine), force=True)

    def _left(self, parts: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return which parts of machines still exist after the machines took theirs with them."""
        kinds = sorted({kind for kind, _ in parts})
        if not kinds:
            return set()
        try:
            now = self.listing.several(kinds)
        except CallRefused:
            return set(parts)
        there = {(kind, one.name) for kind, resources in now.items() for one in resources}
        return {part for part in parts if part in there}

    def _fleets(self, wanted: Collection[tuple[str, str]], listed: Mapping[str, list[Any]]) -> set[tuple[str, str]]:
        """Return fleet and region of the resources that are to be removed."""
        names = {name.lower() for _, name in wanted}
        return {
            (one.tags[FLEET_TAG], location_of(region_of(one.location)))
            for resources in listed.values()
            for one in resources
            if one.name.lower() in names and FLEET_TAG in (one.tags or {})
        }

    def _unused(self, fleets: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return the networks and security groups of fleets that have no machine in a region any more."""
        if not fleets:
            return set()
        try:
            listed = self.listing.several([kind for kind in self.listing.kinds if kind in (MACHINES, INTERFACES)])
        except CallRefused:
            return set()
        used = {
            (one.tags[FLEET_TAG], location_of(region_of(one.location)))
            for resources in listed.values()
            for one in resources
            if FLEET_TAG in (one.tags or {}) and not self._is_gone(one)
        }
        kinds = [kind for kind in self.listing.kinds if kind in (GROUPS, NETWORKS)]
        return {(kind, self.names.of_fleet(*fleet)) for fleet in set(fleets) - used for kind in kinds}

    def _is_gone(self, one: Any) -> bool:
        """Return whether a listed resource does not exist any more: lists lag behind."""
        if self.settings.settles_s == 0:
            return False
        group, network = self.settings.resource_group, self.clients.network
        parsed = self.names.parsed(one.id)
        try:
            if parsed is not None and parsed[0] == INTERFACES:
                self.clients.call(one.name, lambda: network.network_interfaces.get(group, one.name))
                return False
            return self.listing.machine(one.name) is None
        except NotThere:
            return True
        except CallRefused:
            return False

    def _remove_all(self, wanted: list[tuple[str, str]], force: bool) -> dict[tuple[str, str], Refusal]:
        def remove(one: tuple[str, str]) -> Refusal | None:
            try:
                self._remove_used(*one, force)
            except CallRefused as error:
                return error.refusal
            return None

        answers = zip(wanted, each_of(wanted, remove, AT_ONCE_MAX), strict=True)
        return {one: refusal for one, refusal in answers if refusal is not None}

    def _remove_used(self, kind: str, name: str, force: bool) -> None:
        """Remove a resource; one that is still used is tried again for a while."""
        for tries in range(1, TRIES_MAX + 1):
            try:
                self._delete(kind, name, force)
                return
            except CallRefused as error:
                in_use = any(code in error.refusal.reason for code in IN_USE)
                if kind == MACHINES or not in_use or tries == TRIES_MAX:
                    raise
                time.sleep(WAIT_S)

    def _delete(self, kind: str, name: str, force: bool) -> None:
        group, compute, network = self.settings.resource_group, self.clients.compute, self.clients.network
        if kind == SCHEDULES:
            with suppress(NotThere):
                self.clients.send(name, "DELETE", self.names.id(kind, name), SCHEDULES_VERSION)
            return
        begin: Mapping[str, Callable[..., Any]] = {
            MACHINES: lambda **how: compute.virtual_machines.begin_delete(group, name, force_deletion=force, **how),
            DISKS: lambda **how: compute.disks.begin_delete(group, name, **how),
            INTERFACES: lambda **how: network.network_interfaces.begin_delete(group, name, **how),
            ADDRESSES: lambda **how: network.public_ip_addresses.begin_delete(group, name, **how),
            GROUPS: lambda **how: network.network_security_groups.begin_delete(group, name, **how),
            NETWORKS: lambda **how: network.virtual_networks.begin_delete(group, name, **how),
        }
        with suppress(NotThere):
            self.clients.finish(name, begin[kind])
        if kind == MACHINES:
            self.listing.states.pop(name, None)
