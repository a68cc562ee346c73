"""The plan of a job as its tenant sees it: routes, hops by region, machines, and a map to draw live rates on.

The lead reports the bytes of each route by its name. A hop's rate is the sum of the rates of its routes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tradewind.engine.learning import ARROW
from tradewind.model.plan import Plan, PlannedRoute
from tradewind.model.region import Region, RegionInfo
from tradewind.render.route_map import MappedHop, RouteMap, route_map

__all__ = ["NO_PLAN", "job_plan"]

#: Answer for a job that has not started.
NO_PLAN: Mapping[str, Any] = {"routes": [], "hops": [], "machines": [], "limits": [], "map": None}


def job_plan(plans: Sequence[Plan]) -> dict[str, Any]:
    """Return the latest plan, and the machines of earlier ones. `plans` are all plans of a job, the first one first."""
    plan = plans[-1]
    places = {gateway.name: gateway.region for gateway in plan.gateways}
    routes = [_route(plan, route, places) for route in plan.routes]
    drawn = None if plan.overlay is None else route_map(plan.overlay, _known_places())
    return {
        "routes": routes,
        "hops": _hops(routes, drawn),
        "machines": _machines(plans),
        "limits": [] if plan.overlay is None else list(plan.overlay.binding),
        "map": None if drawn is None else {"svg": drawn.svg, "width_px": drawn.width, "height_px": drawn.height},
    }


@cache
def _known_places() -> Mapping[Region, RegionInfo]:
    from tradewind.catalog.packaged import read_packaged

    return read_packaged().places


def _route(plan: Plan, route: PlannedRoute, places: Mapping[str, str]) -> dict[str, Any]:
    stations = [node for node, before in zip(route.nodes, (None, *route.nodes), strict=False) if node != before]
    share = route.share / sum(each.share for each in plan.routes)
    return {
        "name": ARROW.join(stations),
        "regions": [places[node] for node in stations],
        "share": share,
        "planned_gbps": None if plan.prediction is None else plan.prediction.throughput_gbps * share,
    }


def _hops(routes: Sequence[Mapping[str, Any]], drawn: RouteMap | None) -> list[dict[str, Any]]:
    """Return the hops between regions, in the order of the routes."""
    on_map: dict[tuple[str, str], MappedHop] = {}
    if drawn is not None:
        on_map = {(str(hop.src), str(hop.dst)): hop for hop in drawn.hops}
    users: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for route in routes:
        for pair in itertools.pairwise(route["regions"]):
            if pair[0] != pair[1]:
                users.setdefault(pair, []).append(route)
    found = []
    for pair, mine in users.items():
        planned = [route["planned_gbps"] for route in mine if route["planned_gbps"] is not None]
        hop = on_map.get(pair)
        found.append(
            {
                "src": pair[0],
                "dst": pair[1],
                "routes": [route["name"] for route in mine],
                "planned_gbps": sum(planned) if planned else None,
                "lines": [] if hop is None else [[_rounded(point) for point in line] for line in hop.lines],
                "figures_at": None if hop is None else _rounded(hop.figures_at),
            }
        )
    return found


def _rounded(point: tuple[float, float]) -> list[float]:
    return [round(at, 1) for at in point]


def _machines(plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """Return the machines of all plans. Those that the latest one does not use have ended."""
    latest = {name for route in plans[-1].routes for name in route.nodes}
    regions = {gateway.name: gateway.region for plan in plans for gateway in plan.gateways}
    passed = dict.fromkeys(name for plan in plans for route in plan.routes for name in route.nodes)
    heirs = _replacements(plans)
    return [
        {
            "name": name,
            "region": regions[name],
            "is_used": name in latest,
            "replaced_by": None if name in latest else heirs.get(name),
        }
        for name in passed
    ]


def _replacements(plans: Sequence[Plan]) -> dict[str, str]:
    """Return the machines that took the place of others: between two plans, only names have changed."""
    found = {}
    for before, after in itertools.pairwise(plans):
        if [each.region for each in before.gateways] == [each.region for each in after.gateways]:
            for old, new in zip(before.gateways, after.gateways, strict=True):
                if old.name != new.name:
                    found[old.name] = new.name
    return found
