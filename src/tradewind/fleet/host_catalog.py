"""The catalog of the user's own hosts: their caps and prices as machine types, joined by the links of the catalog."""

from __future__ import annotations

import itertools
from collections import Counter

from tradewind.model.catalog import Catalog, Grid, Link
from tradewind.model.hosts import SshHost, SshHosts, in_region
from tradewind.model.machine import MachineOffer, MachineType
from tradewind.model.origin import Origin
from tradewind.model.price import EgressPrice, PriceTier
from tradewind.model.records import replace
from tradewind.model.region import Region, RegionInfo

__all__ = ["host_catalog"]

#: Rate that a host sends and receives if the configuration does not say it [Gbit/s].
ASSUMED_GBPS = 1.0
#: Typical time until a gateway on a host answers.
BOOT_S = 2.0
#: Continent of regions that the catalog does not know. No price list names it, so only rules for all regions apply.
NOWHERE = "unknown"


def host_catalog(hosts: SshHosts, base: Catalog) -> Catalog:
    """Return the catalog of the regions that have hosts.

    Between two regions that `base` does not connect, a link carries what the slower of both hosts does. Egress between
    regions without a price is free.
    """
    origin = Origin("imported", "the configuration", "")
    assumed = Origin("assumed", "the caps of the hosts", "")
    free = EgressPrice((PriceTier(0.0, 0.0),), Origin("assumed", "no price list names this region", ""))
    regions = [Region.parse(region) for region in hosts.regions]
    places = {
        region: base.places.get(region) or RegionInfo(region, region.name, 0.0, 0.0, NOWHERE) for region in regions
    }
    offers = {region: _offer(region, in_region(hosts.hosts, str(region)), origin) for region in regions}
    links, prices = {}, base.prices
    for src, dst in itertools.permutations(regions, 2):
        rate_gbps = min(offers[src].machine.egress_gbps, offers[dst].machine.ingress_gbps)
        links[src, dst] = base.grid.link(src, dst) or Link(rate_gbps, assumed)
        if prices.egress(places[src], places[dst]) is None:
            prices = replace(prices, pairs={**prices.pairs, (src, dst): free})
    quotas: Counter[Region] = Counter()
    for host in hosts.hosts:
        quotas[Region.parse(host.region)] += host.gateways
    region_offers = {region: (offer,) for region, offer in offers.items()}
    return Catalog(places, prices, Grid(links), offers={}, region_offers=region_offers, quotas=quotas)


def _offer(region: Region, hosts: list[SshHost], origin: Origin) -> MachineOffer:
    """Return the offer of a region. Its hosts may differ, and any of them may be taken: it promises what all hold."""
    egress = min(host.egress_gbps or ASSUMED_GBPS for host in hosts)
    ingress = min(host.ingress_gbps or ASSUMED_GBPS for host in hosts)
    usd_per_hour = max(host.usd_per_hour for host in hosts)
    machine = MachineType(region.provider, "host", 1, max(egress, ingress), egress, ingress, BOOT_S, origin)
    return MachineOffer(machine, usd_per_hour, spot=False, origin=origin)
