"""Generate a sky file from regions of a catalog: their links and the caps of their machines."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.errors import UsageError
from tradewind.fleet.sky_catalog import data_per_wire
from tradewind.model.catalog import Catalog
from tradewind.model.region import Region
from tradewind.sky.file import MTU_BYTES

__all__ = ["sky_world"]


def sky_world(
    catalog: Catalog,
    regions: Sequence[Region],
    scale: float,
    *,
    machines: Mapping[Region, int] | None = None,
    names: Mapping[Region, str] | None = None,
) -> dict[str, Any]:
    """Return the JSON of a sky file (docs/reference/sky.md) with the catalog's data of these regions.

    A catalog's rates count data; they are converted to rates on the wire. A region's machines are of the fastest type
    on offer there.

    Args:
        catalog: source of links and machine types.
        regions: regions of the sky. A pair without rate or round trip in the catalog gets no link.
        scale: factor by which the sky multiplies every rate.
        machines: number of machines per region, by default one.
        names: names of the machines, by default their region's.

    Raises:
        UsageError: a region has no machine on offer.
    """
    links = []
    for src, dst in itertools.permutations(regions, 2):
        link = catalog.grid.link(src, dst)
        if link is not None and link.rtt_ms is not None:
            links.append({"from": str(src), "to": str(dst), "rtt_ms": link.rtt_ms, "rate": _rate(link.gbps)})
    entries = {}
    for region in regions:
        entry = _region(catalog, region)
        if machines and region in machines:
            entry["machines"] = machines[region]
        if names and region in names:
            entry["name"] = names[region]
        entries[str(region)] = entry
    return {"scale": scale, "regions": entries, "links": links}


def _region(catalog: Catalog, region: Region) -> dict[str, Any]:
    offers = [offer.machine for offer in catalog.machine_offers(region) if not offer.spot]
    if not offers:
        raise UsageError(f"the catalog has no machine in {region}")
    fastest = max(offers, key=lambda machine: (machine.egress_gbps, machine.ingress_gbps))
    return {"egress": _rate(fastest.egress_gbps), "ingress": _rate(fastest.ingress_gbps)}


def _rate(data_gbps: float) -> str:
    return f"{data_gbps / data_per_wire(MTU_BYTES) * 1e3:.3f}Mbit/s"
