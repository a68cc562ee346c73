"""The market of the transfer service: its margins, and a simulation."""

from __future__ import annotations

from tradewind.errors import UsageError
from tradewind.market.demand import MarketScene
from tradewind.market.margins import PAPER_RATIOS
from tradewind.market.money import exact
from tradewind.market.simulate import Simulation, simulate
from tradewind.render.market import MarginReport, MarketReport
from tradewind.render.market_spread import MarketSpreadReport

__all__ = ["market_margins", "simulate_market", "simulate_seeds"]

#: Most extra machines of a multi-route transfer, and most rows of the table of margins.
EXTRA_NODES_MAX = 100
#: Most seeds of one report.
SEEDS_MAX = 100
MACHINE_USD_PER_HOUR = 0.10
OUTBOUND_USD_PER_GB = 0.09


def market_margins(
    *,
    extra_nodes: int = 5,
    machine_usd_per_hour: float = MACHINE_USD_PER_HOUR,
    outbound_usd_per_gb: float = OUTBOUND_USD_PER_GB,
) -> MarginReport:
    """Return the range of the service's price for up to `extra_nodes`, with the paper's ratios of transfer times.

    Raises UsageError.
    """
    return MarginReport(_scene(extra_nodes, machine_usd_per_hour, outbound_usd_per_gb))


def simulate_market(
    seed: int,
    *,
    hours: int = 168,
    tenants: int = 20,
    load: float = 0.8,
    extra_nodes: int = 5,
    machine_usd_per_hour: float = MACHINE_USD_PER_HOUR,
    outbound_usd_per_gb: float = OUTBOUND_USD_PER_GB,
) -> MarketReport:
    """Return what a fixed price, a price by utilisation and an auction lead to. The same arguments, the same result.

    Raises UsageError, and EmptyMargin if no price is possible.
    """
    return MarketReport(_simulation(seed, hours, tenants, load, extra_nodes, machine_usd_per_hour, outbound_usd_per_gb))


def simulate_seeds(
    seed: int,
    seeds: int,
    *,
    hours: int = 168,
    tenants: int = 20,
    load: float = 0.8,
    extra_nodes: int = 5,
    machine_usd_per_hour: float = MACHINE_USD_PER_HOUR,
    outbound_usd_per_gb: float = OUTBOUND_USD_PER_GB,
) -> MarketSpreadReport:
    """Return the mean and the standard deviation of so many simulations, with seeds from `seed` on.

    Raises UsageError, and EmptyMargin if no price is possible.
    """
    if not 1 <= seeds <= SEEDS_MAX:
        raise UsageError(f"the number of seeds is from 1 to {SEEDS_MAX}, not {seeds}")
    size = hours, tenants, load, extra_nodes, machine_usd_per_hour, outbound_usd_per_gb
    return MarketSpreadReport([_simulation(seed + number, *size) for number in range(seeds)])


def _simulation(
    seed: int,
    hours: int,
    tenants: int,
    load: float,
    extra_nodes: int,
    machine_usd_per_hour: float,
    outbound_usd_per_gb: float,
) -> Simulation:
    prices = _scene(extra_nodes, machine_usd_per_hour, outbound_usd_per_gb)
    return simulate(
        MarketScene(
            seed,
            hours,
            tenants,
            load,
            extra_nodes,
            prices.machine_usd_per_hour,
            prices.outbound_usd_per_gb,
            ratios=PAPER_RATIOS,
        )
    )


def _scene(extra_nodes: int, machine_usd_per_hour: float, outbound_usd_per_gb: float) -> MarketScene:
    if not 0 <= extra_nodes <= EXTRA_NODES_MAX:
        raise UsageError(f"the number of extra machines is from 0 to {EXTRA_NODES_MAX}, not {extra_nodes}")
    return MarketScene(
        extra_nodes=extra_nodes,
        machine_usd_per_hour=exact(machine_usd_per_hour),
        outbound_usd_per_gb=exact(outbound_usd_per_gb),
    )
