"""Price lists, and the price by utilisation."""

import random
from fractions import Fraction

import pytest

from tradewind.errors import EmptyMargin, MarketError, UsageError
from tradewind.market.margins import PAPER_RATIOS, margin
from tradewind.market.tariff import Tariff, TariffTier, tariff_for, utilisation_price
from tradewind.model.document import to_document

TIERS = (TariffTier(0, 1000), TariffTier(10, 500), TariffTier(100, 1))


def test_tiers_continue_where_the_month_stands() -> None:
    tariff = Tariff("tiers", "GB", TIERS)
    assert tariff.cost_usd(Fraction(10)) == Fraction(10_000, 10**6)
    assert tariff.cost_usd(Fraction(5), Fraction(8)) == Fraction(2 * 1000 + 3 * 500, 10**6)
    assert tariff.cost_usd(Fraction(3), Fraction(200)) == Fraction(3, 10**6)


@pytest.mark.parametrize("seed", range(25))
def test_a_volume_costs_the_same_in_parts(seed: int) -> None:
    rng = random.Random(seed)
    tariff, used, total = Tariff("tiers", "GB", TIERS), Fraction(0), Fraction(0)
    for _ in range(20):
        part = Fraction(rng.randint(0, 5000), 300)
        total += tariff.cost_usd(part, used)
        used += part
    assert total == tariff.cost_usd(used)


def test_the_most_specific_valid_tariff_applies() -> None:
    flat = (TariffTier(0, 1),)
    everywhere = Tariff("everywhere", "GB", flat)
    renewed = Tariff("renewed", "GB", flat, valid_from_s=100)
    from_a = Tariff("from a", "GB", flat, src="site:a", valid_until_s=50)
    to_b = Tariff("to b", "GB", flat, dst="site:b", valid_until_s=60)
    listed = [everywhere, renewed, from_a, to_b]
    names = [tariff_for(listed, "site:a", "site:b", at_s).name for at_s in (0, 49, 50, 60, 99, 100)]
    assert names == ["from a", "from a", "to b", "everywhere", "everywhere", "renewed"]
    with pytest.raises(MarketError, match="no tariff for site:x to site:y"):
        tariff_for([from_a], "site:x", "site:y", 0)


@pytest.mark.parametrize("seed", range(25))
def test_a_price_by_utilisation_stays_within_its_bounds_and_never_falls(seed: int) -> None:
    rng = random.Random(seed)
    starts = sorted({0, *(rng.randint(1, 1000) for _ in range(3))})
    tiers = []
    for start in starts:
        lower = rng.randint(0, 10**6)
        tiers.append(TariffTier(start, lower, rng.choice([None, lower + rng.randint(0, 10**6)])))
    tariff = Tariff("by load", "GB", tuple(tiers))
    least = Tariff("least", "GB", tuple(TariffTier(one.from_quantity, one.usd_micros_per_unit) for one in tiers))
    most = Tariff(
        "most",
        "GB",
        tuple(TariffTier(one.from_quantity, one.usd_micros_per_unit_max or one.usd_micros_per_unit) for one in tiers),
    )
    quantity, used = Fraction(rng.randint(0, 10**6), 300), Fraction(rng.randint(0, 10**6), 300)
    loads = sorted(Fraction(rng.randint(0, 1500), 1000) for _ in range(20))
    prices = [tariff.cost_usd(quantity, used, load) for load in [Fraction(0), *loads, Fraction(2)]]
    assert prices == sorted(prices)
    assert prices[0] == tariff.cost_usd(quantity, used) == least.cost_usd(quantity, used)
    assert prices[-1] == most.cost_usd(quantity, used)


def test_a_tier_without_an_upper_bound_does_not_follow_the_load() -> None:
    fixed, rising = Tariff("fixed", "GB", TIERS), Tariff("rising", "GB", (TariffTier(0, 1000, 3000),))
    assert (fixed.follows_utilisation, rising.follows_utilisation) == (False, True)
    assert fixed.cost_usd(Fraction(5), utilisation=Fraction(1)) == fixed.cost_usd(Fraction(5))
    half = (Fraction(1, 4) + Fraction(9, 10)) / 2
    assert rising.cost_usd(Fraction(5), utilisation=half) == Fraction(5 * 2000, 10**6)


@pytest.mark.parametrize(
    ("tiers", "until_s"),
    [
        ((), None),
        ((TariffTier(1, 1),), None),
        ((TariffTier(0, 1), TariffTier(0, 2)), None),
        ((TariffTier(0, -1),), None),
        ((TariffTier(0, 2, 1),), None),
        ((TariffTier(0, 1),), 0.0),
    ],
)
def test_a_tariff_out_of_order_is_refused(tiers: tuple[TariffTier, ...], until_s: float | None) -> None:
    with pytest.raises(UsageError):
        Tariff("bad", "GB", tiers, valid_until_s=until_s)


def test_a_tariff_survives_its_document() -> None:
    tariff = Tariff("tiers", "hour", TIERS, src="site:a", valid_until_s=5.0)
    assert Tariff.from_document(to_document(tariff)) == tariff


@pytest.mark.parametrize("seed", range(25))
def test_the_price_by_utilisation_rises_and_stays_within_the_margin(seed: int) -> None:
    rng = random.Random(seed)
    bounds = margin(PAPER_RATIOS, rng.randint(4, 12), 1)
    points = sorted(Fraction(rng.randint(0, 1500), 1000) for _ in range(50))
    prices = [utilisation_price(bounds, point) for point in points]
    assert prices == sorted(prices)
    assert bounds.lower_usd <= prices[0]
    assert prices[-1] <= bounds.upper_usd


def test_the_price_at_the_ends_of_utilisation() -> None:
    bounds = margin(PAPER_RATIOS, 5, 1)
    assert utilisation_price(bounds, Fraction(0)) == bounds.lower_usd
    assert utilisation_price(bounds, Fraction(2)) == bounds.upper_usd
    with pytest.raises(EmptyMargin):
        utilisation_price(margin(PAPER_RATIOS, 3, 1), Fraction(0))
    with pytest.raises(UsageError):
        utilisation_price(bounds, Fraction(-1))
