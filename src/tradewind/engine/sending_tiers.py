"""Network tiers of a plan's machines: the prices and rates of the links over which they send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tradewind.model.network_tier import NetworkTier
from tradewind.model.plan import Plan
from tradewind.model.region import Region

if TYPE_CHECKING:
    from tradewind.model.catalog import Catalog

__all__ = ["catalogs_of", "running_tiers"]


def catalogs_of(plan: Plan, catalog: Catalog) -> Mapping[str, Catalog]:
    """Return for each gateway the catalog with prices and rates of the links on which its machine sends."""
    overlay = plan.overlay
    if overlay is None:
        return {gateway.name: catalog for gateway in plan.gateways}
    usual = catalog.with_standard_tier(overlay.standard_at)
    if not overlay.mixed_at:
        return {gateway.name: usual for gateway in plan.gateways}
    other = catalog.with_standard_tier((*overlay.standard_at, *overlay.mixed_at))
    return {each.name: other if each.network_tier == "standard" else usual for each in plan.gateways}


def running_tiers(plan: Plan) -> dict[Region, NetworkTier]:
    """Return the network tiers of a plan's machines, by region, where there is a choice.

    Regions whose machines have both are not among them.
    """
    overlay = plan.overlay
    machines = () if overlay is None else overlay.machines
    return {
        each.region: each.network_tier
        for each in machines
        if each.network_tier is not None and overlay is not None and each.region not in overlay.mixed_at
    }
