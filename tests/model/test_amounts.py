"""Amounts as they are shown: three digits that say something, no exponents, no tails of binary fractions."""

from __future__ import annotations

import pytest

from tradewind.errors import UsageError
from tradewind.model.amounts import format_gbps, format_usd, parse_rate_gbps, parse_usd
from tradewind.model.goal import MaxCost, MinThroughput


@pytest.mark.parametrize(
    ("gbps", "text"),
    [
        (38.214, "38.2 Gbit/s"),
        (5.0289, "5.03 Gbit/s"),
        (4.0, "4 Gbit/s"),
        (9.996, "10 Gbit/s"),
        (0.0000866, "86.6 kbit/s"),
        (128.0, "128 Gbit/s"),
        (1234.5, "1,234 Gbit/s"),
        (0.9996, "1 Gbit/s"),
        (0.85, "850 Mbit/s"),
        (0.1 + 0.2, "300 Mbit/s"),
        (0.000123, "123 kbit/s"),
        (0.0, "0 Gbit/s"),
    ],
)
def test_rates(gbps: float, text: str) -> None:
    assert format_gbps(gbps) == text


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (1234.5, "$1,234.50"),
        (17.2, "$17.20"),
        (1.0, "$1.00"),
        (0.9996, "$1.00"),
        (0.5, "$0.50"),
        (0.432, "$0.432"),
        (0.1 + 0.2, "$0.30"),
        (0.0338, "$0.0338"),
        (0.05, "$0.05"),
        (0.0000421, "$0.0000421"),
        (0.0, "$0.00"),
        (-0.432, "$-0.432"),
    ],
)
def test_money(usd: float, text: str) -> None:
    assert format_usd(usd) == text


def test_a_goal_is_repeated_as_it_was_asked() -> None:
    assert str(MinThroughput(parse_rate_gbps("12.4567Gbit/s"))) == "cheapest at 12.4567 Gbit/s or more"
    assert str(MinThroughput(parse_rate_gbps("2.5Gbit/s"), exactly=True)) == "cheapest at exactly 2.5 Gbit/s"
    assert str(MaxCost(0.925)) == "fastest for at most $0.925"


@pytest.mark.parametrize("text", ["1_0USD", "$1_000", "١USD", "nanUSD", "$inf", "-1USD", "0USD", "1", "1e400USD", "$"])
def test_what_is_no_amount_of_money_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="an amount of money"):
        parse_usd(text)
