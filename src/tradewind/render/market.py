"""Margins of the transfer service and simulations of its market, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from tradewind.market.demand import SLICE_GB, MarketScene
from tradewind.market.energy import energy_ratio
from tradewind.market.margins import Margin, e2e_usd, least_extra_nodes, margin, umr_usd
from tradewind.market.money import MICROS_PER_USD
from tradewind.market.simulate import MarketOutcome, Simulation
from tradewind.model.records import dataclass
from tradewind.model.units import format_count

__all__ = ["MarginReport", "MarketReport"]

#: Volumes of the paper's Figs. 10 and 11.
VOLUMES_GB = (30, 60, 90, 120)
#: The paper's cases of section V-C: their names, applications and service nodes.
ENERGY_CASES = (("as many service nodes as applications", 1, 1), ("twice as many", 1, 2), ("one application, 5", 1, 5))
WH_PER_KWH = 1000
PERCENT = 100


@dataclass(frozen=True, slots=True)
class MarginReport:
    """The range of the service's price by number of extra machines, the components of cost, and the energy."""

    scene: MarketScene

    def document(self) -> dict[str, Any]:
        """Return everything as a JSON object. Prices are in USD."""
        scene = self.scene
        return {
            "machine_usd_per_hour": float(scene.machine_usd_per_hour),
            "outbound_usd_per_gb": float(scene.outbound_usd_per_gb),
            "least_extra_nodes": least_extra_nodes(scene.ratios),
            "margins": [
                {
                    "extra_nodes": count,
                    "empty": per_hour.is_empty,
                    "usd_per_hour": _bounds(per_hour),
                    "usd_per_gb": _bounds(per_gb),
                    "unified_usd_per_gb": _bounds(per_gb.plus(scene.outbound_usd_per_gb)),
                }
                for count, per_hour, per_gb in self._margins()
            ],
            "costs": [
                {"volume_gb": volume, "e2e_usd": float(e2e), "umr_usd": float(umr), "outbound_usd": float(outbound)}
                for volume, e2e, umr, outbound in self._costs()
            ],
            "energy": [
                {"case": name, "applications": applications, "service_nodes": nodes, "ratio": float(ratio)}
                for name, applications, nodes, ratio in self._energy()
            ],
        }

    def lines(self) -> Iterator[str]:
        """Yield the report, line by line."""
        scene = self.scene
        yield (
            f"machine ${float(scene.machine_usd_per_hour):g}/h, outbound ${float(scene.outbound_usd_per_gb):g}/GB,"
            f" multi-route {float(scene.umr_gb_per_hour):g} GB/h (assumed)"
        )
        yield f"a price needs at least {least_extra_nodes(scene.ratios)} extra machines"
        yield ""
        yield f"{'N':>3}  {'service, $/h':>19}  {'service, $/GB':>21}  {'with outbound, $/GB':>21}"
        for count, per_hour, per_gb in self._margins():
            unified = per_gb.plus(scene.outbound_usd_per_gb)
            row = f"{count:>3}  {_range(per_hour, 4):>19}  {_range(per_gb, 6):>21}  {_range(unified, 6):>21}"
            yield f"{row}  empty" if per_hour.is_empty else row
        yield ""
        yield f"{'volume':>7}  {'machines, end to end to multi-route':>36}  {'outbound':>9}"
        for volume, e2e, umr, outbound in self._costs():
            yield f"{volume:>4} GB  {f'${float(e2e):.4f} to ${float(umr):.4f}':>36}  {f'${float(outbound):.2f}':>9}"
        yield ""
        yield f"energy of {scene.extra_nodes} extra machines for each application, over that of the service"
        for name, _, _, ratio in self._energy():
            yield f"  {float(ratio):.3f}  {name}"

    def _margins(self) -> Iterator[tuple[int, Margin, Margin]]:
        scene = self.scene
        hours_per_gb = scene.ratios.service_per_umr / scene.umr_gb_per_hour
        for count in range(scene.extra_nodes + 1):
            found = margin(scene.ratios, count, scene.machine_usd_per_hour)
            yield count, found, found.per_gb(hours_per_gb)

    def _costs(self) -> Iterator[tuple[int, Fraction, Fraction, Fraction]]:
        scene, price = self.scene, self.scene.machine_usd_per_hour
        for volume in VOLUMES_GB:
            hours = volume / scene.umr_gb_per_hour
            own = umr_usd(hours, scene.extra_nodes, price)
            yield volume, e2e_usd(hours, scene.ratios, price), own, volume * scene.outbound_usd_per_gb

    def _energy(self) -> Iterator[tuple[str, int, int, Fraction]]:
        for name, applications, nodes in ENERGY_CASES:
            ratio = energy_ratio(applications, self.scene.extra_nodes, nodes, self.scene.ratios.service_per_umr)
            yield name, applications, nodes, ratio


@dataclass(frozen=True, slots=True)
class MarketReport:
    """A simulation of the market."""

    simulation: Simulation

    def document(self) -> dict[str, Any]:
        """Return everything as a JSON object. Amounts are in USD, volumes in GB."""
        simulation, scene = self.simulation, self.simulation.scene
        return {
            "seed": scene.seed,
            "hours": scene.hours,
            "tenants": scene.tenants,
            "load": scene.load,
            "extra_nodes": scene.extra_nodes,
            "service_nodes": scene.service_nodes,
            "transfers": simulation.transfers,
            "capacity_slices": simulation.capacity_slices,
            "tariffs": [self._entry(outcome) for outcome in simulation.tariffs],
            "without_service": [self._entry(outcome) for outcome in simulation.without],
        }

    def _entry(self, outcome: MarketOutcome) -> dict[str, Any]:
        simulation = self.simulation
        return {
            "name": outcome.name,
            "revenue_usd": outcome.revenue_usd_micros / MICROS_PER_USD,
            "profit_usd": float(simulation.profit_usd(outcome)),
            "utilisation": simulation.utilisation(outcome),
            "slices": dict(outcome.slices),
            "turned_away_slices": outcome.turned_away,
            "tenants_usd": float(simulation.money_usd(outcome)),
            "delay_usd": float(outcome.delay_usd),
            "energy_kwh": float(outcome.energy_wh / WH_PER_KWH),
        }

    def lines(self) -> Iterator[str]:
        """Yield the report, line by line."""
        simulation, scene = self.simulation, self.simulation.scene
        volume_gb = sum(simulation.without[0].slices.values()) * SLICE_GB
        outbound = float(volume_gb * scene.outbound_usd_per_gb)
        yield (
            f"{format_count(simulation.transfers, 'transfer')} of {format_count(scene.tenants, 'tenant')} in"
            f" {scene.hours:,} h, {volume_gb:,} GB;"
            f" {format_count(scene.service_nodes, 'service machine')}; seed {scene.seed}"
        )
        yield f"outbound traffic costs ${outbound:,.2f} in every case, and is not in the table"
        yield ""
        yield (
            f"{'':<15}  {'revenue':>9}  {'profit':>9}  {'used':>5}  {'turned away':>11}  {'tenants pay':>11}"
            f"  {'their time':>10}  {'energy':>9}"
        )
        for outcome in simulation.tariffs:
            yield self._row(outcome, served=True)
        yield "without the service"
        for outcome in simulation.without:
            yield self._row(outcome, served=False)

    def _row(self, outcome: MarketOutcome, *, served: bool) -> str:
        simulation = self.simulation
        traffic = sum(outcome.slices.values()) * SLICE_GB * simulation.scene.outbound_usd_per_gb
        pay = f"${float(simulation.money_usd(outcome) - traffic):,.2f}"
        energy = f"{float(outcome.energy_wh / WH_PER_KWH):,.0f} kWh"
        sales = ["", "", "", ""]
        if served:
            sales = [
                f"${outcome.revenue_usd_micros / MICROS_PER_USD:,.2f}",
                _signed(simulation.profit_usd(outcome)),
                f"{simulation.utilisation(outcome) * PERCENT:.0f}%",
                f"{outcome.turned_away:,}",
            ]
        return (
            f"{outcome.name:<15}  {sales[0]:>9}  {sales[1]:>9}  {sales[2]:>5}  {sales[3]:>11}  {pay:>11}"
            f"  {f'${float(outcome.delay_usd):,.2f}':>10}  {energy:>9}"
        )


def _signed(usd: Fraction) -> str:
    return f"{'-' if usd < 0 else ''}${abs(float(usd)):,.2f}"


def _bounds(found: Margin) -> list[float]:
    return [float(found.lower_usd), float(found.upper_usd)]


def _range(found: Margin, decimals: int) -> str:
    return f"{float(found.lower_usd):.{decimals}f} to {float(found.upper_usd):.{decimals}f}"
