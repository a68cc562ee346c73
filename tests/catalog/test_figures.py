"""Check the packaged figures with other data: locations with measured round trips and Azure's own coordinates."""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from pathlib import Path

import pytest

from tradewind.catalog.load import load_catalog
from tradewind.catalog.modelled import distance_km
from tradewind.model.region import Region, RegionInfo

GRID = Path(__file__).parents[3] / "shared" / "grid"
LIGHT_MS_PER_KM = 2 / 200.0
"""Round-trip time per km in fibre, where light travels at 200,000 km/s."""
CITY_KM = 60.0
"""Tolerance of a location: data centres are around a city, not in its centre."""

AZURE_LIST_LOCATIONS = """\
southafricanorth -25.73134 28.21837; australiaeast -33.86 151.2094; australiasoutheast -37.8136 144.9631
centralindia 18.5822 73.9197; eastasia 22.267 114.188; japaneast 35.68 139.77; japanwest 34.6939 135.5022
koreacentral 37.5665 126.978; southindia 12.9822 80.1636; southeastasia 1.283 103.833; canadacentral 43.653 -79.383
canadaeast 46.817 -71.217; francecentral 46.3772 2.373; germanywestcentral 50.110924 8.682127
northeurope 53.3478 -6.2597
norwayeast 59.913868 10.752245; swedencentral 60.67488 17.14127; switzerlandnorth 47.451542 8.564572
uksouth 50.941 -0.799; ukwest 53.427 -3.084; westeurope 52.3667 4.9; qatarcentral 25.551462 51.439327
uaenorth 25.266666 55.316666; brazilsouth -23.55 -46.633; centralus 41.5908 -93.6208; eastus 37.3719 -79.8164
eastus2 36.6681 -78.3889; northcentralus 41.8819 -87.6278; southcentralus 29.4167 -98.5; westcentralus 40.89 -110.234
westus 37.783 -122.417; westus2 47.233 -119.852; westus3 33.448376 -112.074036"""
"""`az account list-locations`, 2022: name, latitude, longitude."""

needs_grid = pytest.mark.skipif(not GRID.is_dir(), reason="needs the measured round trips in ../shared/grid")


def rtts() -> dict[tuple[Region, Region], float]:
    """The minimum round trip of each ordered pair [ms]."""
    with (GRID / "rtt_2022-04.csv").open() as table:
        rows = csv.DictReader(table)
        return {(Region.parse(row["src"]), Region.parse(row["dst"])): float(row["min_rtt_ms"]) for row in rows}


def bound_ms(places: dict[Region, RegionInfo], a: Region, b: Region) -> float:
    """Return the minimum round trip of light between two places whose cities are known [ms]."""
    return max(0.0, distance_km(places[a], places[b]) - 2 * CITY_KM) * LIGHT_MS_PER_KM


@needs_grid
def test_no_round_trip_is_faster_than_light() -> None:
    """Checks AWS and Azure. Pings to Google were sometimes answered by other machines: London to Sydney in 0.9 ms."""
    places = dict(load_catalog().places)
    measured = {pair: ms for pair, ms in rtts().items() if "gcp" not in (pair[0].provider, pair[1].provider)}
    assert len(measured) > 1500
    too_far = [(*pair, ms) for pair, ms in measured.items() if ms < bound_ms(places, *pair)]
    assert too_far == []


@needs_grid
def test_google_locations_match_nearly_all_round_trips() -> None:
    places, measured = dict(load_catalog().places), rtts()
    by_region: dict[Region, list[bool]] = defaultdict(list)
    for (a, b), ms in measured.items():
        for region in {a, b}:
            if region.provider == "gcp":
                # Use the slower of the two directions: only one of them was answered by another machine.
                slower = max(ms, measured.get((b, a), 0.0))
                by_region[region].append(slower >= bound_ms(places, a, b))
    assert len(by_region) >= 25
    for region, agreed in by_region.items():
        assert sum(agreed) / len(agreed) > 0.97, region


@needs_grid
def test_no_location_is_on_the_wrong_side_of_the_globe() -> None:
    """A round trip takes 1.3 to 3 times as long as light. A wrong sign would show in a region's median."""
    places = dict(load_catalog().places)
    ratios: dict[Region, list[float]] = defaultdict(list)
    for (a, b), ms in rtts().items():
        km = distance_km(places[a], places[b])
        if km > 1000:
            ratios[a].append(ms / (km * LIGHT_MS_PER_KM))
    assert len(ratios) > 60
    for region, of in ratios.items():
        assert 1.3 < statistics.median(of) < 3.0, region


def test_azure_locations_match_its_api() -> None:
    """If the API has only the centre of a country or state, the location is near it."""
    places = load_catalog().places
    listed = [entry.split() for line in AZURE_LIST_LOCATIONS.splitlines() for entry in line.split(";")]
    assert len(listed) == 33
    for name, latitude, longitude in listed:
        region = Region("azure", name)
        there = RegionInfo(region, "", float(latitude), float(longitude), "")
        km = distance_km(places[region], there)
        assert km < (CITY_KM if places[region].origin.kind == "published" else 600), name


def test_regions_of_one_name_are_on_one_continent() -> None:
    """Prices depend on the continent. A mistake would price a region by another continent's list."""
    bounds = {
        "africa": (-35, 38, -20, 52),
        "asia": (-11, 56, 60, 150),
        "europe": (35, 72, -25, 45),
        "middle-east": (12, 43, 25, 63),
        "north-america": (14, 73, -170, -50),
        "oceania": (-48, 0, 110, 180),
        "south-america": (-56, 13, -82, -34),
    }
    for place in load_catalog().places.values():
        south, north, west, east = bounds[place.continent]
        assert south < place.latitude_deg < north, place
        assert west < place.longitude_deg < east, place


def test_unpublished_figures_are_marked_as_assumed() -> None:
    catalog = load_catalog()
    for offers in catalog.offers.values():
        for offer in offers:
            assert offer.machine.boot_origin.kind == "assumed"
            assert offer.machine.origin.kind == "published"
            assert offer.machine.origin.source
            assert offer.machine.origin.date
            assert offer.origin.kind == ("assumed" if offer.spot else "published")
    assert catalog.places[Region("aws", "us-west-2")].origin.kind == "assumed"
    assert catalog.places[Region("aws", "ap-northeast-1")].origin.kind == "published"


def test_network_caps_follow_the_providers_rules() -> None:
    """AWS: 5 Gbit/s out of the region below 32 vCPUs, else half of the NIC's rate, at least 5. Google: 7 in public."""
    for provider, offers in load_catalog().offers.items():
        for machine in {offer.machine for offer in offers}:
            if provider == "aws":
                half = max(5.0, machine.nic_gbps / 2) if machine.vcpus >= 32 else 5.0
                assert machine.egress_gbps == min(machine.nic_gbps, half), machine.name
            elif provider == "gcp":
                assert machine.egress_gbps == 7.0
            else:
                assert machine.egress_gbps == machine.nic_gbps
            assert machine.ingress_gbps <= machine.nic_gbps


def test_prices_rise_with_size_within_a_family() -> None:
    for offers in load_catalog().offers.values():
        families: dict[str, list[float]] = defaultdict(list)
        for offer in offers:
            name = offer.machine.name
            family = name.split(".")[0] if "." in name else "".join(c for c in name if not c.isdigit())
            if not offer.spot:
                families[family].append(offer.usd_per_hour / offer.machine.vcpus)
        for per_vcpu in families.values():
            assert max(per_vcpu) == pytest.approx(min(per_vcpu), rel=0.002)
