import pytest

from tradewind.errors import UsageError
from tradewind.model.goal import MaxCost, MinThroughput
from tradewind.model.units import (
    format_bytes,
    format_count,
    format_duration,
    format_gbps,
    format_rate,
    format_usd,
    parse_bytes,
    parse_duration_s,
    parse_rate,
    parse_rate_gbps,
    parse_usd,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("1B", 1),
        ("5 GB", 5_000_000_000),
        ("5GiB", 5 << 30),
        ("16MiB", 16 << 20),
        ("1.5kB", 1500),
        ("2KB", 2000),
        ("1TiB", 1 << 40),
    ],
)
def test_sizes(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "5", "GB", "5 G", "5Gbit", "-5GB", "5XB", "1.2.3MB"])
def test_sizes_need_a_unit(text: str) -> None:
    with pytest.raises(UsageError):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("800Mbit/s", 100_000_000),
        ("100MB/s", 100_000_000),
        ("1GiB/s", 1 << 30),
        ("8bit/s", 1),
        ("1.5 kB/s", 1500),
        ("1Gibit/s", 1 << 27),
    ],
)
def test_rates(text: str, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["100", "100MB", "100M/s", "100Mbps", "0MB/s", "1bit/s", "5MB/h"])
def test_rates_need_a_unit(text: str) -> None:
    with pytest.raises(UsageError):
        parse_rate(text)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("15m", 900), ("2h", 7200), ("7d", 604800), ("1.5h", 5400)])
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["90", "90x", "h", ""])
def test_durations_need_a_unit(text: str) -> None:
    with pytest.raises(UsageError):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (12_340_000, "12.3 MB"),
        (999_600_000, "1.00 GB"),
        (10**18, "1000 PB"),
    ],
)
def test_bytes_are_formatted_with_three_digits(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_rates_and_durations_are_formatted() -> None:
    assert format_rate(118_000_000) == "118 MB/s"
    assert [format_duration(s) for s in (0.42, 59.96, 185, 8040)] == ["0.4 s", "1 min 00 s", "3 min 05 s", "2 h 14 min"]


def test_counts_have_their_plural() -> None:
    assert [format_count(n, "link") for n in (0, 1, 1200)] == ["0 links", "1 link", "1,200 links"]
    assert [format_count(n, "retry", "retries") for n in (1, 2)] == ["1 retry", "2 retries"]


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
def test_rates_in_gbit_per_s(gbps: float, text: str) -> None:
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


def test_a_goal_is_shown_as_it_was_entered() -> None:
    assert str(MinThroughput(parse_rate_gbps("12.4567Gbit/s"))) == "cheapest at 12.4567 Gbit/s or more"
    assert str(MinThroughput(parse_rate_gbps("2.5Gbit/s"), exactly=True)) == "cheapest at exactly 2.5 Gbit/s"
    assert str(MaxCost(0.925)) == "fastest for at most $0.925"


@pytest.mark.parametrize("text", ["1_0USD", "$1_000", "١USD", "nanUSD", "$inf", "-1USD", "0USD", "1", "1e400USD", "$"])
def test_invalid_amounts_of_money_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="an amount of money"):
        parse_usd(text)
