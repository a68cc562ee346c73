"""The simulation is deterministic, conserves volume and money, and behaves as its margins say."""

from fractions import Fraction

import pytest

from tradewind.errors import EmptyMargin, UsageError
from tradewind.market.demand import MarketScene, wanted_transfers
from tradewind.market.invoice import invoices
from tradewind.market.money import MICROS_PER_CENT
from tradewind.market.simulate import MarketOutcome, Simulation, simulate


def simulated(seed: int, load: float = 0.8, extra_nodes: int = 5) -> Simulation:
    return simulate(MarketScene(seed, hours=48, tenants=8, load=load, extra_nodes=extra_nodes))


def by_name(simulation: Simulation) -> dict[str, MarketOutcome]:
    return {outcome.name: outcome for outcome in (*simulation.tariffs, *simulation.without)}


def test_the_same_seed_gives_the_same_result() -> None:
    assert simulated(3) == simulated(3)
    assert simulated(3) != simulated(4)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("load", [0.2, 1.0, 5.0])
def test_every_outcome_carries_the_same_volume_within_the_capacity(seed: int, load: float) -> None:
    done = simulated(seed, load)
    wanted = sum(each.slices for hour in wanted_transfers(done.scene) for each in hour)
    for outcome in (*done.tariffs, *done.without):
        assert sum(outcome.slices.values()) == wanted
        assert outcome.slices["service"] + outcome.turned_away <= wanted
        assert 0 <= done.utilisation(outcome) <= 1
    for outcome in done.without:
        assert (outcome.charges, outcome.turned_away) == ([], 0)


@pytest.mark.parametrize("seed", range(3))
def test_no_tenant_is_worse_off_with_the_service(seed: int) -> None:
    done = simulated(seed, 1.0)
    named = by_name(done)
    costs = {name: done.money_usd(outcome) + outcome.delay_usd for name, outcome in named.items()}
    for tariff in ("fixed", "utilisation", "auction"):
        assert costs[tariff] <= costs["own choice"]
    assert costs["own choice"] <= min(costs["direct"], costs["e2e"], costs["umr"])


@pytest.mark.parametrize("seed", range(3))
def test_revenue_stays_within_the_margin_and_invoices_add_up_to_it(seed: int) -> None:
    done = simulated(seed, 1.5)
    bounds = done.scene.margin_per_slice
    for outcome in done.tariffs:
        mean_usd = Fraction(outcome.revenue_usd_micros, 10**6 * outcome.slices["service"])
        assert bounds.lower_usd <= mean_usd
        if outcome.name != "auction":  # The upper bound does not bind bids.
            assert mean_usd <= bounds.upper_usd + Fraction(1, 10**6)
        made = invoices(outcome.charges)
        cents = Fraction(outcome.revenue_usd_micros, MICROS_PER_CENT)
        assert abs(sum(invoice.total_cents for invoice in made) - cents) <= Fraction(len(made), 2)


def test_without_demand_nothing_is_sold() -> None:
    done = simulated(1, 0.0)
    assert done.transfers == 0
    assert all(outcome.revenue_usd_micros == 0 for outcome in done.tariffs)
    assert all(done.profit_usd(outcome) < 0 for outcome in done.tariffs), "idle machines still cost"


def test_at_the_single_point_of_a_margin_fixed_and_utilisation_are_equal() -> None:
    named = by_name(simulated(5, extra_nodes=4))
    assert named["fixed"].charges == named["utilisation"].charges


def test_an_empty_margin_is_not_simulated() -> None:
    with pytest.raises(EmptyMargin):
        simulated(1, extra_nodes=3)


@pytest.mark.parametrize(
    "bad",
    [
        {"hours": 0},
        {"tenants": 1001},
        {"hours": 8000, "tenants": 900},
        {"load": -1.0},
        {"tenants": 1000, "hours": 200, "load": 9.0},
    ],
)
def test_a_scene_outside_its_limits_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        MarketScene(**bad)  # type: ignore[arg-type]
