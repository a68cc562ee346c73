"""Placement problems for tests, from a seed."""

from __future__ import annotations

import math
import random
from typing import Any

from tradewind.placement.problem import PlacementProblem, problem_from_document

__all__ = ["document", "one_region", "problem"]


def document(seed: int, flows: int, regions: int, **changes: Any) -> dict[str, Any]:
    """Return the document of a random problem: points on a map, whose distances are round trips."""
    rng = random.Random(seed)

    def point() -> tuple[float, float]:
        return rng.uniform(0, 150), rng.uniform(0, 60)

    places = [point() for _ in range(regions)]
    ends = [(point(), point()) for _ in range(flows)]
    return {
        "regions": [
            {
                "name": f"r{number}",
                "capacity_mbps": rng.choice([1000, 2000]),
                "setup_cents": rng.choice([0, 50]),
                "egress_cents_per_gb": rng.choice([0, 8]),
                "max_instances": rng.choice([1, 2, 5]),
            }
            for number in range(regions)
        ],
        "rtt_ms": [[0.5 if a == b else math.dist(a, b) for b in places] for a in places],
        "flows": [
            {
                "id": f"f{number}",
                "size_bytes": rng.choice([5e8, 2e9]),
                "src_last_mile_mbps": rng.choice([None, 400, 1000]),
                "dst_last_mile_mbps": rng.choice([500, 1000]),
                "rtt_direct_ms": math.dist(src, dst) * 1.2,
                "rtt_src_to_region_ms": [math.dist(src, place) for place in places],
                "rtt_region_to_dst_ms": [math.dist(place, dst) for place in places],
            }
            for number, (src, dst) in enumerate(ends)
        ],
        "budget_cents": rng.choice([0, 60, 50 * flows]),
        **changes,
    }


def one_region(flows: dict[str, dict[str, Any]], budget_cents: float, **region: Any) -> PlacementProblem:
    """Return a problem of one region, 10 ms from all ends of the flows, whose last mile is `mbps`."""
    made = [
        {
            "id": name,
            "size_bytes": flow["size_bytes"],
            "src_last_mile_mbps": flow["mbps"],
            "rtt_direct_ms": 300,
            "rtt_src_to_region_ms": [10],
            "rtt_region_to_dst_ms": [10],
        }
        for name, flow in flows.items()
    ]
    regions = [{"name": "r", **region}]
    table = {"regions": regions, "rtt_ms": [[0]], "flows": made, "budget_cents": budget_cents}
    return problem_from_document(table, "problem")


def problem(seed: int, flows: int, regions: int, **changes: Any) -> PlacementProblem:
    """Return a random problem."""
    return problem_from_document(document(seed, flows, regions, **changes), "problem")
