"""From the globe to the picture: great circles, and a view of the world that fits the routes.

The map is equirectangular, true to shape at the middle latitude of the window, and rotated to cut no route.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from importlib.resources import files

from tradewind.model.records import dataclass
from tradewind.model.region import RegionInfo

__all__ = ["Window", "coastlines", "great_circle", "window_on"]

Point = tuple[float, float]
"""Longitude and latitude in degrees, or x and y in pixels."""

DEGREES_PER_SAMPLE = 2.0
SAMPLES_MIN = 24
"""Minimum samples of a short route, which may fill the whole window."""
TRUE_LATITUDE_MAX_DEG = 55.0
"""Maximum latitude of the middle; beyond it the map would be compressed too much."""
SPAN_MIN_DEG = 36.0
"""Minimum extent of the window, so that regions of one country appear with their surroundings."""
FILL_WIDE, FILL_HIGH = 0.74, 0.66
"""Share of the window that routes may fill; the rest is for labels and legend."""
MIDDLES_APART_DEG = 5
"""Step between the longitudes tried for the middle of the map."""
LATITUDE_SHOWN_MAX_DEG = 84.0


def great_circle(start: RegionInfo, end: RegionInfo) -> list[Point]:
    """Return the shortest path over the globe as longitudes and latitudes; longitudes continue beyond ±180."""
    a, b = _vector(start), _vector(end)
    angle = math.acos(max(-1.0, min(1.0, sum(p * q for p, q in zip(a, b, strict=True)))))
    if angle < 1e-9 or angle > math.pi - 1e-6:  # one place, or antipodes, where every path is shortest
        return [(start.longitude_deg, start.latitude_deg), (end.longitude_deg, end.latitude_deg)]
    steps = max(SAMPLES_MIN, math.ceil(math.degrees(angle) / DEGREES_PER_SAMPLE))
    points: list[Point] = []
    for step in range(steps + 1):
        along = step / steps
        of_a, of_b = math.sin((1 - along) * angle) / math.sin(angle), math.sin(along * angle) / math.sin(angle)
        x, y, z = (of_a * p + of_b * q for p, q in zip(a, b, strict=True))
        longitude = math.degrees(math.atan2(y, x))
        if points:
            longitude += 360.0 * round((points[-1][0] - longitude) / 360.0)
        points.append((longitude, math.degrees(math.atan2(z, math.hypot(x, y)))))
    return points


def _vector(place: RegionInfo) -> tuple[float, float, float]:
    lat, lon = math.radians(place.latitude_deg), math.radians(place.longitude_deg)
    return math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)


@dataclass(frozen=True, slots=True)
class Window:
    """The visible part of the world, and its size."""

    width: float
    height: float
    longitude_deg: float
    latitude_deg: float
    x_per_deg: float
    y_per_deg: float

    def xy(self, point: Point) -> Point:
        """Return the pixels of a longitude and latitude; longitudes opposite the middle may be on either side."""
        longitude, latitude = point
        return (
            self.width / 2 + (longitude - self.longitude_deg) * self.x_per_deg,
            self.height / 2 - (latitude - self.latitude_deg) * self.y_per_deg,
        )

    def home(self, place: RegionInfo) -> Point:
        """Return the position of a place, turned by multiples of 360° to the one closest to the middle."""
        return self.xy((_near(place.longitude_deg, self.longitude_deg), place.latitude_deg))

    def lines(self, points: Sequence[Point]) -> list[list[Point]]:
        """Return the pixels of a line that begins where its first place is drawn.

        If the line leaves over one edge of the world and returns over the other, its last place is a turn away; then
        a second copy of the line ends there.
        """
        turns = {_near(lon, self.longitude_deg) - lon for lon in (points[0][0], points[-1][0])}
        return [[self.xy((lon + turn, lat)) for lon, lat in points] for turn in sorted(turns)]


def window_on(lines: Sequence[Sequence[Point]], width: float, height: float) -> Window:
    """Return the window that shows all lines with a margin, cut where it cuts the fewest of them."""
    tried = [float(at) for at in range(-180, 180, MIDDLES_APART_DEG)]
    (cuts, _), middle = min((_cuts_and_reach(lines, at), at) for at in tried)
    longitudes = [_near(lon, middle) for line in lines for lon, _ in line]
    latitudes = [lat for line in lines for _, lat in line]
    if not cuts:
        middle = (min(longitudes) + max(longitudes)) / 2
    low, high = min(latitudes), max(latitudes)
    squeeze = math.cos(math.radians(min(abs(low + high) / 2, TRUE_LATITUDE_MAX_DEG)))
    wide = max(max(longitudes) - min(longitudes), SPAN_MIN_DEG)
    tall = max(high - low, SPAN_MIN_DEG * squeeze * height / width)
    y_per_deg = min(FILL_WIDE * width / (wide * squeeze), FILL_HIGH * height / tall)
    x_per_deg = max(y_per_deg * squeeze, width / 360.0)
    y_per_deg = min(x_per_deg / squeeze, FILL_HIGH * height / tall)
    half_deg = height / 2 / y_per_deg
    latitude = (low + high) / 2
    latitude = max(min(latitude, LATITUDE_SHOWN_MAX_DEG - half_deg), half_deg - LATITUDE_SHOWN_MAX_DEG)
    return Window(width, height, middle, latitude, x_per_deg, y_per_deg)


def _cuts_and_reach(lines: Sequence[Sequence[Point]], middle: float) -> tuple[int, float]:
    """Return how many lines cross the edge of a map around this longitude, and how near [deg] the closest end is."""
    cuts, reach = 0, 0.0
    for line in lines:
        longitudes = [_near(lon, middle) for lon, _ in line]
        cuts += any(abs(a - b) > 180.0 for a, b in itertools.pairwise(longitudes))
        reach = max(reach, abs(longitudes[0] - middle), abs(longitudes[-1] - middle))
    return cuts, reach


def _near(longitude: float, middle: float) -> float:
    return longitude + 360.0 * round((middle - longitude) / 360.0)


def coastlines() -> Iterator[list[Point]]:
    """Yield closed rings of land; a ring within another is water. Rings over the date line continue beyond ±180."""
    text = (files("tradewind.catalog") / "data" / "coastlines.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if not line.startswith("#"):
            pairs = (point.split(",") for point in line.split())
            yield [(float(lon), float(lat)) for lon, lat in pairs]
