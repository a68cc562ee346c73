"""Offers and quotas of a region: the catalog, Azure's sizes and its quotas."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tradewind.fleet.azure.client import Clients
from tradewind.fleet.azure.names import location_of
from tradewind.fleet.catalog_offers import CatalogOffers, offer_in
from tradewind.fleet.provider import CallRefused, Offer, Quota
from tradewind.model.azure import AzureSettings
from tradewind.model.machine import MachineOffer
from tradewind.model.records import dataclass

__all__ = ["Market", "family_of"]

#: Names of Azure's quotas on virtual processors in a region.
REGION_QUOTA = "cores"
SPOT_QUOTA = "lowPriorityCores"

_SIZE = re.compile(r"Standard_([A-Z]+)\d+([a-z]*)_v(\d+)")


def family_of(size: str) -> str | None:
    """Return the name of the quota of a machine size's family: `standardDv5Family`; None for another kind of name."""
    found = _SIZE.fullmatch(size)
    return None if found is None else f"standard{found[1]}{found[2].upper()}v{found[3]}Family"


@dataclass(frozen=True, slots=True)
class _Usage:
    limit: int
    used: int


class Market:
    """Offers and quotas of one subscription."""

    def __init__(self, settings: AzureSettings, clients: Clients, prices: CatalogOffers) -> None:
        self._settings, self._clients, self._prices = settings, clients, prices
        self._sizes: dict[str, MachineOffer] = {}

    @property
    def sizes(self) -> Mapping[str, MachineOffer]:
        """The sizes of the catalog on demand, the cheapest first."""
        if not self._sizes:
            found = [offer for offer in self._prices.packaged if not offer.spot]
            self._sizes = {offer.machine.name: offer for offer in sorted(found, key=lambda one: one.usd_per_hour)}
        return self._sizes

    @property
    def default_size(self) -> str:
        """The size of machines whose plan names none."""
        return self._settings.machine_type or next(iter(self.sizes))

    def offers(self, region: str) -> list[Offer]:
        """Return the offers of a region, the cheapest first. Without permission to read sizes it names no zones."""
        location = location_of(region)
        usages: dict[str, _Usage] = {}
        zones: dict[str, tuple[str, ...]] | None = None
        with suppress(CallRefused):
            zones = self._zones(location)
        with suppress(CallRefused):
            usages = self._usages(location)
        found = []
        for offer in self._prices.offers(region):
            machine = offer.machine
            if (offer.spot and not self._settings.spot) or (zones is not None and machine.name not in zones):
                continue
            left = _left(usages, machine.name, machine.vcpus, offer.spot)
            found.append(offer_in(region, offer, "launched", (zones or {}).get(machine.name, ()), left))
        return sorted(found, key=lambda one: one.usd_per_s)

    def quota(self, region: str) -> Quota | None:
        """Return how many machines of the default size a region's quota allows; None if it has none.

        Raises CallRefused.
        """
        usages = self._usages(location_of(region))
        size = self.default_size
        vcpus = self.sizes[size].machine.vcpus if size in self.sizes else _vcpus(size)
        limits = [usages[name] for name in (REGION_QUOTA, family_of(size)) if name and name in usages]
        if not limits:
            return None
        tightest = min(limits, key=lambda one: one.limit - one.used)
        left = max(0, tightest.limit - tightest.used) // vcpus
        used = tightest.used // vcpus
        return Quota(used + left, used)

    def _usages(self, location: str) -> dict[str, _Usage]:
        listed = self._clients.list(f"azure:{location}", lambda: self._clients.compute.usage.list(location))
        return {one.name.value: _Usage(int(one.limit), int(one.current_value)) for one in listed}

    def _zones(self, location: str) -> dict[str, tuple[str, ...]]:
        """Return the zones of each size that the subscription may use in a region."""
        found = {}
        only = f"location eq '{location}'"
        for sku in self._clients.list(
            f"azure:{location}", lambda: self._clients.compute.resource_skus.list(filter=only)
        ):
            if sku.resource_type != "virtualMachines":
                continue
            banned = _banned_zones(sku.restrictions or ())
            if banned is None:
                continue
            zones = [zone for place in sku.location_info or () for zone in place.zones or ()]
            found[sku.name] = tuple(sorted(set(zones) - banned))
        return found


def _banned_zones(restrictions: Sequence[Any]) -> set[str] | None:
    """Return the zones in which a size may not be used; None if it may not be used in the region."""
    banned = set[str]()
    for one in restrictions:
        if one.type == "Location":
            return None
        banned |= set((one.restriction_info and one.restriction_info.zones) or ())
    return banned


def _left(usages: Mapping[str, _Usage], size: str, vcpus: int, spot: bool) -> int | None:
    names = (SPOT_QUOTA,) if spot else (REGION_QUOTA, family_of(size))
    limits = [usages[name] for name in names if name and name in usages]
    return min((max(0, one.limit - one.used) // vcpus for one in limits), default=None)


def _vcpus(size: str) -> int:
    found = re.search(r"\d+", size)
    return int(found.group()) if found else 1
