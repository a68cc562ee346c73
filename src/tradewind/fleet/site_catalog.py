"""The catalog of the places where a user may run gateways: what their providers offer there, joined by known links."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from tradewind.fleet.boots import BootKind, UsualBoot
from tradewind.fleet.provider import ANY_TYPE, Offer
from tradewind.model.catalog import Catalog, Grid, Link
from tradewind.model.machine import MachineOffer, MachineType
from tradewind.model.origin import Origin
from tradewind.model.price import EgressPrice, PriceTier
from tradewind.model.records import dataclass, replace
from tradewind.model.region import Region, RegionInfo
from tradewind.model.units import SECONDS_PER_HOUR

__all__ = ["ASSUMED_GBPS", "NOWHERE", "Supply", "site_catalog"]

#: Rate that a machine sends and receives if nobody states it [Gbit/s].
ASSUMED_GBPS = 1.0
#: Continent of regions that the catalog does not know. No price list names it, so only rules for all regions apply.
NOWHERE = "unknown"
HOST = "host"
"""Name of the machine type of hosts, which have no types."""


@dataclass(frozen=True, slots=True)
class Supply:
    """Offers of a region. `left` is the number of machines that may still be started; None if unknown. `provider` is
    the kind of the provider that makes them.
    """

    offers: tuple[Offer, ...]
    left: int | None = None
    provider: str = ""


def site_catalog(
    supplies: Mapping[Region, Supply], base: Catalog, boots: Mapping[BootKind, UsualBoot] | None = None
) -> Catalog:
    """Return the catalog of the regions with offers. `boots` has the learned starts of machines; a plan waits until
    bytes move.

    A machine type that `base` knows has its caps from there, and prices from the offer. Between two regions that `base`
    does not connect, a link carries what the slower of both machines does. Egress between regions without a price is
    free. Standard network tiers are those of `base`.
    """
    supplies = {region: supply for region, supply in supplies.items() if supply.offers}
    assumed = Origin("assumed", "the caps of the machines", "")
    free = EgressPrice((PriceTier(0.0, 0.0),), Origin("assumed", "no price list names this region", ""))
    places = {
        region: base.places.get(region) or RegionInfo(region, region.name, 0.0, 0.0, NOWHERE) for region in supplies
    }
    offers = {
        region: tuple(
            _learned(region, offer, supply.provider, boots or {})
            for offer in _machine_offers(region, supply.offers, base)
        )
        for region, supply in supplies.items()
    }
    links, pairs = {}, dict(base.prices.pairs)
    for src, dst in itertools.permutations(supplies, 2):
        out = max(offer.machine.egress_gbps for offer in offers[src])
        into = max(offer.machine.ingress_gbps for offer in offers[dst])
        links[src, dst] = base.grid.link(src, dst) or Link(min(out, into), assumed)
        if base.prices.egress(places[src], places[dst]) is None:
            pairs[src, dst] = free
    quotas = {region: supply.left for region, supply in supplies.items() if supply.left is not None}
    return Catalog(
        places,
        replace(base.prices, pairs=pairs),
        Grid(links),
        offers={},
        region_offers=offers,
        quotas={**{region: left for region, left in base.quotas.items() if region in supplies}, **quotas},
        quota_origins=base.quota_origins,
        stores=base.stores,
        standard_tiers=base.standard_tiers,
        standard_links={pair: link for pair, link in base.standard_links.items() if pair in links},
    )


def _machine_offers(region: Region, offers: Sequence[Offer], base: Catalog) -> Iterator[MachineOffer]:
    known = {(offer.machine.name, offer.spot): offer for offer in base.machine_offers(region)}
    hosts = [offer for offer in offers if offer.type == ANY_TYPE]
    if hosts:
        yield _host_offer(region, hosts)
    for offer in offers:
        if offer.type != ANY_TYPE:
            yield _typed_offer(region, offer, known.get((offer.type, offer.spot)))


def _learned(region: Region, offer: MachineOffer, provider: str, boots: Mapping[BootKind, UsualBoot]) -> MachineOffer:
    """Return an offer with the start that was learned for its type, if any was."""
    usual = boots.get(BootKind(provider, str(region), offer.machine.name))
    if usual is None:
        return offer
    return replace(offer, machine=replace(offer.machine, boot_s=usual.moves_s, boot_origin=usual.origin))


def _typed_offer(region: Region, offer: Offer, known: MachineOffer | None) -> MachineOffer:
    """Return the offer of a machine type: with the caps that the catalog knows, else those that the provider states."""
    origin = Origin("imported", offer.price_source, "")
    if known is None:
        egress, ingress = _cap_gbps(offer.egress_gbps), _cap_gbps(offer.ingress_gbps)
        nic = max(egress, ingress)
        stated = Origin("imported", f"the provider's offer in {region}", "")
        machine = MachineType(region.provider, offer.type, 1, nic, egress, ingress, offer.boot_s, stated)
    else:
        machine = replace(known.machine, boot_s=offer.boot_s or known.machine.boot_s)
    machine = replace(machine, billed_s_min=max(machine.billed_s_min, offer.billing.least_s))
    if known is not None and math.isclose(known.usd_per_s, offer.usd_per_s, rel_tol=1e-6):
        origin = known.origin
    return MachineOffer(machine, offer.usd_per_s * SECONDS_PER_HOUR, offer.spot, origin)


def _host_offer(region: Region, hosts: Sequence[Offer]) -> MachineOffer:
    """Return the offer of a region's hosts. They may differ, and any of them may be used: it promises what all hold."""
    origin = Origin("imported", "the configuration", "")
    egress = min(_cap_gbps(host.egress_gbps) for host in hosts)
    ingress = min(_cap_gbps(host.ingress_gbps) for host in hosts)
    usd_per_hour = max(host.usd_per_s for host in hosts) * SECONDS_PER_HOUR
    boot_s = max(host.boot_s for host in hosts)
    machine = MachineType(region.provider, HOST, 1, max(egress, ingress), egress, ingress, boot_s, origin)
    return MachineOffer(machine, usd_per_hour, spot=False, origin=origin)


def _cap_gbps(stated: float) -> float:
    return stated if math.isfinite(stated) and stated > 0 else ASSUMED_GBPS
