"""A campaign with real gateways on this machine: its quote, its cost, and its end."""

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from tradewind.errors import UsageError
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.providers import LOCAL, make_provider
from tradewind.gateway.binary import find_gateway
from tradewind.measure.campaign import END_S, REGIONS_MAX, SETTLE_S, Campaign, figure_of
from tradewind.measure.probe import ProbeSettings
from tradewind.model.catalog import Catalog, Grid, Link
from tradewind.model.machine import MachineOffer, MachineType
from tradewind.model.origin import Origin
from tradewind.model.price import EgressPrice, PriceBook, PriceTier
from tradewind.model.region import Region

ORIGIN = Origin("assumed", "a test", "")
A, B, C = (Region("site", name) for name in "abc")
PAIRS = list(permutations((A, B, C), 2))
SETTINGS = ProbeSettings(connections=2, warmup_s=0.1, measure_s=0.2)


def catalog(usd_per_hour: float = 0.0, boot_s: float = 0.0) -> Catalog:
    """Return a catalog with 1 USD per GB, machines of 80 Gbit/s, and a known rate of 8 Gbit/s for a → b."""
    prices = {pair: EgressPrice((PriceTier(0.0, 1.0),), ORIGIN) for pair in PAIRS}
    machine = MachineType("site", "m", 1, 80.0, 80.0, 80.0, boot_s, ORIGIN)
    offer = MachineOffer(machine, usd_per_hour, False, ORIGIN)
    return Catalog({}, PriceBook(prices), Grid({(A, B): Link(8.0, ORIGIN)}), {"site": (offer,)})


def test_the_quote_has_an_estimate_and_a_bound_from_machine_caps() -> None:
    quote = Campaign(catalog(), PAIRS, SETTINGS).quote
    assert sum(len(of) for of in quote.rounds) == 6
    assert quote.seconds == pytest.approx(6 * (0.3 + SETTLE_S))
    assert quote.usd_most == pytest.approx(6 * 3.0)
    assert quote.usd == pytest.approx(5 * 3.0 + 0.3)


def test_it_measures_every_link_and_leaves_nothing(tmp_path: Path) -> None:
    journal, binary = FleetJournal(tmp_path), find_gateway()
    campaign = Campaign(catalog(), PAIRS, SETTINGS)
    links = list(campaign.run(make_provider(LOCAL, binary, journal), journal, binary))
    assert sorted((link.src, link.dst) for link in links) == sorted(PAIRS)
    for link in links:
        assert link.result.gbps > 0 and 0 < link.result.rtt_ms < 1000
        assert link.result.sent_bytes > link.result.gbps * 1e9 / 8 * SETTINGS.measure_s * 0.9
        assert link.usd == pytest.approx(link.result.sent_bytes / 1e9)
    figure = figure_of(links[0], SETTINGS, "2026-01-31", "a test")
    assert (figure.origin.kind, figure.origin.date) == ("measured", "2026-01-31")
    assert "0.2 s after 0.1 s, 2 connections" in figure.origin.method
    assert list(journal.records()) == []


def test_it_stops_before_a_round_that_could_exceed_the_budget(tmp_path: Path) -> None:
    journal, binary = FleetJournal(tmp_path), find_gateway()
    campaign = Campaign(catalog(), PAIRS, SETTINGS)
    # A round of one probe may cost 3 USD: the budget is enough for the first, but not for the minimum of the second.
    links = list(campaign.run(make_provider(LOCAL, binary, journal), journal, binary, max_cost_usd=3.0 + 1e-9))
    assert len(links) == 1 and 1e-9 < links[0].usd <= 3.0
    assert list(campaign.run(make_provider(LOCAL, binary, journal), journal, binary, max_cost_usd=2.9)) == []
    assert list(journal.records()) == []


def test_machines_are_part_of_the_quote() -> None:
    quote = Campaign(catalog(usd_per_hour=3600.0, boot_s=50.0), PAIRS, SETTINGS).quote
    machines_usd = 3 * (50.0 + 6 * (0.3 + SETTLE_S))
    assert quote.machines_usd == pytest.approx(machines_usd)
    assert quote.usd == pytest.approx(machines_usd + 5 * 3.0 + 0.3)
    assert quote.usd_most == pytest.approx(machines_usd + 3 * END_S + 6 * 3.0)


def test_no_machine_starts_if_machines_alone_would_exceed_the_budget(tmp_path: Path) -> None:
    journal, binary = FleetJournal(tmp_path), find_gateway()
    campaign = Campaign(catalog(usd_per_hour=3600.0, boot_s=50.0), PAIRS, SETTINGS)
    assert list(campaign.run(make_provider(LOCAL, binary, journal), journal, binary, max_cost_usd=3 * 50.0)) == []
    assert campaign.machines_usd == 0.0
    assert list(tmp_path.iterdir()) == []


def test_the_time_of_the_machines_counts_towards_the_budget(tmp_path: Path) -> None:
    """The clock jumps by 100 s, or 300 USD, each time it is read, so the second round is beyond the budget."""
    journal, binary = FleetJournal(tmp_path), find_gateway()
    campaign = Campaign(catalog(usd_per_hour=3600.0), PAIRS, SETTINGS)
    seconds = iter(range(0, 100_000, 100))
    provider = make_provider(LOCAL, binary, journal)
    links = list(campaign.run(provider, journal, binary, max_cost_usd=500.0, clock=lambda: float(next(seconds))))
    assert len(links) == 1
    assert campaign.machines_usd == pytest.approx(3 * 300.0)


def test_all_probes_of_an_account_fill_its_tiers_together() -> None:
    """The first 10 GB of a month are free. Each of six probes sends at most 3 GB."""
    known = catalog()
    free = EgressPrice((PriceTier(0.0, 0.0), PriceTier(10.0, 1.0)), ORIGIN)
    tiered = replace(known, prices=PriceBook(dict.fromkeys(PAIRS, free)))
    quote = Campaign(tiered, PAIRS, SETTINGS).quote
    assert quote.usd_most == pytest.approx(6 * 3.0 - 10.0), "a single probe would be free"


def test_a_budget_is_refused_if_a_price_is_unknown(tmp_path: Path) -> None:
    journal, binary = FleetJournal(tmp_path), find_gateway()
    known = catalog()
    prices = {pair: price for pair, price in known.prices.pairs.items() if pair != (A, B)}
    campaign = Campaign(replace(known, prices=PriceBook(prices)), PAIRS, SETTINGS)
    assert campaign.unpriced == ("egress from site:a to site:b",)
    with pytest.raises(UsageError, match="no price is known for egress from site:a to site:b"):
        next(campaign.run(make_provider(LOCAL, binary, journal), journal, binary, max_cost_usd=100.0))
    without = Campaign(replace(known, offers={}), [(A, B)], SETTINGS)
    assert without.unpriced == ("a machine in site:a", "a machine in site:b")


def test_machines_are_quoted_on_demand_and_with_their_minimum() -> None:
    known = catalog(usd_per_hour=3600.0, boot_s=1.0)
    (offer,) = known.offers["site"]
    billed = replace(offer, machine=replace(offer.machine, billed_s_min=60.0))
    spot = replace(billed, usd_per_hour=360.0, spot=True)
    quote = Campaign(replace(known, offers={"site": (spot, billed)}), PAIRS, SETTINGS).quote
    assert quote.machines_usd == pytest.approx(3 * 60.0)


def test_empty_and_too_large_campaigns_are_refused() -> None:
    with pytest.raises(UsageError, match="nothing to measure"):
        Campaign(catalog(), [])
    many = [Region("site", str(number)) for number in range(REGIONS_MAX + 1)]
    with pytest.raises(UsageError, match="31 regions at once"):
        Campaign(catalog(), permutations(many, 2))
