"""Learns the rates of links from a finished transfer.

The lead reports the bytes that each route has carried. A hop's rate is the sum of the rates of its routes. One hop of a
route is the bottleneck, according to the catalog before the transfer, and only its rate counts as the link's rate. The
rates of the others, and of a transfer that was limited on purpose, are lower bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.errors import GatewayError
from tradewind.model.job import JobSpec
from tradewind.model.plan import Deployment, Plan, PlannedHop, PlannedRoute
from tradewind.model.program import CONNECTIONS_MAX
from tradewind.model.records import dataclass
from tradewind.model.region import Region

if TYPE_CHECKING:
    from tradewind.catalog.learned import Sample
    from tradewind.model.catalog import Catalog

__all__ = ["EMULATED", "SAMPLE_BYTES_MIN", "SAMPLE_S_MIN", "RouteWatch", "measurable_hops", "moving", "record_samples"]

EMULATED = frozenset({"guest", "sky"})
"""Kinds of provider whose regions are emulated: their rates are not real."""
SAMPLE_BYTES_MIN = 256 << 20
SAMPLE_S_MIN = 10.0
"""Minimum bytes and duration of a hop to learn from; in less, connections were still opening."""
SCALED_CONNECTIONS_MIN = 16
"""Minimum connections of a hop whose rate is scaled up to 64 connections, for which the catalog has its rates."""

ARROW = " → "
"""Between the stations of a route in the lead's reports."""

Hop = tuple[str, str]


@dataclass(slots=True)
class _Activity:
    """Times of one route: of the last report before new bytes arrived, and of the last report with them."""

    bytes: int = 0
    from_s: float = 0.0
    to_s: float = 0.0


class RouteWatch:
    """Bytes and duration of each route, from the lead's progress."""

    def __init__(self) -> None:
        self._routes: dict[str, _Activity] = {}

    def see(self, progress: Mapping[str, Any]) -> None:
        """Record one progress document."""
        elapsed_s = float(progress.get("elapsed_s", 0.0))
        for route in progress.get("hops", ()):
            known = self._routes.setdefault(route["name"], _Activity())
            if route["bytes"] > known.bytes:
                known.bytes, known.to_s = route["bytes"], elapsed_s
            elif known.bytes == 0:
                known.from_s = elapsed_s

    def of(self, routes: Iterable[PlannedRoute]) -> tuple[int, float]:
        """Return the bytes of all these routes, and the seconds in which at least one was active; zeros if none was."""
        count_bytes, seconds, until_s = 0, 0.0, float("-inf")
        for known in sorted(map(self._activity, routes), key=lambda known: known.from_s):
            if known.bytes:
                count_bytes += known.bytes
                seconds += max(0.0, known.to_s - max(known.from_s, until_s))
                until_s = max(until_s, known.to_s)
        return count_bytes, seconds

    def times(self) -> dict[str, tuple[float, float]]:
        """Return the seconds of a run between which each route carried bytes, by its name."""
        return {name: (known.from_s, known.to_s) for name, known in list(self._routes.items()) if known.bytes}

    def _activity(self, route: PlannedRoute) -> _Activity:
        stations = [node for node, before in zip(route.nodes, (None, *route.nodes), strict=False) if node != before]
        return self._routes.get(ARROW.join(stations), _Activity())


def moving(progress: Mapping[str, Any]) -> set[str]:
    """Return the gateways on whose routes bytes have moved, from a progress document."""
    return {name for route in progress.get("hops", ()) if route["bytes"] for name in route["name"].split(ARROW)}


def measurable_hops(plan: Plan, deployment: Deployment) -> dict[Hop, tuple[Region, Region]]:
    """Return the hops between different regions, by the regions of the plan's gateways.

    Leaves out a hop that ends at this machine, whatever region its gateway has in the topology, unless the hop has a
    detour, which may lead anywhere.
    """
    places = {gateway.name: gateway.region for gateway in plan.gateways}
    found = {}
    for start, end in plan.stations():
        try:
            src, dst = Region.parse(places[start]), Region.parse(places[end])
        except ValueError:
            continue
        away = (start, end) in deployment.detours or not _is_loopback(deployment, start, end)
        if away and src != dst and "site:local" not in (str(src), str(dst)):
            found[start, end] = (src, dst)
    return found


def _is_loopback(deployment: Deployment, start: str, end: str) -> bool:
    import ipaddress

    try:
        ends = (start, end) if deployment.upstream_dials(start, end) else (end, start)
        return ipaddress.ip_address(deployment.address(*ends).rpartition(":")[0].strip("[]")).is_loopback
    except (GatewayError, KeyError, ValueError):
        return False


def record_samples(
    folder: Path,
    job_id: str,
    spec: JobSpec,
    plan: Plan,
    hops: Mapping[Hop, tuple[Region, Region]],
    watch: RouteWatch,
    *,
    date: str,
) -> int:
    """Record the rates of a successful transfer in the user's part of the catalog. Returns the number of links.

    Raises:
        ConfigError: the user's catalog cannot be read.
        OSError: it cannot be written.
    """
    if not hops or spec.compress or spec.deduplicate or spec.dry_run:
        # Rates of routes count the bytes of objects, more than the links carried.
        return 0
    from tradewind.catalog.learned import store_samples
    from tradewind.catalog.load import load_catalog

    samples = samples_of(load_catalog(folder), spec, plan, hops, watch, source=f"job {job_id}", date=date)
    return len(samples) if samples and store_samples(folder, samples) else 0


def samples_of(
    catalog: Catalog,
    spec: JobSpec,
    plan: Plan,
    hops: Mapping[Hop, tuple[Region, Region]],
    watch: RouteWatch,
    *,
    source: str,
    date: str,
) -> list[Sample]:
    """Return one sample per hop between two known regions, if the hop carried enough."""
    from tradewind.catalog.learned import Sample

    known = set(catalog.places) | set(catalog.grid.regions())
    connections = {(hop.start, hop.end): hop for hop in plan.hops}
    limiting = _bottlenecks(catalog, plan, hops, connections)
    samples = []
    for hop, (src, dst) in hops.items():
        count_bytes, seconds = watch.of(route for route in plan.routes if hop in _hops_of(route))
        if count_bytes < SAMPLE_BYTES_MIN or seconds < SAMPLE_S_MIN or not {src, dst} <= known:
            continue
        rate_gbps = count_bytes * 8 / 1e9 / seconds
        number = connections[hop].connections
        at_least = hop not in limiting or spec.rate_limit_bytes_per_s is not None or number < SCALED_CONNECTIONS_MIN
        link_gbps = rate_gbps if number < SCALED_CONNECTIONS_MIN else rate_gbps * CONNECTIONS_MAX / number
        link_gbps = min(link_gbps, _cap_gbps(catalog, src, dst))
        amounts = link_gbps, at_least, number, count_bytes, seconds
        tier = "" if src.provider == dst.provider else plan.network_tier_of(hop[0]) or ""
        samples.append(Sample(src, dst, *amounts, _machine(plan, src), source, date, tier))
    return samples


def _hops_of(route: PlannedRoute) -> list[Hop]:
    return list(zip(route.nodes, route.nodes[1:], strict=False))


def _bottlenecks(
    catalog: Catalog,
    plan: Plan,
    hops: Mapping[Hop, tuple[Region, Region]],
    connections: Mapping[Hop, PlannedHop],
) -> set[Hop]:
    """Return the hops that are the expected bottleneck of every route through them.

    A route with a hop between unknown places has none, because that hop may be the bottleneck.
    """
    from tradewind.engine.sending_tiers import catalogs_of

    known = catalogs_of(plan, catalog)
    regions = {gateway.name: gateway.region for gateway in plan.gateways}
    found: set[Hop] = set()
    ruled_out: set[Hop] = set()
    for route in plan.routes:
        between = [hop for hop in _hops_of(route) if regions[hop[0]] != regions[hop[1]]]
        believed = {}
        for hop in between:
            link = known[hop[0]].grid.link(*hops[hop]) if hop in hops else None
            if link is not None:
                believed[hop] = link.gbps * connections[hop].connections
        if len(believed) == len(between) and believed:
            least = min(believed, key=lambda hop: believed[hop])
            found.add(least)
            ruled_out.update(hop for hop in between if hop != least)
        else:
            ruled_out.update(between)
    return found - ruled_out


def _cap_gbps(catalog: Catalog, src: Region, dst: Region) -> float:
    """Return the maximum rate of any machine pair; infinite if no machine is known."""
    out = max((offer.machine.egress_gbps for offer in catalog.machine_offers(src)), default=float("inf"))
    into = max((offer.machine.ingress_gbps for offer in catalog.machine_offers(dst)), default=float("inf"))
    return min(out, into)


def _machine(plan: Plan, region: Region) -> str:
    """Return the machine type of the plan in a region; empty if it has several types or none."""
    types = {of.offer.machine.name for of in plan.overlay.machines if of.region == region} if plan.overlay else set()
    return types.pop() if len(types) == 1 else ""
