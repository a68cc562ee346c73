"""The regions that can connect: where gateways accept connections, and pairs of regions of which neither end can.

A hop needs one end that the other can dial. `Deployment.upstream_dials` decides the same from the addresses of machines
that run; here it is known before any machine is ordered, from the configuration.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import Any

from tradewind.model.hosts import in_region
from tradewind.model.records import dataclass
from tradewind.model.region import Region
from tradewind.model.sites import Cloud, Sites

__all__ = ["OPEN", "Reach", "reach_of", "unconnected", "why_unconnected"]


@dataclass(frozen=True, slots=True)
class Reach:
    """The connections that gateways of a region accept.

    `network` is the name of a network of several regions: gateways with the same name connect to each other
    nevertheless. `why` says why they accept none from elsewhere. `can_be_joined`: the cloud's setting `joined` would
    make one network of its regions.
    """

    inbound: bool = True
    network: str | None = None
    why: str = ""
    can_be_joined: bool = False


OPEN = Reach()
"""Gateways that accept connections from everywhere."""


def why_unconnected(src: Reach, dst: Reach) -> str | None:
    """Return why no hop is possible between gateways of two regions; None if one end can dial the other."""
    is_joined = src.network is not None and src.network == dst.network
    if src.inbound or dst.inbound or is_joined:
        return None
    if src.why != dst.why:
        return f"{src.why}, {dst.why}"
    return f"{src.why} and not `joined = true`" if src.can_be_joined else src.why


def reach_of(sites: Sites, region: Region) -> Reach:
    """Return how gateways of a region are reached, by the configuration. Regions without a provider are `OPEN`."""
    text = str(region)
    if text in sites.hosts.regions:
        closed = [host.name for host in in_region(sites.hosts.hosts, text) if not host.inbound]
        return Reach(False, why=f"host {closed[0]} has `inbound = false`") if closed else OPEN
    cloud = next((cloud for cloud in sites.clouds if cloud.has(text)), None)
    return OPEN if cloud is None else _of_cloud(cloud, text)


def _of_cloud(cloud: Cloud, region: str) -> Reach:
    settings: Mapping[str, Any] = cloud.settings
    if "clusters" in settings:
        out = [each for each in settings["clusters"] if each["region"] == region and each["network"] == "out"]
        return Reach(False, why=f'cluster {out[0]["context"]} has `network = "out"`') if out else OPEN
    if settings.get("public_address", True):
        return OPEN
    # The network of Google Cloud spans its regions; those of the others do if the user has joined them.
    is_joined = settings.get("joined", cloud.kind == "gcp")
    why = f"[{cloud.kind}] has `public_address = false`"
    return Reach(False, cloud.kind if is_joined else None, why, can_be_joined=not is_joined)


def unconnected(sites: Sites, regions: Collection[Region]) -> dict[tuple[Region, Region], str]:
    """Return the ordered pairs of these regions without a possible hop, each with the reason."""
    reaches = {region: reach_of(sites, region) for region in regions}
    closed = [region for region, reach in reaches.items() if not reach.inbound]
    found: dict[tuple[Region, Region], str] = {}
    for src, dst in itertools.permutations(closed, 2):
        if (why := why_unconnected(reaches[src], reaches[dst])) is not None:
            found[src, dst] = why
    for first, second in sites.fleet.unconnected:
        for pair in ((first, second), (second, first)):
            src, dst = map(Region.parse, pair)
            if src in reaches and dst in reaches:
                found[src, dst] = "[fleet] lists them as `unconnected`"
    return found
