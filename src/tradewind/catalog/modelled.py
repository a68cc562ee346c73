"""The modelled grid: a rate for every pair of regions, from caps and distance, used until a better figure is known.

    gbps = cap / (1 + (km / half_km) ** steepness)

with three parameters per ordered pair of providers, fitted to published profiles. `benchmarks/planner` prints the
model's error against measured grids.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tradewind.model.catalog import Link
from tradewind.model.origin import Origin
from tradewind.model.records import dataclass
from tradewind.model.region import Region, RegionInfo

__all__ = ["LinkModel", "distance_km", "modelled_links"]

EARTH_RADIUS_KM = 6371.0
RTT_BASE_MS = 3.0
RTT_MS_PER_KM = 0.016
"""The round trip of light in fibre takes 0.01 ms/km; routes are longer than great circles. Fitted, median error 16%."""
RTT_ORIGIN = Origin("modelled", "great-circle distance", "", f"{RTT_BASE_MS:g} ms + {RTT_MS_PER_KM:g} ms/km")
KM_MIN = 50.0
"""Minimum distance: two providers in one city are not 0 km apart."""


@dataclass(frozen=True, slots=True)
class LinkModel:
    """Parameters of the rate as a function of distance between two providers."""

    cap_gbps: float
    half_km: float
    steepness: float
    origin: Origin

    def gbps(self, km: float) -> float:
        """Return the rate over a distance."""
        return self.cap_gbps / (1 + math.pow(max(km, KM_MIN) / self.half_km, self.steepness))


def distance_km(a: RegionInfo, b: RegionInfo) -> float:
    """Return the great-circle distance (haversine)."""
    lat_a, lon_a, lat_b, lon_b = map(math.radians, (a.latitude_deg, a.longitude_deg, b.latitude_deg, b.longitude_deg))
    half = math.sin((lat_b - lat_a) / 2) ** 2 + math.cos(lat_a) * math.cos(lat_b) * math.sin((lon_b - lon_a) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(half)))


def modelled_links(
    places: Mapping[Region, RegionInfo], models: Mapping[tuple[str, str], LinkModel]
) -> Iterator[tuple[tuple[Region, Region], Link]]:
    """Yield a link for every ordered pair of places whose providers have a model."""
    for src in places.values():
        for dst in places.values():
            model = models.get((src.region.provider, dst.region.provider))
            if model is not None and src.region != dst.region:
                km = distance_km(src, dst)
                rtt_ms = RTT_BASE_MS + RTT_MS_PER_KM * km
                yield (src.region, dst.region), Link(model.gbps(km), model.origin, rtt_ms, RTT_ORIGIN)
