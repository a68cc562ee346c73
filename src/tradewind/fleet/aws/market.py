"""Offers, quotas and other facts of the regions of one account."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tradewind.fleet.aws.api import AwsApi
from tradewind.fleet.catalog_offers import CatalogOffers, offer_in
from tradewind.fleet.provider import CallRefused, Offer, Quota, Refusal
from tradewind.model.aws import AwsSettings
from tradewind.model.machine import MachineOffer

__all__ = ["IMAGE_PARAMETER", "Ec2Market", "instances", "region_name"]

#: Time for which facts about a region are used again: its zones, quotas and image.
FACTS_S = 600.0
#: Public parameter with the newest image, by processor (AL2023 User Guide).
IMAGE_PARAMETER = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{processor}"
#: Quotas of vCPUs of standard instances (Service Quotas): on demand, spot.
VCPU_QUOTA, SPOT_VCPU_QUOTA = "L-1216C47A", "L-34B43A08"
#: Types that count towards these quotas: of the families A, C, D, H, I, M, R, T and Z. Others have quotas of their own.
STANDARD = re.compile(r"(?:[acdhimrtz]|im|is)\d")


class Ec2Market:
    """Machine offers, quotas, images and subnets in the regions of one account."""

    def __init__(self, settings: AwsSettings, api: AwsApi, prices: CatalogOffers) -> None:
        self._settings, self._api, self._prices = settings, api, prices
        self._facts: dict[tuple[str, str], tuple[float, Any]] = {}

    def offers(self, region: str) -> list[Offer]:
        """Return the machine types of the catalog in a region, with the zones that the account may use there."""
        zones = self._zones(region_name(region))
        found = [offer_in(region, offer, "running", zones) for offer in self._prices.offers(region)]
        return sorted(found, key=lambda offer: offer.usd_per_s)

    def _zones(self, region: str) -> tuple[str, ...]:
        def read() -> tuple[str, ...]:
            found = self._api.ec2(region, "describe_availability_zones").get("AvailabilityZones", ())
            # Local and Wavelength Zones have other networks and prices.
            usual = (zone for zone in found if zone.get("ZoneType", "availability-zone") == "availability-zone")
            return tuple(sorted(zone["ZoneName"] for zone in usual if zone.get("State", "available") == "available"))

        zones: tuple[str, ...] = self.fact(region, "zones", read)
        return zones

    def quota(self, region: str) -> Quota | None:
        """Return how many machines of the cheapest type the quota of a region allows; None if it cannot be read."""
        name, default = region_name(region), self.default
        try:
            answer = self._api.call(
                "service-quotas", name, "get_service_quota", ServiceCode="ec2", QuotaCode=self.quota_code
            )
        except CallRefused as error:
            if error.refusal.kind in ("permission", "bad request"):
                return None
            raise
        running = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
        used = sum(
            _vcpus(instance, self._prices.packaged)
            for instance in instances(self._api, name, running)
            if (instance.get("InstanceLifecycle") == "spot") == default.spot
            and STANDARD.match(str(instance.get("InstanceType")))
        )
        vcpus = default.machine.vcpus
        left = max(0, int(answer["Quota"]["Value"]) - used) // vcpus
        count = -(-used // vcpus)
        return Quota(count + left, count)

    @property
    def default(self) -> MachineOffer:
        """The offer that an order without a type gets."""
        offers = [offer for offer in self._prices.packaged if offer.spot == self._settings.spot]
        return min(offers, key=lambda offer: offer.usd_per_hour)

    @property
    def quota_code(self) -> str:
        """Code of the quota of the default offer."""
        return SPOT_VCPU_QUOTA if self.default.spot else VCPU_QUOTA

    def image(self, region: str) -> str:
        """Return the id of the newest public image in a region."""

        def read() -> str:
            name = IMAGE_PARAMETER.format(processor="x86_64")
            answer = self._api.call("ssm", region, "get_parameter", Name=name)
            return str(answer["Parameter"]["Value"])

        image: str = self.fact(region, "image", read)
        return image

    def subnet(self, region: str, zone: str | None) -> str | None:
        """Return a subnet of the settings, in a zone if one is ordered; None if the settings have none."""
        subnets = self._settings.network(region).subnets
        if not subnets:
            return None

        def read() -> dict[str, str]:
            found = self._api.ec2(region, "describe_subnets", SubnetIds=list(subnets)).get("Subnets", ())
            return {subnet["AvailabilityZone"]: subnet["SubnetId"] for subnet in found}

        if zone is None:
            return subnets[0]
        by_zone: dict[str, str] = self.fact(region, "subnets", read)
        if zone not in by_zone:
            raise CallRefused(Refusal("capacity", f"[aws.networks.{region}] has no subnet in {zone}"))
        return by_zone[zone]

    def fact(self, region: str, what: str, read: Any) -> Any:
        """Return a fact about a region that is read again after FACTS_S."""
        found_s, fact = self._facts.get((region, what), (-FACTS_S, None))
        if time.monotonic() - found_s >= FACTS_S:
            fact = read()
            self._facts[region, what] = time.monotonic(), fact
        return fact


def region_name(region: str) -> str:
    """Return Amazon's name of a region: `us-east-1` for `aws:us-east-1`."""
    return region.partition(":")[2]


def instances(api: AwsApi, region: str, filters: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the instances of a region, by Amazon's name of it, that match filters."""
    for reservation in api.pages(region, "describe_instances", "Reservations", Filters=list(filters)):
        yield from reservation.get("Instances", ())


def _vcpus(instance: Mapping[str, Any], known: Sequence[MachineOffer]) -> int:
    """Return the vCPUs of an instance; those of its type in the catalog if EC2 does not state them."""
    options = instance.get("CpuOptions") or {}
    if "CoreCount" in options:
        return int(options["CoreCount"]) * int(options.get("ThreadsPerCore", 1))
    vcpus = {offer.machine.name: offer.machine.vcpus for offer in known}
    return vcpus.get(str(instance.get("InstanceType")), 1)
