"""A market to simulate: prices, machines of the service, and the transfers that tenants want, from a seed.

A transfer has a size and a value of time: what each hour of waiting costs its tenant. Sizes are those of the paper's
Figs. 10 and 11: 30, 60, 90 or 120 GB, or 1 to 4 slices. The value of time is lognormal, with the price of a machine for
an hour as its median. Demand follows the time of day. Rates and the time of a direct transfer are assumptions, not
measurements.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Literal

from tradewind.errors import UsageError
from tradewind.market.margins import END_NODES, PAPER_RATIOS, Margin, TimeRatios, margin
from tradewind.market.money import micros_of
from tradewind.model.records import dataclass

__all__ = ["ALTERNATIVES", "SLICE_GB", "AlternativeName", "MarketScene", "WantedTransfer", "wanted_transfers"]

AlternativeName = Literal["direct", "e2e", "umr"]
#: direct: one machine that reads the one store and writes the other. e2e: sender and receiver. umr: multi-route.
ALTERNATIVES: tuple[AlternativeName, ...] = ("direct", "e2e", "umr")
#: Volume of one slice, the unit of sizes and auctions.
SLICE_GB = 30
SLICES_PER_TRANSFER_MAX = 4
SLICES_PER_TRANSFER_MEAN = (1 + SLICES_PER_TRANSFER_MAX) / 2
#: Time of a direct transfer over that of end to end, assumed: the paper says only that stores are slower.
DIRECT_PER_E2E = Fraction(3, 2)
#: Most hours and tenants, and most of their product.
HOURS_MAX = 8_784
TENANTS_MAX = 1_000
TENANT_HOURS_MAX = 200_000
#: Most transfers that a simulation expects: about half a minute of work.
TRANSFERS_MAX = 200_000
LOAD_MAX = 10.0
#: Tenants for each machine of the service: 20 tenants share 5, as many as in the paper's deployments.
TENANTS_PER_NODE = 4
#: Standard deviation of the logarithm of the value of time.
VALUE_SIGMA = 1.0
#: Demand at its peak is this much above the mean, and as much below at night.
DAY_SWING = 0.8
PEAK_HOUR = 15
HOURS_PER_DAY = 24


@dataclass(frozen=True, slots=True)
class MarketScene:
    """The inputs of a simulation. Raises UsageError for numbers outside their limits."""

    seed: int = 1
    hours: int = 168
    tenants: int = 20
    load: float = 0.8
    """Mean volume that tenants want, by whatever means, over the service's capacity."""
    extra_nodes: int = 5
    """N: machines of a multi-route transfer besides sender and receiver."""
    machine_usd_per_hour: Fraction = Fraction(1, 10)
    outbound_usd_per_gb: Fraction = Fraction(9, 100)
    umr_gb_per_hour: Fraction = Fraction(360)
    """Rate of a multi-route transfer; the others follow from the ratios."""
    ratios: TimeRatios = PAPER_RATIOS

    def __post_init__(self) -> None:
        if not (1 <= self.hours <= HOURS_MAX and 1 <= self.tenants <= TENANTS_MAX):
            raise UsageError(f"a simulation has 1 to {HOURS_MAX:,} hours, and 1 to {TENANTS_MAX:,} tenants")
        if self.hours * self.tenants > TENANT_HOURS_MAX:
            raise UsageError(
                f"hours × tenants is {self.hours * self.tenants:,}, more than {TENANT_HOURS_MAX:,}",
                hint="simulate fewer hours or fewer tenants",
            )
        if not 0 <= self.load <= LOAD_MAX:
            raise UsageError(f"the load is from 0 to {LOAD_MAX:g}, not {self.load:g}")
        if self.machine_usd_per_hour <= 0 or self.outbound_usd_per_gb < 0 or self.umr_gb_per_hour <= 0:
            raise UsageError("the price of a machine and the rate must be above zero, that of traffic not negative")
        if self.transfers_per_hour * self.hours > TRANSFERS_MAX:
            raise UsageError(
                f"a simulation of about {self.transfers_per_hour * self.hours:,.0f} transfers is too large",
                hint=f"it may have {TRANSFERS_MAX:,}: simulate fewer hours, fewer tenants or a lower load",
            )

    @property
    def service_nodes(self) -> int:
        """M: machines of the service; they run all the time."""
        return -(-self.tenants // TENANTS_PER_NODE)

    @property
    def umr_hours_per_slice(self) -> Fraction:
        """Time of a multi-route transfer of one slice."""
        return SLICE_GB / self.umr_gb_per_hour

    @property
    def service_hours_per_slice(self) -> Fraction:
        """Time of the service for one slice."""
        return self.umr_hours_per_slice * self.ratios.service_per_umr

    @property
    def slices_per_hour(self) -> int:
        """Capacity: each machine of the service carries one transfer at a time."""
        return math.floor(self.service_nodes / self.service_hours_per_slice)

    @property
    def transfers_per_hour(self) -> float:
        """Mean number of transfers that all tenants want in an hour."""
        return self.load * self.slices_per_hour / SLICES_PER_TRANSFER_MEAN

    @property
    def margin_per_slice(self) -> Margin:
        """Range of the service's price for one slice, without outbound traffic. It may be empty."""
        per_gb = margin(self.ratios, self.extra_nodes, self.machine_usd_per_hour).per_gb(
            self.service_hours_per_slice / SLICE_GB
        )
        return Margin(per_gb.lower_usd * SLICE_GB, per_gb.upper_usd * SLICE_GB, "slice")

    def hours_of(self, name: AlternativeName) -> Fraction:
        """Return the time for one slice."""
        e2e = self.umr_hours_per_slice * self.ratios.e2e_per_umr
        return {"direct": e2e * DIRECT_PER_E2E, "e2e": e2e, "umr": self.umr_hours_per_slice}[name]

    def machines_of(self, name: AlternativeName) -> int:
        """Return the number of machines that a tenant rents."""
        return {"direct": 1, "e2e": END_NODES, "umr": END_NODES + self.extra_nodes}[name]


@dataclass(frozen=True, slots=True)
class WantedTransfer:
    """A transfer that a tenant wants in an hour."""

    id: str
    tenant: str
    hour: int
    slices: int
    usd_micros_per_hour: int
    """Value of time: what an hour of waiting costs the tenant."""


def wanted_transfers(scene: MarketScene) -> tuple[tuple[WantedTransfer, ...], ...]:
    """Return the transfers of each hour in order of arrival. The same scene gives the same transfers."""
    rng = random.Random(scene.seed)
    per_tenant = scene.transfers_per_hour / scene.tenants
    hours = []
    for hour in range(scene.hours):
        phase = 2 * math.pi * (hour - PEAK_HOUR) / HOURS_PER_DAY
        expected = per_tenant * (1 + DAY_SWING * math.cos(phase))
        found = [
            _transfer(scene, rng, f"tenant-{tenant + 1}", hour, number)
            for tenant in range(scene.tenants)
            for number in range(_poisson(rng, expected))
        ]
        rng.shuffle(found)
        hours.append(tuple(found))
    return tuple(hours)


def _transfer(scene: MarketScene, rng: random.Random, tenant: str, hour: int, number: int) -> WantedTransfer:
    value_usd = float(scene.machine_usd_per_hour) * rng.lognormvariate(0.0, VALUE_SIGMA)
    slices = rng.randint(1, SLICES_PER_TRANSFER_MAX)
    return WantedTransfer(f"{tenant}/{hour}/{number}", tenant, hour, slices, micros_of(value_usd))


def _poisson(rng: random.Random, expected: float) -> int:
    """Return a random count with this mean, by Knuth's method: the steps are about as many as the mean."""
    count, left = 0, rng.random()
    while left > math.exp(-expected):
        count += 1
        left *= rng.random()
    return count
