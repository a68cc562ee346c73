"""Machines for gateways, with their network caps and prices."""

from __future__ import annotations

from tradewind.model.origin import UNKNOWN_ORIGIN, Origin
from tradewind.model.records import dataclass
from tradewind.model.requests import RequestPrices
from tradewind.model.units import SECONDS_PER_HOUR

__all__ = ["MachineOffer", "MachineType", "StoreLimits"]


@dataclass(frozen=True, slots=True)
class MachineType:
    """A provider's machine type and its caps per machine."""

    provider: str
    name: str
    vcpus: int
    nic_gbps: float
    egress_gbps: float
    """Cap on traffic that leaves the provider's network."""
    ingress_gbps: float
    boot_s: float
    """Time from the order until a gateway answers [s]."""
    origin: Origin
    """Origin of vCPUs and network caps."""
    boot_origin: Origin = UNKNOWN_ORIGIN
    billed_s_min: float = 0.0
    """Minimum time that the provider bills for a machine."""
    billed_origin: Origin = UNKNOWN_ORIGIN


@dataclass(frozen=True)
class MachineOffer:
    """A machine type at a price, on demand or spot."""

    machine: MachineType
    usd_per_hour: float
    spot: bool
    origin: Origin

    @property
    def usd_per_s(self) -> float:
        """Price per second."""
        return self.usd_per_hour / SECONDS_PER_HOUR

    def usd(self, lasting_s: float) -> float:
        """Return the cost of a machine that lives this long: at least the provider's minimum."""
        return self.usd_per_s * max(lasting_s, self.machine.billed_s_min)

    @property
    def name(self) -> str:
        """``m5.8xlarge``, ``m5.8xlarge (spot)``."""
        return f"{self.machine.name} (spot)" if self.spot else self.machine.name


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Rates of a provider's object store for one machine, and prices of its requests."""

    provider: str
    read_gbps: float
    """Rate of one machine that reads in parallel; infinite without a known limit. The same holds for `write_gbps`."""
    write_gbps: float
    get_usd_per_1000: float
    put_usd_per_1000: float
    origin: Origin
    """Origin of the prices."""
    rate_origin: Origin | None = None
    """Origin of the rates; None if no rate is known."""
    list_usd_per_1000: float | None = None
    """None if a LIST costs as much as a PUT."""
    head_usd_per_1000: float | None = None
    """None if a HEAD costs as much as a GET."""

    @property
    def request_prices(self) -> RequestPrices:
        """Prices of all kinds of requests."""
        return RequestPrices(
            self.get_usd_per_1000,
            self.put_usd_per_1000,
            self.put_usd_per_1000 if self.list_usd_per_1000 is None else self.list_usd_per_1000,
            self.get_usd_per_1000 if self.head_usd_per_1000 is None else self.head_usd_per_1000,
        )
