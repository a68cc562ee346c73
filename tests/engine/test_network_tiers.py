"""What a transfer takes from a plan whose machines send in the standard network tier."""

from __future__ import annotations

from typing import Any

import pytest

from tests.planner.test_network_tiers import SINK, SOURCE, VOLUME_GB, tiered_world
from tradewind.engine.ground import fixed_tiers
from tradewind.engine.launch_spec import plan_prices
from tradewind.engine.learning import RouteWatch, samples_of
from tradewind.engine.provisioning import plan_gateways
from tradewind.engine.rates import SlowRoutes
from tradewind.engine.replan import PlanRequest, TransferState, as_seen, observed_links, revise_plan, running_tiers
from tradewind.engine.stored import changed_prices
from tradewind.fleet.orders import network_tier_in
from tradewind.model.catalog import Catalog, Grid
from tradewind.model.goal import Cheapest
from tradewind.model.hosts import SshHost, SshHosts
from tradewind.model.job import JobSpec, PrefixSelection, Target
from tradewind.model.network_tier import NetworkTierChoice
from tradewind.model.plan import Plan
from tradewind.model.price import EgressPrice, EgressRule, PriceBook, PriceTier
from tradewind.model.records import replace
from tradewind.model.region import Region, RegionInfo
from tradewind.model.sites import Cloud, Sites
from tradewind.model.store import StoreSpec
from tradewind.planner.network import PlanningLimits

DEAR = 7.0
CLOUDS = (
    Cloud("gcp", ("gcp:us-central1", "gcp:us-east1"), {"network_tier": "STANDARD"}),
    Cloud("azure", (), {"routing": "microsoft"}),
    Cloud("aws", (), {}),
)
HOSTS = SshHosts((SshHost("h", "gcp:us-east1", "h"),))


def planned(catalog: Catalog, tier: NetworkTierChoice) -> Plan:
    limits = PlanningLimits(machines_per_region=1, network_tiers=tier)
    return plan_gateways(catalog, SOURCE, SINK, VOLUME_GB, Cheapest(), limits)


def with_dear_standard_tier(catalog: Catalog) -> Catalog:
    """Return the catalog with a high price for all traffic in the standard tier, and the premium tier unchanged."""
    price = EgressPrice((PriceTier(0.0, DEAR),), catalog.standard_tiers["p"].rules[0].price.origin)
    tiers = {
        provider: replace(tier, rules=tuple(EgressRule(rule.src, rule.dst, price) for rule in tier.rules))
        for provider, tier in catalog.standard_tiers.items()
    }
    return replace(catalog, standard_tiers=tiers)


def test_machines_are_ordered_in_the_tier_of_the_plan() -> None:
    catalog = tiered_world(0)
    assert network_tier_in(planned(catalog, "standard"), str(SOURCE)) == "standard"
    assert network_tier_in(planned(catalog, "premium"), str(SOURCE)) == "premium"
    assert network_tier_in(planned(replace(catalog, standard_tiers={}), "premium"), str(SOURCE)) is None


def test_prices_have_changed_only_in_the_tier_of_the_plan() -> None:
    catalog = tiered_world(0)
    dear = with_dear_standard_tier(catalog)
    assert changed_prices(planned(catalog, "premium"), catalog, dear) == []
    changed = changed_prices(planned(catalog, "standard"), catalog, dear)
    assert changed and all(part.startswith("egress ") for part in changed)


def test_machines_have_the_configured_tier_unless_the_request_names_one() -> None:
    regions = [Region.parse(name) for name in ("gcp:us-central1", "gcp:us-east1", "azure:westeurope", "aws:eu-west-1")]
    gcp, host, azure, _ = regions
    sites = Sites(HOSTS, CLOUDS)
    places = {region: RegionInfo(region, region.name, 0.0, 0.0, "") for region in regions}
    catalog = Catalog(places, PriceBook(), Grid({}), offers={})
    assert fixed_tiers(sites, catalog, None) == {gcp: "standard", host: "premium", azure: "premium"}
    assert fixed_tiers(sites, catalog, "best") == {host: "premium"}, "a host's tier cannot be changed"
    inside = Cloud("azure", (), {"routing": "internet", "public_address": False})
    for tier in (None, "standard"):
        assert fixed_tiers(Sites(clouds=(inside,)), catalog, tier)[azure] == "premium", "it has no address with a tier"


def test_a_plan_has_the_tiers_that_are_fixed() -> None:
    catalog = tiered_world(0)
    limits = PlanningLimits(machines_per_region=1, network_tier_of={SOURCE: "standard"})
    plan = plan_gateways(catalog, SOURCE, SINK, VOLUME_GB, Cheapest(), limits)
    assert network_tier_in(plan, str(SOURCE)) == "standard" and network_tier_in(plan, str(SINK)) == "premium"


def revised(catalog: Catalog, plan: Plan, **changes: Any) -> Plan | None:
    """Return a new plan for all of the volume, with any tier for regions that have not sent."""
    limits = PlanningLimits(machines_per_region=1, network_tiers="best")
    asked = PlanRequest(catalog, SOURCE, SINK, Cheapest(), limits, 1 << 24, None, None)
    volume_bytes = round(VOLUME_GB * 1e9)
    state = TransferState(
        left_bytes=volume_bytes,
        total_bytes=volume_bytes,
        elapsed_s=0.0,
        carried_gbps=0.0,
        egress_usd=0.0,
        machines_usd=0.0,
        dead={},
        **{"links": {}, "network_tier_of": running_tiers(plan), **changes},
    )
    found = revise_plan(asked, state)
    return None if found is None else found.plan


@pytest.mark.parametrize("tier", ["premium", "standard"])
def test_machines_keep_their_tier_when_the_transfer_is_planned_again(tier: NetworkTierChoice) -> None:
    catalog = tiered_world(0)
    plan = planned(catalog, tier)
    again = revised(catalog, plan)
    assert again is not None and network_tier_in(again, str(SOURCE)) == tier


def test_an_observed_rate_belongs_to_the_tier_of_the_sender() -> None:
    slow = 0.001
    catalog = tiered_world(0)
    for tier in ("premium", "standard"):
        plan = planned(catalog, tier)
        assert plan.overlay is not None
        (route,) = plan.routes
        seen = SlowRoutes({route.nodes: slow}, {route.nodes: plan.overlay.throughput_gbps}, (route.nodes,), frozenset())
        links = observed_links(catalog, plan, seen)
        assert links
        changed = as_seen(catalog, links, running_tiers(plan))
        for pair in links:
            rates = [known.grid.links[pair].gbps for known in (changed, changed.with_standard_tier([pair[0]]))]
            before = [known.grid.links[pair].gbps for known in (catalog, catalog.with_standard_tier([pair[0]]))]
            at = 0 if tier == "premium" else 1
            assert rates[at] == links[pair] and rates[1 - at] == before[1 - at]


def test_the_ledger_charges_the_price_of_the_tier() -> None:
    catalog, of_tier = tiered_world(0), {}
    for tier in ("premium", "standard"):
        plan = planned(catalog, tier)
        assert plan.overlay is not None
        tiers = running_tiers(plan)
        sent_in = catalog.with_standard_tier([region for region in tiers if tiers[region] == "standard"])
        prices = {price.what: price for edges in plan_prices(plan, catalog).routes.values() for price in edges}
        for edge in plan.overlay.edges:
            listed = sent_in.egress(edge.src, edge.dst)
            assert listed is not None
            charged = prices.get(f"{edge.src} → {edge.dst}")
            of_tier[tier] = 0.0 if charged is None else charged.usd_per_gb
            assert of_tier[tier] == pytest.approx(listed.usd_per_gb)
    assert of_tier["premium"] != of_tier["standard"]


@pytest.mark.parametrize("tier", ["premium", "standard"])
def test_a_rate_is_learned_in_the_tier_of_the_machines(tier: NetworkTierChoice) -> None:
    catalog = tiered_world(0)
    plan = planned(catalog, tier)
    (route,) = plan.routes
    assert route.nodes[0] != route.nodes[-1]
    hops = {(hop.start, hop.end): (SOURCE, SINK) for hop in plan.hops}
    assert len(hops) == 1, "the plan of this world has one hop"
    watch = RouteWatch()
    for part in (0, 1):
        watch.see({"elapsed_s": 100 * part, "hops": [{"name": " → ".join(route.nodes), "bytes": part * 10**10}]})
    spec = JobSpec(StoreSpec("file:///from"), PrefixSelection(""), (Target(StoreSpec("file:///to"), ""),))
    (sample,) = samples_of(catalog, spec, plan, hops, watch, source="job 1", date="2026-11-24")
    assert sample.network_tier == tier
