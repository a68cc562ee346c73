"""The market of the transfer service: its margins, and a simulation."""

from __future__ import annotations

from tradewind.errors import UsageError
from tradewind.market.demand import MarketScene
from tradewind.market.margins import PAPER_RATIOS
from tradewind.market.money import exact
from tradewind.market.simulate import simulate
from tradewind.model.records import replace
from tradewind.render.market import MarginReport, MarketReport
from tradewind.render.market_spread import MarketSpreadReport

__all__ = ["market_margins", "market_scene", "simulate_market", "simulate_seeds"]

#: Most extra machines of a multi-route transfer, and most rows of the table of margins.
EXTRA_NODES_MAX = 100
#: Most seeds of one report.
SEEDS_MAX = 100
MACHINE_USD_PER_HOUR = 0.10
OUTBOUND_USD_PER_GB = 0.09


def market_scene(
    *,
    seed: int = 1,
    hours: int = 168,
    tenants: int = 20,
    load: float = 0.8,
    extra_nodes: int = 5,
    machine_usd_per_hour: float = MACHINE_USD_PER_HOUR,
    outbound_usd_per_gb: float = OUTBOUND_USD_PER_GB,
) -> MarketScene:
    """Return a market with the paper's ratios of transfer times. Raises UsageError."""
    if not 0 <= extra_nodes <= EXTRA_NODES_MAX:
        raise UsageError(f"the number of extra machines is from 0 to {EXTRA_NODES_MAX}, not {extra_nodes}")
    machine, outbound = exact(machine_usd_per_hour), exact(outbound_usd_per_gb)
    return MarketScene(seed, hours, tenants, load, extra_nodes, machine, outbound, ratios=PAPER_RATIOS)


def market_margins(scene: MarketScene) -> MarginReport:
    """Return the range of the service's price for up to the extra machines of a market."""
    return MarginReport(scene)


def simulate_market(scene: MarketScene) -> MarketReport:
    """Return what a fixed price, a price by utilisation and an auction lead to. The same market, the same result.

    Raises EmptyMargin if no price is possible.
    """
    return MarketReport(simulate(scene))


def simulate_seeds(scene: MarketScene, seeds: int) -> MarketSpreadReport:
    """Return the mean and the standard deviation of so many simulations, with seeds from that of the market on.

    Raises UsageError, and EmptyMargin if no price is possible.
    """
    if not 1 <= seeds <= SEEDS_MAX:
        raise UsageError(f"the number of seeds is from 1 to {SEEDS_MAX}, not {seeds}")
    return MarketSpreadReport([simulate(replace(scene, seed=scene.seed + number)) for number in range(seeds)])
