"""Simulations of the market with several seeds: means and standard deviations, in words and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tradewind.market.demand import SLICE_GB
from tradewind.market.money import MICROS_PER_USD
from tradewind.market.simulate import MarketOutcome, Simulation
from tradewind.model.records import dataclass
from tradewind.model.units import format_count

__all__ = ["MarketSpreadReport"]

OWN_CHOICE = "own choice"

Figure = Callable[[Simulation, MarketOutcome], float]


@dataclass(frozen=True, slots=True)
class MarketSpreadReport:
    """Simulations of one scene, each with a seed of its own."""

    simulations: Sequence[Simulation]

    def document(self) -> dict[str, Any]:
        """Return everything as a JSON object. Amounts are in USD; costs and energy are relative to `own choice`."""
        scene = self.simulations[0].scene
        return {
            "seeds": [simulation.scene.seed for simulation in self.simulations],
            "hours": scene.hours,
            "tenants": scene.tenants,
            "load": scene.load,
            "tariffs": [self._entry(name, SERVED | COMPARED) for name in self._names(served=True)],
            "without_service": [self._entry(name, COMPARED) for name in self._names(served=False)],
        }

    def lines(self) -> Iterator[str]:
        """Yield the report, line by line."""
        first, last = self.simulations[0].scene, self.simulations[-1].scene
        yield (
            f"seeds {first.seed} to {last.seed}, {format_count(first.tenants, 'tenant')}, {first.hours} h, "
            f"load {first.load:g}: mean ± standard deviation"
        )
        yield "cost is what tenants pay and the value of their time, without outbound traffic"
        yield ""
        yield (
            f"{'':<15}  {'revenue':>17}  {'profit':>17}  {'used':>8}  {'turned away':>13}"
            f"  {'cost/own choice':>15}  {'energy/own choice':>17}"
        )
        yield from (self._row(name, SERVED | COMPARED) for name in self._names(served=True))
        yield "without the service"
        yield from (self._row(name, COMPARED) for name in self._names(served=False))

    def _names(self, *, served: bool) -> list[str]:
        first = self.simulations[0]
        return [outcome.name for outcome in (first.tariffs if served else first.without)]

    def _figures(self, name: str, of: Figure) -> tuple[float, float]:
        found = [of(each, _outcome(each, name)) for each in self.simulations]
        return statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else 0.0

    def _entry(self, name: str, figures: dict[str, Figure]) -> dict[str, Any]:
        found = {title: self._figures(name, of) for title, of in figures.items()}
        return {"name": name, **{title: {"mean": one[0], "stdev": one[1]} for title, one in found.items()}}

    def _row(self, name: str, figures: dict[str, Figure]) -> str:
        cells = dict.fromkeys(SERVED | COMPARED, "")
        for title, of in figures.items():
            cells[title] = WORDS[title](*self._figures(name, of))
        widths = zip(cells.values(), (17, 17, 8, 13, 15, 17), strict=True)
        return "  ".join([f"{name:<15}", *(f"{cell:>{width}}" for cell, width in widths)])


def _usd(mean: float, stdev: float) -> str:
    return f"{'-' if mean < 0 else ''}${abs(mean):,.2f} ± {stdev:.2f}"


def _ratio(mean: float, stdev: float) -> str:
    return f"{mean:.3f} ± {stdev:.3f}"


#: How the mean and the standard deviation of each figure are written.
WORDS: dict[str, Callable[[float, float], str]] = {
    "revenue_usd": _usd,
    "profit_usd": _usd,
    "utilisation": lambda mean, stdev: f"{mean:.0%} ± {stdev * 100:.0f}",
    "turned_away_slices": lambda mean, stdev: f"{mean:,.0f} ± {stdev:.0f}",
    "cost_to_own_choice": _ratio,
    "energy_to_own_choice": _ratio,
}


def _outcome(simulation: Simulation, name: str) -> MarketOutcome:
    return next(each for each in (*simulation.tariffs, *simulation.without) if each.name == name)


def _cost_usd(simulation: Simulation, outcome: MarketOutcome) -> float:
    traffic = sum(outcome.slices.values()) * SLICE_GB * simulation.scene.outbound_usd_per_gb
    return float(simulation.money_usd(outcome) - traffic + outcome.delay_usd)


def _to_own_choice(of: Figure) -> Figure:
    """Return a figure relative to that of tenants without the service; 1 if that is zero."""

    def relative(simulation: Simulation, outcome: MarketOutcome) -> float:
        base = of(simulation, _outcome(simulation, OWN_CHOICE))
        return of(simulation, outcome) / base if base else 1.0

    return relative


#: Figures of the service, and those that every outcome has.
SERVED: dict[str, Figure] = {
    "revenue_usd": lambda _, outcome: outcome.revenue_usd_micros / MICROS_PER_USD,
    "profit_usd": lambda simulation, outcome: float(simulation.profit_usd(outcome)),
    "utilisation": lambda simulation, outcome: simulation.utilisation(outcome),
    "turned_away_slices": lambda _, outcome: float(outcome.turned_away),
}
COMPARED: dict[str, Figure] = {
    "cost_to_own_choice": _to_own_choice(_cost_usd),
    "energy_to_own_choice": _to_own_choice(lambda _, outcome: float(outcome.energy_wh)),
}
