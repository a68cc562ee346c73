"""Run planned overlays: compare rate, shares and cost with the plan, and with the direct path."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.sky.table import Table
from testbed.sky import valid
from tradewind.catalog.load import load_catalog
from tradewind.engine.job_control import JobControl
from tradewind.engine.launch_spec import planned_launch
from tradewind.engine.provisioning import pace_bytes_per_s, plan_gateways
from tradewind.engine.request import Options
from tradewind.fleet.sky_catalog import sky_catalog
from tradewind.model.goal import Cheapest, Fastest, Goal, MaxCost
from tradewind.model.region import Region
from tradewind.planner.network import PlanningLimits
from tradewind.sky.file import network_from_document
from tradewind.sky.network import EmulatedNetwork
from tradewind.sky.running import Sky

SOURCE, SINK = Region.parse("azure:canadacentral"), Region.parse("gcp:asia-northeast1")
#: The example of Skyplane's Fig. 1, with a hundredth of its rates and the measured round trips.
WORLD: dict[str, Any] = {
    "scale": 0.01,
    "regions": {
        "azure:canadacentral": {"machines": 2, "egress": "16Gbit/s", "ingress": "16Gbit/s"},
        "azure:westus2": {"machines": 2, "egress": "16Gbit/s", "ingress": "16Gbit/s"},
        "gcp:asia-northeast1": {"machines": 2, "egress": "7Gbit/s", "ingress": "16Gbit/s"},
    },
    "links": [
        {"between": ["azure:canadacentral", "gcp:asia-northeast1"], "rtt_ms": 155, "rate": "6.17Gbit/s"},
        {"between": ["azure:canadacentral", "azure:westus2"], "rtt_ms": 60, "rate": "14Gbit/s"},
        {"between": ["azure:westus2", "gcp:asia-northeast1"], "rtt_ms": 95, "rate": "8Gbit/s"},
    ],
}
#: One object is one chunk: 16 MiB, scaled like the rates.
OBJECT_BYTES = 164 << 10
SECONDS = 60.0


def measure_overlay(quick: bool) -> Table:
    """Run the cheapest plan (direct), the fastest, and one that mixes both under a ceiling, for a minute each."""
    network = network_from_document(WORLD, Path())
    goals: list[tuple[str, Goal, int]] = [
        ("cheapest, one machine", Cheapest(), 1),
        ("fastest, one machine", Fastest(), 1),
        ("at most 0.10 USD/GB", MaxCost(0.0), 2),
        ("fastest, two machines", Fastest(), 2),
    ]
    rows = [_row(network, *goal, 10.0 if quick else SECONDS) for goal in goals]
    columns = [
        "goal",
        "plan",
        "predicted [Mbit/s]",
        "achieved [Mbit/s]",
        "achieved",
        "egress cost",
        "largest deviation of a share",
    ]
    return Table("Planned overlays, executed", columns, rows)


def _row(network: EmulatedNetwork, name: str, goal: Goal, machines: int, seconds: float) -> list[Any]:
    catalog, limits = sky_catalog(network, load_catalog()), PlanningLimits(machines_per_region=machines)
    fastest = plan_gateways(catalog, SOURCE, SINK, 1.0, Fastest(), limits).overlay
    assert fastest is not None
    volume_gb = fastest.throughput_gbps / 8 * seconds
    wanted = MaxCost(0.10 * volume_gb) if isinstance(goal, MaxCost) else goal
    plan = plan_gateways(catalog, SOURCE, SINK, volume_gb, wanted, limits)
    overlay = plan.overlay
    assert overlay is not None
    count = round(volume_gb * 1e9 / OBJECT_BYTES)
    options = Options(recursive=True, chunk_bytes=OBJECT_BYTES, limit_bytes_per_s=pace_bytes_per_s(plan))
    with tempfile.TemporaryDirectory(prefix="tradewind-overlay-") as state, Sky.up(network) as sky:
        control = JobControl(state_dir=state)
        launch = planned_launch(plan, {"kind": "sky", "sky": str(sky.folder)})
        source = f"mem:?objects={count}&size_bytes={OBJECT_BYTES}"
        progress = valid(sky, lambda: control.start(source, "mem:", options, launch).wait()).progress
    carried = {hop.name: hop.bytes / progress.bytes_done for hop in progress.hops}
    off = max(abs(carried[" → ".join(route.nodes)] - route.share) for route in plan.routes)
    rate_gbps = progress.bytes_done * 8e-9 / progress.elapsed_s
    predicted_usd = overlay.cost.egress_usd * progress.bytes_done / 1e9 / volume_gb
    return [
        name,
        "; ".join(f"{' → '.join(r.name for r in route.regions)} {route.share:.0%}" for route in overlay.routes),
        f"{overlay.throughput_gbps * 1e3:.1f}",
        f"{rate_gbps * 1e3:.1f}",
        f"{rate_gbps / overlay.throughput_gbps:.1%}",
        f"{progress.cost_usd / predicted_usd:.2%} of predicted",
        f"{off:.1%}",
    ]
