"""The catalogs to plan with: two measured grids with the paper's machines and prices, and synthetic ones."""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tradewind.model.catalog import Catalog, Grid, Link
from tradewind.model.machine import MachineOffer, MachineType
from tradewind.model.origin import Origin
from tradewind.model.price import EgressPrice, PriceBook, PriceTier
from tradewind.model.region import Region
from tradewind.planner.network import FlowNetwork, PlanningLimits, build_network
from tradewind.planner.plan import Transfer, prepare

GRID_FOLDER = Path(__file__).resolve().parents[3] / "shared" / "grid"
"""Folder of the measured grids, beside the repository, which does not contain them."""
VOLUME_GB = 50.0
"""As in §7.3 of the paper."""
CLOUDS = ("aws", "azure", "gcp")
CAPS = {"aws": (5.0, 10.0, 1.536), "azure": (16.0, 16.0, 1.536), "gcp": (7.0, 16.0, 1.5539)}
"""Egress and ingress [Gbit/s] and price [USD/h] of m5.8xlarge, Standard_D32_v5 and n2-standard-32."""
MEASURED = Origin("measured", "shared/grid", "")
MADE = Origin("assumed", "made from a seed", "")


@dataclass(frozen=True)
class Grids:
    """The folder with the measured grids."""

    folder: Path

    @cached_property
    def january(self) -> Catalog:
        """January 2022, rates as sent: the grid of the paper."""
        return measured_catalog(self.folder, "2022-01", "sent_gbps")

    @cached_property
    def november(self) -> Catalog:
        """November 2022, rates as received."""
        return measured_catalog(self.folder, "2022-11", "received_gbps")

    def missing(self) -> str | None:
        """Why the benchmark cannot run here, or None."""
        files = ["throughput_2022-01.csv", "throughput_2022-11.csv", "egress_price_2022.csv"]
        absent = [name for name in files if not (self.folder / name).is_file()]
        return f"{absent[0]} is not in the grid folder (--grid DIR)" if absent else None


def measured_catalog(folder: Path, month: str, column: str) -> Catalog:
    """Return a catalog with the paper's machines and prices and a measured grid."""
    links, prices = {}, {}
    with (folder / f"throughput_{month}.csv").open() as table:
        for row in csv.DictReader(table):
            links[Region.parse(row["src"]), Region.parse(row["dst"])] = Link(float(row[column]), MEASURED)
    with (folder / "egress_price_2022.csv").open() as table:
        for row in csv.DictReader(table):
            tier = PriceTier(0.0, float(row["usd_per_gb"]))
            prices[Region.parse(row["src"]), Region.parse(row["dst"])] = EgressPrice((tier,), MEASURED)
    return Catalog({}, PriceBook(prices), Grid(links), paper_machines())


def synthetic_catalog(region_count: int, seed: int = 5) -> Catalog:
    """Return a catalog of `region_count` regions with random links of 0.5 to 12 Gbit/s and random prices."""
    rng = random.Random(seed)
    regions = [Region(CLOUDS[i % 3], f"r{i}") for i in range(region_count)]
    links = {(a, b): Link(rng.uniform(0.5, 12), MADE) for a in regions for b in regions if a != b}
    prices = {p: EgressPrice((PriceTier(0.0, rng.choice([0.02, 0.05, 0.09, 0.12])),), MADE) for p in links}
    return Catalog({}, PriceBook(prices), Grid(links), paper_machines())


def paper_machines() -> dict[str, tuple[MachineOffer, ...]]:
    """Return one machine type per provider."""
    offers: dict[str, tuple[MachineOffer, ...]] = {}
    for provider, (egress, ingress, usd_per_hour) in CAPS.items():
        machine = MachineType(provider, f"{provider}-32", 32, 16, egress, ingress, 0.0, MEASURED)
        offers[provider] = (MachineOffer(machine, usd_per_hour, spot=False, origin=MEASURED),)
    return offers


def network_of(catalog: Catalog, machines: int) -> FlowNetwork:
    """Return the network of all regions, with at most `machines` in each."""
    return build_network(catalog, PlanningLimits(machines_per_region=machines))


def transfer(
    catalog: Catalog,
    src: Region | str,
    dst: Region | str,
    machines: int,
    *,
    volume_gb: float = VOLUME_GB,
    network: FlowNetwork | None = None,
) -> Transfer:
    """Return a transfer with at most ``machines`` per region."""
    source, destination = (end if isinstance(end, Region) else Region.parse(end) for end in (src, dst))
    return prepare(
        catalog, source, destination, volume_gb, PlanningLimits(machines_per_region=machines), network=network
    )
