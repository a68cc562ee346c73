"""The machine types of a cloud, at the present prices of the catalog: the user's, those of APIs, else packaged."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal

from tradewind.catalog.load import machine_price_files, offers_with_own_prices
from tradewind.catalog.packaged import read_packaged
from tradewind.errors import ConfigError
from tradewind.fleet.provider import Billing, Offer
from tradewind.model.machine import MachineOffer
from tradewind.model.region import Region

__all__ = ["CatalogOffers", "offer_in"]

Stamp = tuple[tuple[Path, int], ...]


def offer_in(
    region: str,
    offer: MachineOffer,
    begins: Literal["launched", "running"],
    zones: tuple[str, ...],
    left: int | None = None,
) -> Offer:
    """Return a machine type of the catalog as an offer in a region.

    `begins` is the event from which the cloud charges, `zones` are those in which it has the type, and `left` is the
    number of further machines that the account may start; None if that is unlimited or unknown.
    """
    machine = offer.machine
    return Offer(
        region,
        machine.name,
        offer.spot,
        offer.usd_per_s,
        str(offer.origin),
        Billing(least_s=machine.billed_s_min, begins=begins),
        machine.egress_gbps,
        machine.ingress_gbps,
        machine.boot_s,
        zones,
        left,
    )


class CatalogOffers:
    """The offers of one cloud. `folder` is the user's part of the catalog, which is read again when it changes."""

    def __init__(self, provider: str, folder: Path) -> None:
        self._provider, self._folder = provider, folder
        self._read: tuple[Stamp, Mapping[Region, tuple[MachineOffer, ...]]] = ((), {})

    @cached_property
    def packaged(self) -> tuple[MachineOffer, ...]:
        """The packaged offers, which are the same in all regions."""
        return read_packaged().offers.get(self._provider, ())

    def offers(self, region: str) -> tuple[MachineOffer, ...]:
        """Return the offers of a region at their present prices."""
        return self._own().get(Region.parse(region), self.packaged)

    def _own(self) -> Mapping[Region, tuple[MachineOffer, ...]]:
        """Return the offers of regions with prices of their own."""
        try:
            stamp = tuple((path, path.stat().st_mtime_ns) for path in machine_price_files(self._folder))
            if stamp != self._read[0]:
                self._read = stamp, offers_with_own_prices(self._folder, self._provider)
        except (ConfigError, OSError):
            pass  # Planning reports an unreadable file. Machines that run already keep the prices known before.
        return self._read[1]
