"""A simulation of the market: the same tenants under a fixed price, a price by utilisation, and an auction.

A tenant takes what is cheapest to it, counting money and the value of its time: the service, or machines of its own.
A transfer that finds the hour's capacity sold takes its best alternative. All tariffs see the same transfers.

Not simulated: failures, waiting for a cheaper hour, tenants who bid other than their value, and links that get slower
under load. Outbound traffic costs the same in every case.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Literal

from tradewind.market.auction import Bid, Lot, clear
from tradewind.market.charge import Charge, auction_charges
from tradewind.market.demand import (
    ALTERNATIVES,
    SLICE_GB,
    AlternativeName,
    MarketScene,
    WantedTransfer,
    wanted_transfers,
)
from tradewind.market.energy import NODE_WH_PER_HOUR
from tradewind.market.margins import END_NODES
from tradewind.market.money import MICROS_PER_USD, micros_up
from tradewind.market.tariff import utilisation_price
from tradewind.model.records import dataclass, field

__all__ = ["TARIFFS", "MarketOutcome", "Simulation", "TariffName", "simulate"]

TariffName = Literal["fixed", "utilisation", "auction"]
Choice = Literal["service", "direct", "e2e", "umr"]
TARIFFS: tuple[TariffName, ...] = ("fixed", "utilisation", "auction")
#: The fixed price lies in the middle of the margin.
FIXED_SHARE = Fraction(1, 2)
#: Weight of the last hour in the utilisation that sets the price. With 1 the price swings between its bounds: a high
#: price drives tenants away, and the next price is low.
SMOOTHING = Fraction(1, 8)
#: Smallest step of that utilisation, so that its fraction stays short.
UTILISATION_STEPS = 10_000
SECONDS_PER_HOUR = 3600
SRC, DST = "site:a", "site:b"


@dataclass
class MarketOutcome:
    """The result of one tariff, or of a market without the service."""

    name: str
    slices: dict[Choice, int] = field(default_factory=lambda: {"service": 0, "direct": 0, "e2e": 0, "umr": 0})
    """Volume by choice."""
    turned_away: int = 0
    """Slices that wanted the service at its price, and found no capacity."""
    charges: list[Charge] = field(default_factory=list)
    """The sum that tenants owe to the service."""
    machine_hours: Fraction = Fraction(0)
    """Time of all machines that tenants rent."""
    delay_usd: Fraction = Fraction(0)
    """Value of the time that tenants waited for their transfers."""
    service_node_hours: int = 0

    @property
    def revenue_usd_micros(self) -> int:
        """Sum of the charges."""
        return sum(charge.usd_micros for charge in self.charges)

    @property
    def energy_wh(self) -> Fraction:
        """Energy of tenants' machines, and of the service's, which run all the time."""
        return (self.machine_hours + self.service_node_hours) * NODE_WH_PER_HOUR


@dataclass(frozen=True, slots=True)
class Simulation:
    """The result: one outcome for each tariff, and for each way to do without the service."""

    scene: MarketScene
    transfers: int
    tariffs: tuple[MarketOutcome, ...]
    without: tuple[MarketOutcome, ...]
    """All tenants direct, end to end, by multi-route; and `own choice`, each by what is cheapest to it."""

    @property
    def capacity_slices(self) -> int:
        """The capacity of the service in all hours."""
        return self.scene.slices_per_hour * self.scene.hours

    def utilisation(self, outcome: MarketOutcome) -> float:
        """Return the part of the capacity that was used."""
        return outcome.slices["service"] / self.capacity_slices if self.capacity_slices else 0.0

    def money_usd(self, outcome: MarketOutcome) -> Fraction:
        """Return what tenants pay: their machines, the service and outbound traffic."""
        traffic = sum(outcome.slices.values()) * SLICE_GB * self.scene.outbound_usd_per_gb
        machines = outcome.machine_hours * self.scene.machine_usd_per_hour
        return machines + traffic + Fraction(outcome.revenue_usd_micros, MICROS_PER_USD)

    def profit_usd(self, outcome: MarketOutcome) -> Fraction:
        """Return the service's revenue without the cost of its machines."""
        cost = outcome.service_node_hours * self.scene.machine_usd_per_hour
        return Fraction(outcome.revenue_usd_micros, MICROS_PER_USD) - cost


def simulate(scene: MarketScene) -> Simulation:
    """Return what each tariff leads to. The same scene gives the same result. Raises EmptyMargin."""
    scene.margin_per_slice.require()
    hours = wanted_transfers(scene)
    tenants = _Tenants(scene)
    run: dict[TariffName, Callable[[], MarketOutcome]] = {
        "fixed": lambda: _posted("fixed", scene, hours, tenants),
        "utilisation": lambda: _posted("utilisation", scene, hours, tenants),
        "auction": lambda: _auctioned(scene, hours, tenants),
    }
    without = [_without(name, hours, tenants, _always(name)) for name in ALTERNATIVES]
    without.append(_without("own choice", hours, tenants, lambda wanted: tenants.best_alternative(wanted)[0]))
    return Simulation(scene, sum(map(len, hours)), tuple(run[name]() for name in TARIFFS), tuple(without))


class _Tenants:
    """The costs of each choice, in micro-dollars for one slice: money for machines, and the value of time."""

    def __init__(self, scene: MarketScene) -> None:
        price_micros = scene.machine_usd_per_hour * MICROS_PER_USD
        self._hours: dict[Choice, Fraction] = {name: scene.hours_of(name) for name in ALTERNATIVES}
        self._machines: dict[Choice, int] = {name: scene.machines_of(name) for name in ALTERNATIVES}
        self._hours["service"], self._machines["service"] = scene.service_hours_per_slice, END_NODES
        self._money = {name: self._hours[name] * self._machines[name] * price_micros for name in self._hours}

    def cost_micros(self, choice: Choice, wanted: WantedTransfer) -> Fraction:
        """Return the cost to the tenant, without the service's price."""
        return self._money[choice] + self._hours[choice] * wanted.usd_micros_per_hour

    def best_alternative(self, wanted: WantedTransfer) -> tuple[AlternativeName, Fraction]:
        """Return what is cheapest to the tenant without the service, and its cost; the first among equals."""
        costs = {name: self.cost_micros(name, wanted) for name in ALTERNATIVES}
        name = min(costs, key=lambda each: costs[each])
        return name, costs[name]

    def worth_micros(self, wanted: WantedTransfer) -> Fraction:
        """Return the price at which the service costs the tenant as much as its best alternative."""
        return self.best_alternative(wanted)[1] - self.cost_micros("service", wanted)

    def carry(self, outcome: MarketOutcome, choice: Choice, wanted: WantedTransfer, slices: int) -> None:
        """Count slices of a transfer that go this way."""
        hours = self._hours[choice] * slices
        outcome.slices[choice] += slices
        outcome.machine_hours += hours * self._machines[choice]
        outcome.delay_usd += hours * wanted.usd_micros_per_hour / MICROS_PER_USD


def _posted(
    name: Literal["fixed", "utilisation"],
    scene: MarketScene,
    hours: Sequence[Sequence[WantedTransfer]],
    tenants: _Tenants,
) -> MarketOutcome:
    """Sell at a price that is known before the hour: fixed, or by the smoothed utilisation of the hours before."""
    outcome = MarketOutcome(name, service_node_hours=scene.service_nodes * scene.hours)
    bounds, capacity, smoothed = scene.margin_per_slice, scene.slices_per_hour, Fraction(0)
    for hour, transfers in enumerate(hours):
        usd = bounds.at(FIXED_SHARE) if name == "fixed" else utilisation_price(bounds, smoothed)
        price, left, demand = micros_up(usd), capacity, 0
        for wanted in transfers:
            slices = 0
            if tenants.worth_micros(wanted) >= price:
                demand += wanted.slices
                slices = min(left, wanted.slices)
                outcome.turned_away += wanted.slices - slices
            if slices:
                left -= slices
                text = f"transfer: {slices * SLICE_GB} GB {SRC} → {DST}"
                at_s = float(hour * SECONDS_PER_HOUR)
                outcome.charges.append(Charge(wanted.tenant, at_s, wanted.id, text, slices * price))
            _divide(outcome, tenants, wanted, slices)
        smoothed += SMOOTHING * (Fraction(demand, capacity or 1) - smoothed)
        smoothed = smoothed.limit_denominator(UTILISATION_STEPS)
    return outcome


def _auctioned(scene: MarketScene, hours: Sequence[Sequence[WantedTransfer]], tenants: _Tenants) -> MarketOutcome:
    """Sell each hour's capacity to the highest bids. Each tenant bids what a slice is worth to it."""
    outcome = MarketOutcome("auction", service_node_hours=scene.service_nodes * scene.hours)
    reserve = micros_up(scene.margin_per_slice.lower_usd)
    for hour, transfers in enumerate(hours):
        worth = {wanted.id: math.floor(tenants.worth_micros(wanted)) for wanted in transfers}
        bids = [
            Bid(wanted.id, wanted.tenant, worth[wanted.id], number, wanted.slices)
            for number, wanted in enumerate(transfers)
            if worth[wanted.id] >= reserve
        ]
        done = clear(Lot(SRC, DST, hour, scene.slices_per_hour, reserve), bids)
        outcome.charges += auction_charges(done)
        won: defaultdict[str, int] = defaultdict(int, {award.bid: award.slices for award in done.awards})
        for wanted in transfers:
            if worth[wanted.id] > done.usd_micros:
                outcome.turned_away += wanted.slices - won[wanted.id]
            _divide(outcome, tenants, wanted, won[wanted.id])
    return outcome


def _divide(outcome: MarketOutcome, tenants: _Tenants, wanted: WantedTransfer, slices: int) -> None:
    """Count the slices that the service carries; the rest takes the tenant's best alternative."""
    tenants.carry(outcome, "service", wanted, slices)
    if slices < wanted.slices:
        tenants.carry(outcome, tenants.best_alternative(wanted)[0], wanted, wanted.slices - slices)


def _always(name: AlternativeName) -> Callable[[WantedTransfer], AlternativeName]:
    return lambda _wanted: name


def _without(
    name: str,
    hours: Sequence[Sequence[WantedTransfer]],
    tenants: _Tenants,
    choose: Callable[[WantedTransfer], AlternativeName],
) -> MarketOutcome:
    outcome = MarketOutcome(name)
    for transfers in hours:
        for wanted in transfers:
            tenants.carry(outcome, choose(wanted), wanted, wanted.slices)
    return outcome
