"""Small random catalogs for the planner, made from a seed."""

from __future__ import annotations

import random

from tradewind.model.catalog import Catalog, Grid, Link
from tradewind.model.machine import MachineOffer, MachineType
from tradewind.model.origin import Origin
from tradewind.model.price import EgressPrice, PriceBook, PriceTier
from tradewind.model.region import Region

MADE = Origin("assumed", "made for a test", "")


def offer(provider: str, egress_gbps: float, ingress_gbps: float, usd_per_hour: float, boot_s: float) -> MachineOffer:
    name = f"{provider}-{egress_gbps:g}"
    machine = MachineType(provider, name, 8, max(egress_gbps, ingress_gbps), egress_gbps, ingress_gbps, boot_s, MADE)
    return MachineOffer(machine, usd_per_hour, spot=False, origin=MADE)


def random_world(seed: int, region_count: int, *, boot_s: float = 0.0, types: int = 1) -> Catalog:
    """Return a catalog of regions ``p:r0`` … with random links, prices, caps and machine prices."""
    rng = random.Random(seed)
    regions = [Region("pq"[i % 2], f"r{i}") for i in range(region_count)]
    links, prices = {}, {}
    for src in regions:
        for dst in regions:
            if src != dst and rng.random() < 0.85:
                links[src, dst] = Link(round(rng.uniform(0.3, 12.0), 2), MADE)
                prices[src, dst] = EgressPrice((PriceTier(0.0, rng.choice([0.01, 0.02, 0.05, 0.09, 0.12])),), MADE)
    offers = {
        provider: tuple(
            offer(provider, rng.choice([3, 5, 7, 10]), rng.choice([8, 10, 16]), rng.uniform(0.2, 40.0), boot_s)
            for _ in range(types)
        )
        for provider in ("p", "q")
    }
    return Catalog({}, PriceBook(prices), Grid(links), offers)
