"""What a transfer takes from a plan whose machines send in the standard network tier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.planner.test_network_tiers import SINK, SOURCE, VOLUME_GB, tiered_world
from tradewind.engine.ground import fixed_tiers
from tradewind.engine.launch_spec import plan_prices, planned_launch
from tradewind.engine.learning import RouteWatch, samples_of
from tradewind.engine.provisioning import plan_gateways
from tradewind.engine.rates import SlowRoutes
from tradewind.engine.replan import PlanRequest, TransferState, as_seen, mixed_regions, observed_links, revise_plan
from tradewind.engine.request import Options
from tradewind.engine.sending_tiers import running_tiers
from tradewind.engine.stored import (
    KeptProposal,
    KeptRequest,
    ProposalStore,
    changed_prices,
    plan_document,
    plan_from_document,
)
from tradewind.fleet.orders import Orders
from tradewind.fleet.settings import FleetSettings
from tradewind.model.catalog import Catalog, Grid
from tradewind.model.goal import Cheapest, Fastest, Goal
from tradewind.model.hosts import SshHost, SshHosts
from tradewind.model.job import JobSpec, PrefixSelection, Target
from tradewind.model.ledger import STANDARD_EDGE
from tradewind.model.network_tier import NetworkTier, NetworkTierChoice
from tradewind.model.plan import Plan
from tradewind.model.price import EgressPrice, EgressRule, PriceBook, PriceTier
from tradewind.model.records import replace
from tradewind.model.region import Region, RegionInfo
from tradewind.model.sites import Cloud, Sites
from tradewind.model.store import StoreSpec
from tradewind.planner.network import PlanningLimits
from tradewind.render.words import explain_lines, plan_lines
from tradewind.state.database import Database

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


def tier_in(plan: Plan, region: Region) -> NetworkTier | None:
    """Return the network tier of the first machine in a region."""
    name = next(gateway.name for gateway in plan.machines if gateway.region == str(region))
    return plan.network_tier_of(name)


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
    assert tier_in(planned(catalog, "standard"), SOURCE) == "standard"
    assert tier_in(planned(catalog, "premium"), SOURCE) == "premium"
    assert tier_in(planned(replace(catalog, standard_tiers={}), "premium"), SOURCE) is None


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
    pods = Cloud("kubernetes", (str(azure),), {})
    for wanted in (None, "best", "standard"):
        assert fixed_tiers(Sites(clouds=(pods, *CLOUDS)), catalog, wanted)[azure] == "premium", "pods choose no tier"


def test_a_plan_has_the_tiers_that_are_fixed() -> None:
    catalog = tiered_world(0)
    limits = PlanningLimits(machines_per_region=1, network_tier_of={SOURCE: "standard"})
    plan = plan_gateways(catalog, SOURCE, SINK, VOLUME_GB, Cheapest(), limits)
    assert tier_in(plan, SOURCE) == "standard" and tier_in(plan, SINK) == "premium"


def revised(
    catalog: Catalog, plan: Plan, *, goal: Goal | None = None, machines_max: int = 1, **changes: Any
) -> Plan | None:
    """Return a new plan for all of the volume, with any tier for regions that have not sent."""
    limits = PlanningLimits(machines_per_region=machines_max, network_tiers="best")
    asked = PlanRequest(catalog, SOURCE, SINK, goal or Cheapest(), limits, 1 << 24, None, None)
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
    assert again is not None and tier_in(again, SOURCE) == tier


def test_an_observed_rate_belongs_to_the_tier_of_the_sender() -> None:
    slow = 0.001
    catalog = tiered_world(0)
    for tier in ("premium", "standard"):
        plan = planned(catalog, tier)
        assert plan.overlay is not None
        (route,) = plan.routes
        seen = SlowRoutes({route.nodes: slow}, {route.nodes: plan.overlay.throughput_gbps}, (route.nodes,), frozenset())
        links = observed_links(catalog, plan, seen, standard=tier == "standard")
        assert links and observed_links(catalog, plan, seen, standard=tier == "premium") == {}
        changed = as_seen(catalog, *((links, {}) if tier == "premium" else ({}, links)))
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
            charged = prices.get(f"{edge.src} → {edge.dst}{STANDARD_EDGE if tier == 'standard' else ''}")
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


def mixed_plan(catalog: Catalog, goal: Goal | None = None) -> Plan:
    """Return a plan whose source has a machine of each tier."""
    limits = PlanningLimits(machines_per_region=2, network_tiers="best")
    plan = plan_gateways(catalog, SOURCE, SINK, VOLUME_GB, goal or Fastest(), limits)
    assert plan.overlay is not None and plan.overlay.mixed_at == (SOURCE,)
    return plan


MIXED_SEED = 3
"""A world in which the fastest plan has machines of both tiers at the source."""


def test_a_route_uses_machines_of_its_own_tier() -> None:
    plan = mixed_plan(tiered_world(MIXED_SEED))
    tiers = {gateway.name: plan.network_tier_of(gateway.name) for gateway in plan.machines}
    assert {tiers["p-r0-1"], tiers["p-r0-standard-1"]} == {"premium", "standard"}
    assert plan.overlay is not None
    for tier in ("premium", "standard"):
        share = sum(route.share for route in plan.overlay.routes if route.tiers[0] == tier)
        assert share > 0.0
        assert sum(route.share for route in plan.routes if tiers[route.nodes[0]] == tier) == pytest.approx(share)


def test_machines_of_a_mixed_region_are_ordered_in_their_tiers() -> None:
    plan = mixed_plan(tiered_world(MIXED_SEED))
    orders = Orders("fleet-1", FleetSettings()).of(plan, 900, 1, None)
    tier_of = {order.name: order.network.network_tier for order in orders}
    assert tier_of["p-r0-1"] == "premium" and tier_of["p-r0-standard-1"] == "standard"
    assert plan_from_document(plan_document(plan)) == plan


def test_a_mixed_plan_of_an_older_version_is_read_back(tmp_path: Path) -> None:
    """Its routes named only the tier of the source's machines."""
    catalog = tiered_world(MIXED_SEED)
    plan = mixed_plan(catalog)
    database = Database(str(tmp_path))
    proposals = ProposalStore(database)
    question = PlanRequest(catalog, SOURCE, SINK, Fastest(), PlanningLimits(), 1 << 24, 1.0, None, 7)
    options, launch = Options(), planned_launch(plan, {"kind": "sky", "sky": "/x"}, plan_request=question)
    request = KeptRequest(("/a",), ("/b",), options, "cp", None, None, None, None, None, None, None, replan=False)
    proposals.save("p-1", KeptProposal(request, options, launch, None, None, ()))
    proposal = json.loads(database.row("SELECT document FROM proposals", ())[0])  # type: ignore[index]
    document = json.loads(plan_document(plan))
    for kept in (document, proposal["launch"]["plan"]):
        for route in kept["overlay"]["routes"]:
            first, *others = route.pop("network_tiers")
            assert not any(others)
            route["network_tier"] = first
    database.write("UPDATE proposals SET document = ?", (json.dumps(proposal),))
    assert plan_from_document(json.dumps(document)) == plan
    assert proposals.load("p-1").launch.plan == plan


def test_the_ledger_charges_each_tier_of_a_mixed_region() -> None:
    catalog = tiered_world(MIXED_SEED)
    plan = mixed_plan(catalog)
    assert plan.overlay is not None
    prices = {price.what: price.usd_per_gb for edges in plan_prices(plan, catalog).routes.values() for price in edges}
    for edge in plan.overlay.edges:
        listed = plan.overlay.known_to(catalog, edge).egress(edge.src, edge.dst)
        assert listed is not None
        is_standard = plan.overlay.network_tier_of(edge) == "standard"
        what = f"{edge.src} → {edge.dst}{STANDARD_EDGE if is_standard else ''}"
        assert prices.get(what, 0.0) == pytest.approx(listed.usd_per_gb)
    changed = changed_prices(plan, catalog, with_dear_standard_tier(catalog))
    assert changed, "the price of the standard tier counts"


def test_rates_of_a_mixed_region_are_observed_in_their_tiers() -> None:
    catalog, slow = tiered_world(MIXED_SEED), 0.001
    plan = mixed_plan(catalog)
    assert plan.overlay is not None
    promised = {each.nodes: plan.overlay.throughput_gbps * each.share for each in plan.routes}
    late = tuple(nodes for nodes in promised if nodes[0] == "p-r0-standard-1")
    carried = {nodes: slow if nodes in late else gbps for nodes, gbps in promised.items()}
    in_standard = observed_links(catalog, plan, SlowRoutes(carried, promised, late, frozenset()), standard=True)
    pair = (SOURCE, next(Region.parse(each.region) for each in plan.gateways if each.name == late[0][1]))
    assert pair in in_standard
    assert pair not in observed_links(catalog, plan, SlowRoutes(carried, promised, late, frozenset()))
    changed = as_seen(catalog, {}, in_standard)
    assert changed.with_standard_tier([SOURCE]).grid.links[pair].gbps == in_standard[pair]
    assert changed.grid.links[pair] == catalog.grid.links[pair]


def test_a_mixed_region_keeps_the_tier_of_each_machine_when_the_transfer_is_planned_again() -> None:
    catalog = tiered_world(MIXED_SEED)
    plan = mixed_plan(catalog)
    assert SOURCE not in running_tiers(plan)
    again = revised(catalog, plan, mixed=(SOURCE,), goal=Fastest(), machines_max=2)
    assert again is not None
    alone = revised(catalog, plan, mixed=(SOURCE,), goal=Cheapest(), machines_max=1)
    assert alone is not None
    for revision in (again, alone):
        for gateway in revision.machines:
            if gateway.region == str(SOURCE):
                is_standard = revision.network_tier_of(gateway.name) == "standard"
                assert gateway.name.startswith("p-r0-standard-") == is_standard


def test_a_region_that_had_both_tiers_stays_mixed_when_its_job_is_resumed_with_one_of_them() -> None:
    catalog = tiered_world(MIXED_SEED)
    plan = mixed_plan(catalog)
    assert mixed_regions(plan) == {SOURCE} and mixed_regions(planned(catalog, "standard")) == set()
    in_standard = PlanRequest(
        catalog, SOURCE, SINK, Cheapest(), PlanningLimits(1, network_tiers="standard"), 1 << 24, None, None
    )
    rest = TransferState(10**9, 10**9, 0.0, 0.0, 0.0, 0.0, {}, {}, mixed=mixed_regions(plan))
    found = revise_plan(in_standard, rest)
    assert found is not None and found.plan.overlay is not None and not found.plan.overlay.mixed_at
    resumed = plan_from_document(plan_document(found.plan))
    assert mixed_regions(resumed) == {SOURCE}, "the next plan uses its machines, by their names"
    (route, *_) = resumed.routes
    seen = SlowRoutes({route.nodes: 0.001}, {route.nodes: 1.0}, (route.nodes,), frozenset())
    assert observed_links(catalog, resumed, seen, standard=True) and not observed_links(catalog, resumed, seen)


def test_a_mixed_plan_says_the_tier_of_each_route() -> None:
    catalog = tiered_world(MIXED_SEED)
    overlay = mixed_plan(catalog).overlay
    assert overlay is not None
    words = "\n".join([*plan_lines(overlay), *explain_lines(overlay, [], catalog=catalog)])
    assert "standard network tier" in words and "(standard tier)" in words
    assert f"{SOURCE} → " in words and ": premium" in words and ": standard (standard)" in words
