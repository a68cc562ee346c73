"""The catalog of the places where gateways may run."""

from __future__ import annotations

import pytest

from tradewind.catalog.load import load_catalog
from tradewind.errors import InfeasibleGoal
from tradewind.fleet.boots import BootKind, UsualBoot
from tradewind.fleet.provider import ANY_TYPE, Billing, Offer
from tradewind.fleet.site_catalog import Supply, site_catalog
from tradewind.model.catalog import Catalog, Link
from tradewind.model.goal import Fastest
from tradewind.model.origin import Origin
from tradewind.model.records import replace
from tradewind.model.region import Region
from tradewind.planner.plan import plan_transfer
from tradewind.render.words import explain_lines

AWS, LAB, FAR = Region("aws", "us-east-1"), Region("site", "lab"), Region("site", "far")
MADE = Origin("measured", "a test", "")


@pytest.fixture(scope="module")
def base() -> Catalog:
    return load_catalog()


def test_hosts_promise_what_each_of_a_region_holds(base: Catalog) -> None:
    lab = Supply((Offer("site:lab", ANY_TYPE, usd_per_s=1 / 3600, egress_gbps=10.0), Offer("site:lab", ANY_TYPE)), 3)
    far = Supply((Offer("site:far", ANY_TYPE, ingress_gbps=0.5),), 1)
    catalog = site_catalog({LAB: lab, FAR: far}, base)
    (offer,) = catalog.machine_offers(LAB)
    assert (offer.machine.egress_gbps, offer.machine.ingress_gbps) == (1.0, 1.0)
    assert offer.usd_per_hour == pytest.approx(1.0)
    assert catalog.quotas == {LAB: 3, FAR: 1}
    link, price = catalog.grid.link(LAB, FAR), catalog.egress(LAB, FAR)
    assert link is not None and (link.gbps, link.origin.kind) == (0.5, "assumed")
    assert price is not None and price.tiers[0].usd_per_gb == 0.0


def test_a_known_type_has_the_caps_of_the_catalog_and_the_price_of_the_offer(base: Catalog) -> None:
    known = next(offer for offer in base.machine_offers(AWS) if not offer.spot)
    offered = Offer(str(AWS), known.machine.name, usd_per_s=0.5, price_source="the API", billing=Billing(least_s=90.0))
    unknown = Offer(str(AWS), "new.large", usd_per_s=0.1, egress_gbps=3.0, ingress_gbps=4.0, boot_s=20.0)
    catalog = site_catalog({AWS: Supply((offered, unknown)), LAB: Supply((Offer("site:lab", ANY_TYPE),))}, base)
    first, second = catalog.machine_offers(AWS)
    assert first.machine.egress_gbps == known.machine.egress_gbps and first.machine.billed_s_min == 90.0
    assert first.usd_per_hour == pytest.approx(1800.0) and first.origin.source == "the API"
    assert (second.machine.egress_gbps, second.machine.ingress_gbps, second.machine.boot_s) == (3.0, 4.0, 20.0)
    assert AWS not in catalog.quotas and set(catalog.places) == {AWS, LAB}
    assert catalog.stores["aws"] == base.stores["aws"]


def test_ends_that_cannot_connect_are_joined_by_a_relay_or_refused(base: Catalog) -> None:
    plant = Region("site", "plant")
    supplies = {region: Supply((Offer(str(region), ANY_TYPE),)) for region in (LAB, FAR, plant)}
    reasons = dict.fromkeys(((LAB, FAR), (FAR, LAB)), "both only dial out")
    joined = site_catalog(supplies, base).without_links(reasons)
    plan = plan_transfer(joined, LAB, FAR, 1.0, Fastest())
    assert [route.regions for route in plan.routes] == [(LAB, plant, FAR)]
    assert "site:far and site:lab: both only dial out" in "\n".join(explain_lines(plan, [], catalog=joined))
    alone = site_catalog({LAB: supplies[LAB], FAR: supplies[FAR]}, base).without_links(reasons)
    with pytest.raises(InfeasibleGoal, match="cannot connect, and no region joins them: both only dial out"):
        plan_transfer(alone, LAB, FAR, 1.0, Fastest())


def test_a_region_without_offers_is_not_in_it(base: Catalog) -> None:
    catalog = site_catalog({LAB: Supply(()), FAR: Supply((Offer("site:far", ANY_TYPE),))}, base)
    assert set(catalog.places) == {FAR} and catalog.grid.regions() == ()


def test_learned_starts_replace_stated_ones(base: Catalog) -> None:
    """A plan waits until bytes can move. Starts of another provider or region teach nothing."""
    usual = UsualBoot(3, {"enrolled": 33.0, "first_byte": 60.0}, begins_s=2.0)
    boots = {
        BootKind("aws", str(AWS), "a"): usual,
        BootKind("sky", str(AWS), "b"): usual,
        BootKind("aws", "aws:eu-west-1", "b"): usual,
    }
    offers = (Offer(str(AWS), "a", boot_s=50.0), Offer(str(AWS), "b", boot_s=50.0))
    first, second = site_catalog({AWS: Supply(offers, provider="aws")}, base, boots).machine_offers(AWS)
    assert (first.machine.boot_s, first.machine.boot_origin) == (35.0, usual.origin)
    assert second.machine.boot_s == 50.0


def test_standard_network_tiers_are_those_of_the_catalog(base: Catalog) -> None:
    gcp = Region("gcp", "us-central1")
    rates = {(gcp, AWS): Link(2.0, MADE), (gcp, Region("aws", "eu-west-1")): Link(1.0, MADE)}
    supplies = {region: Supply((Offer(str(region), "a", usd_per_s=0.1),)) for region in (AWS, gcp)}
    catalog = site_catalog(supplies, replace(base, standard_links=rates))
    assert catalog.network_tiers(gcp) == ("premium", "standard") and catalog.network_tiers(AWS) == ()
    assert set(catalog.standard_links) == {(gcp, AWS)}, "only links between its regions"
    sent = catalog.with_standard_tier([gcp])
    premium, standard = catalog.egress(gcp, AWS), sent.egress(gcp, AWS)
    assert premium is not None and standard is not None and standard.usd_per_gb < premium.usd_per_gb
    alone = site_catalog({gcp: supplies[gcp]}, base)
    assert alone.network_tiers(gcp) == (), "there is no other network to send to"
