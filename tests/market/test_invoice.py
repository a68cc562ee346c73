"""Money that adds up: charges of ledgers and auctions, invoices in cents."""

import random
from fractions import Fraction

import pytest

from tradewind.errors import UsageError
from tradewind.market.auction import Bid, Lot, clear
from tradewind.market.charge import Charge, auction_charges, ledger_charges
from tradewind.market.invoice import Invoice, invoices, month_of
from tradewind.market.money import MICROS_PER_CENT, apportion, exact, format_micros, micros_of
from tradewind.model.document import to_document
from tradewind.model.ledger import LedgerLine

NOVEMBER_S = 1_795_000_000.0


def test_amounts_are_read_as_decimals_and_rounded_half_to_even() -> None:
    assert exact(0.1) == Fraction(1, 10)
    assert [micros_of(usd) for usd in ("0.0000005", "0.0000015", 0.0000025)] == [0, 2, 2]
    assert [format_micros(micros) for micros in (0, 1_500_000, -1, 1_234_567_890)] == [
        "$0.00",
        "$1.50",
        "-$0.000001",
        "$1,234.56789",
    ]
    with pytest.raises(UsageError):
        exact(float("nan"))


@pytest.mark.parametrize("seed", range(25))
def test_apportioned_amounts_add_up(seed: int) -> None:
    rng = random.Random(seed)
    amounts = [Fraction(rng.randint(-9999, 9999), rng.randint(1, 999)) for _ in range(rng.randint(0, 30))]
    whole = apportion(amounts)
    assert sum(whole) == round(sum(amounts, Fraction(0)))
    assert all(abs(each - amount) < 1 for each, amount in zip(whole, amounts, strict=True))


def test_three_thirds_of_a_dollar_make_a_dollar() -> None:
    charges = [Charge("ada", NOVEMBER_S, f"job-{number}", "egress", micros_of("1/3")) for number in range(3)]
    charges[0] = Charge("ada", NOVEMBER_S, "job-0", "egress", 333_334)
    [invoice] = invoices(charges)
    assert [line.cents for line in invoice.lines] == [34, 33, 33]
    assert invoice.total_cents == 100
    assert invoice.number == "2026-11/ada"
    assert list(invoice.text())[-1].split() == ["$1.00", "total"]


@pytest.mark.parametrize("seed", range(25))
def test_every_invoice_adds_up_to_the_cent(seed: int) -> None:
    rng = random.Random(seed)
    charges = [
        Charge(
            rng.choice("abc"), NOVEMBER_S + rng.randint(0, 90) * 86_400, f"job-{rng.randint(0, 5)}", "egress", micros
        )
        for micros in (rng.randint(-20_000, 99_999) for _ in range(80))
    ]
    made = invoices(charges)
    assert invoices(rng.sample(charges, len(charges))) == made
    assert len({(invoice.tenant, invoice.month) for invoice in made}) == len(made)
    for invoice in made:
        exact_micros = sum(
            charge.usd_micros
            for charge in charges
            if (charge.tenant, month_of(charge.at_s)) == (invoice.tenant, invoice.month)
        )
        assert (
            invoice.total_cents
            == sum(line.cents for line in invoice.lines)
            == round(Fraction(exact_micros, MICROS_PER_CENT))
        )
        assert Invoice.from_document(to_document(invoice)) == invoice


def test_a_ledger_is_charged_exactly_once_rounded() -> None:
    lines = [LedgerLine(1, "egress", "a → b", 0.1, "GB", 0.000003, "list") for _ in range(10)]
    charges = ledger_charges("ada", "job-1", lines, NOVEMBER_S)
    assert sum(charge.usd_micros for charge in charges) == 3, "each line alone would be rounded to nothing"
    assert charges[0].what == "egress: a → b"


def test_an_auction_is_charged_to_its_winners() -> None:
    done = clear(Lot("site:a", "site:b", 498_611, 2, 10), [Bid("x", "ada", 50, 0), Bid("y", "grace", 20, 1, slices=3)])
    charges = auction_charges(done)
    assert [(charge.tenant, charge.usd_micros) for charge in charges] == [("ada", 20), ("grace", 20)]
    assert {month_of(charge.at_s) for charge in charges} == {"2026-11"}


def test_a_month_begins_at_midnight_utc() -> None:
    assert [month_of(at_s) for at_s in (1_793_491_199.0, 1_793_491_200.0)] == ["2026-10", "2026-11"]
    with pytest.raises(UsageError):
        month_of(float("inf"))
