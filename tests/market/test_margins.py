"""The bounds of the service's price and the energy, against the paper's figures and in general."""

import random
from fractions import Fraction

import pytest

from tradewind.errors import EmptyMargin, UsageError
from tradewind.market.energy import energy_ratio, energy_use, service_energy_wh, umr_energy_wh
from tradewind.market.margins import (
    PAPER_RATIOS,
    TimeRatios,
    e2e_usd,
    least_extra_nodes,
    margin,
    service_usd,
    umr_usd,
)

HALF = Fraction(1, 2)


def ratios_of(rng: random.Random) -> TimeRatios:
    return TimeRatios(
        Fraction(rng.randint(1, 80), rng.randint(1, 20)), Fraction(rng.randint(1, 80), rng.randint(1, 20))
    )


def test_the_ratios_of_the_paper() -> None:
    assert PAPER_RATIOS.service_per_umr == Fraction(6, 5)


def test_the_margins_of_the_paper_for_five_four_and_three_extra_nodes() -> None:
    five, four, three = (margin(PAPER_RATIOS, count, 1) for count in (5, 4, 3))
    assert (five.lower_usd, five.upper_usd) == (Fraction(3), Fraction(23, 6))
    assert four.lower_usd == four.upper_usd == 3
    assert not four.is_empty
    assert three.is_empty
    assert (three.lower_usd, three.upper_usd) == (Fraction(3), Fraction(13, 6)), "an empty margin keeps its bounds"


def test_the_upper_bound_with_the_sign_that_the_paper_prints_costs_more_than_own_machines() -> None:
    c = PAPER_RATIOS.service_per_umr
    printed = (2 + 5 + 2 * c) / c
    assert service_usd(Fraction(1), PAPER_RATIOS, Fraction(1), printed) > umr_usd(Fraction(1), 5, Fraction(1))


def test_an_empty_margin_has_no_price() -> None:
    with pytest.raises(EmptyMargin, match="no price is possible") as caught:
        margin(PAPER_RATIOS, 3, "0.1").at(HALF)
    assert caught.value.hint


@pytest.mark.parametrize("seed", range(40))
def test_at_the_bounds_the_service_costs_as_much_as_the_alternatives(seed: int) -> None:
    rng = random.Random(seed)
    ratios, extra, price = ratios_of(rng), rng.randint(0, 20), Fraction(rng.randint(1, 999), 1000)
    hours = Fraction(rng.randint(1, 100), 7)
    found = margin(ratios, extra, price)
    assert service_usd(hours, ratios, price, found.lower_usd) == e2e_usd(hours, ratios, price)
    assert service_usd(hours, ratios, price, found.upper_usd) == umr_usd(hours, extra, price)


@pytest.mark.parametrize("seed", range(40))
def test_a_margin_is_empty_exactly_below_the_least_number_of_extra_nodes(seed: int) -> None:
    rng = random.Random(seed)
    ratios = ratios_of(rng)
    extra = rng.randint(0, 12)
    assert margin(ratios, extra, 1).is_empty == (extra < 2 * (ratios.e2e_per_umr - 1))
    assert margin(ratios, extra, 1).is_empty == (extra < least_extra_nodes(ratios))


def test_per_gb_and_unified_price() -> None:
    per_gb = margin(PAPER_RATIOS, 5, "0.10").per_gb(Fraction(1, 300))
    assert (per_gb.unit, per_gb.lower_usd) == ("GB", Fraction(1, 1000))
    unified = per_gb.plus(Fraction(9, 100))
    assert unified.lower_usd == Fraction(91, 1000)
    assert unified.at(HALF) == per_gb.at(HALF) + Fraction(9, 100)
    with pytest.raises(UsageError):
        unified.per_gb(Fraction(1))


@pytest.mark.parametrize("bad", ["nan", "inf", "x", "-1"])
def test_a_price_that_is_no_amount_is_refused(bad: str) -> None:
    with pytest.raises(UsageError):
        margin(PAPER_RATIOS, 5, bad)


@pytest.mark.parametrize(
    ("applications", "service_nodes", "ratio"), [(1, 1, "1.944"), (7, 7, "1.944"), (3, 6, "1.458"), (1, 5, "0.833")]
)
def test_the_energy_ratios_of_the_paper(applications: int, service_nodes: int, ratio: str) -> None:
    assert f"{float(energy_ratio(applications, 5, service_nodes, PAPER_RATIOS.service_per_umr)):.3f}" == ratio


def test_energy_in_watt_hours() -> None:
    # One application with 7 nodes: 7/24 of a switch of 60 W, and 7 nodes of 200 W.
    assert umr_energy_wh(1, 5, Fraction(1)) == Fraction(7 * 60, 24) + 1400
    assert service_energy_wh(1, 1, Fraction(1), Fraction(6, 5)) == (Fraction(3 * 60, 24) + 600) * Fraction(6, 5)


@pytest.mark.parametrize("seed", range(20))
def test_the_energy_ratio_has_the_short_form_of_equation_4(seed: int) -> None:
    rng = random.Random(seed)
    a, n, m, c = rng.randint(1, 50), rng.randint(0, 9), rng.randint(0, 99), Fraction(rng.randint(1, 30), 10)
    assert energy_ratio(a, n, m, c) == Fraction(a * (2 + n)) / ((2 * a + m) * c)


def test_no_energy_ratio_without_applications() -> None:
    with pytest.raises(UsageError):
        energy_ratio(0, 5, 1, Fraction(1))


def test_the_energy_of_transfers_that_overlap() -> None:
    hours = [
        (Fraction(0), Fraction(2)),
        (Fraction(1), Fraction(3)),
        (Fraction(5), Fraction(6)),
        (Fraction(9), Fraction(9)),
    ]
    used = energy_use(hours, Fraction(10), service_nodes=3, extra_nodes=5, service_per_umr=Fraction(6, 5))
    assert (used.transfers, used.transfer_hours, used.busy_hours) == (3, Fraction(5), Fraction(4))
    node_wh = Fraction(405, 2)
    assert used.service_wh == (2 * 5 + 3 * 4) * node_wh
    assert used.idle_wh == 3 * 6 * node_wh
    assert used.users_wh == 7 * 5 * node_wh / Fraction(6, 5)


def test_the_energy_of_equal_transfers_at_once_is_that_of_the_paper() -> None:
    ratio = PAPER_RATIOS.service_per_umr
    spans = [(Fraction(0), ratio)] * 4
    used = energy_use(spans, ratio, service_nodes=4, extra_nodes=5, service_per_umr=ratio)
    assert used.ratio == energy_ratio(4, 5, 4, ratio)
    assert used.service_wh == service_energy_wh(4, 4, Fraction(1), ratio)
    assert energy_use([], ratio, service_nodes=4, extra_nodes=5, service_per_umr=ratio).ratio is None
