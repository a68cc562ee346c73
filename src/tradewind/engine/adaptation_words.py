"""Words for the reasons and results of a change of routes."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from tradewind.model.units import format_gbps

if TYPE_CHECKING:
    from tradewind.engine.rates import SlowRoutes
    from tradewind.model.plan import Plan

__all__ = ["closed_words", "route_names", "shortfall_words"]


def closed_words(places: Collection[str]) -> str:
    """Return which places were closed: `s3://a and s3://b were closed`."""
    return f"{' and '.join(places)} {'was' if len(places) == 1 else 'were'} closed"


def shortfall_words(plan: Plan, seen: SlowRoutes) -> str:
    """Return which route of a plan falls short most, and by how much."""
    worst = seen.under[0]
    places = {gateway.name: gateway.region for gateway in plan.gateways}
    regions = [places[name] for name in worst]
    kind = "link" if len(regions) == 2 else "route"
    carried, promised = format_gbps(seen.carried_gbps[worst]), format_gbps(seen.planned_gbps[worst])
    return f"{kind} {' → '.join(regions)} carries {carried} of {promised}"


def route_names(plan: Plan) -> str:
    """Return `60% over azure:westus2, 40% direct`."""
    routes = sorted(plan.overlay.routes, key=lambda route: -route.share) if plan.overlay else []
    relays = (" and ".join(map(str, route.regions[1:-1])) for route in routes)
    paths = (f"over {names}" if names else "direct" for names in relays)
    return ", ".join(f"{route.share:.0%} {path}" for route, path in zip(routes, paths, strict=True))
