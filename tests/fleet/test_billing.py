"""Cost of a machine, by its offer."""

from __future__ import annotations

import pytest

from tradewind.fleet.billing import billed_usd, offer_of
from tradewind.fleet.provider import ANY_TYPE, Billing, Machine, Offer

MACHINE = Machine("i", "n", "aws:a", "m5", launched_unix_s=100.0, running_unix_s=130.0)


@pytest.mark.parametrize(
    ("billing", "until_s", "usd"),
    [
        (Billing(), 110.5, 11.0),
        (Billing(least_s=60.0), 110.0, 60.0),
        (Billing(unit_s=3600.0), 110.0, 3600.0),
        (Billing(begins="running"), 150.0, 20.0),
        (Billing(begins="running"), 120.0, 0.0),
    ],
)
def test_time_is_rounded_as_the_offer_says(billing: Billing, until_s: float, usd: float) -> None:
    assert billed_usd(MACHINE, Offer("aws:a", "m5", usd_per_s=1.0, billing=billing), until_s) == usd


def test_a_machine_without_a_start_has_no_known_cost() -> None:
    assert billed_usd(Machine("i", "n", "aws:a"), Offer("aws:a", "m5", usd_per_s=1.0), 5.0) is None


def test_the_offer_is_found_by_type_and_for_hosts_by_zone() -> None:
    typed, spot = Offer("aws:a", "m5"), Offer("aws:a", "m5", spot=True)
    one, two = Offer("aws:a", ANY_TYPE, zones=("h1",)), Offer("aws:a", ANY_TYPE, zones=("h2",))
    offers = (spot, one, two, Offer("aws:b", "m5"), typed)
    assert offer_of(MACHINE, offers) is typed
    assert offer_of(Machine("i", "n", "aws:a", "host", "h2"), offers) is two
    assert offer_of(Machine("i", "n", "aws:c"), offers) is None
