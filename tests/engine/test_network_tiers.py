"""What a transfer takes from a plan whose machines send in the standard network tier."""

from __future__ import annotations

from tests.planner.test_network_tiers import SINK, SOURCE, VOLUME_GB, tiered_world
from tradewind.engine.provisioning import plan_gateways
from tradewind.engine.stored import changed_prices
from tradewind.fleet.orders import network_tier_in
from tradewind.model.catalog import Catalog
from tradewind.model.goal import Cheapest
from tradewind.model.network_tier import NetworkTierChoice
from tradewind.model.plan import Plan
from tradewind.model.price import EgressPrice, EgressRule, PriceTier
from tradewind.model.records import replace
from tradewind.planner.network import PlanningLimits

DEAR = 7.0


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
