"""Made-up regions: random points of the earth, with round trips by their distances."""

from __future__ import annotations

import numpy as np

from tradewind.catalog.modelled import EARTH_RADIUS_KM
from tradewind.placement.use_cases import Places

FIBRE_KM_PER_MS = 200.0
"""Speed of light in fibre."""
DETOUR = 1.5
"""Length of a route by that of the great circle."""
BASE_MS = 1.0


def sphere(regions: int, seed: int) -> Places:
    """Return random regions. The round trip of two is BASE_MS and that of light in fibre along a route."""
    points = np.random.default_rng(seed).normal(size=(regions, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    km = EARTH_RADIUS_KM * np.arccos(np.clip(points @ points.T, -1.0, 1.0))
    np.fill_diagonal(km, 0.0)
    return Places(tuple(f"p{number}" for number in range(regions)), BASE_MS + DETOUR * 2 * km / FIBRE_KM_PER_MS)
