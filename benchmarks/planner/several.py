"""Several destinations: compare one plan that shares links with one plan per destination and with direct copies."""

from __future__ import annotations

import time

from benchmarks.planner.grids import Grids
from benchmarks.planner.section import Section, table
from tradewind.model.goal import MinThroughput
from tradewind.model.region import Region
from tradewind.planner.multicast import compare_multicast, prepare_multicast, solve_multicast
from tradewind.planner.network import PlanningLimits

SETS = {
    "one cloud, two continents": ("aws:us-east-1", ("aws:eu-west-1", "aws:eu-central-1")),
    "one source, two clouds in Asia": ("aws:us-west-2", ("gcp:asia-northeast2", "azure:koreacentral")),
    "one cloud to another, three places in Europe": (
        "azure:eastus",
        ("gcp:europe-west1", "gcp:europe-west4", "gcp:europe-north1"),
    ),
    "one source, three clouds": ("gcp:us-central1", ("aws:ap-southeast-2", "azure:australiaeast", "gcp:asia-south1")),
    "around the world": (
        "aws:us-east-1",
        ("aws:eu-west-1", "aws:ap-northeast-1", "aws:sa-east-1", "aws:ap-southeast-2"),
    ),
}
"""Typical sets of destinations for replication."""
MACHINES = 4
RATE_GBPS = 4.0
"""Rate to each destination. Direct copies reach it with these machines, except where the table says otherwise."""
VOLUME_GB = 100.0


def several(grids: Grids, sets_max: int | None) -> Section:
    """Return the section with a table of a few sets."""
    rows: list[list[str]] = []
    for name, (source, destinations) in list(SETS.items())[:sets_max]:
        rows += _compared(grids, name, source, destinations)
    header = ["set", "plan", "rate to each", "USD", "× shared", "machines", "done after", "gap", "CPU-s"]
    lines = [
        *table(header, rows),
        f"{VOLUME_GB:g} GB to each at {RATE_GBPS:g} Gbit/s or more, at most {MACHINES} machines per region, November "
        "received. The shared plan pays for a link once, however many destinations it serves; relays and destinations "
        "duplicate the bytes. No plan is better by more than its gap. Each separate plan may use all machines. If "
        "together they need more than is allowed, they run one after another, and `done after` counts that.",
        "",
        "The sets: "
        + "; ".join(f"*{name}* {source} → {', '.join(ends)}" for name, (source, ends) in SETS.items())
        + ".",
    ]
    return Section("Several destinations", tuple(lines))


def _compared(grids: Grids, name: str, source: str, destinations: tuple[str, ...]) -> list[list[str]]:
    start_s = time.process_time()
    made = prepare_multicast(
        grids.november,
        Region.parse(source),
        [Region.parse(end) for end in destinations],
        VOLUME_GB,
        PlanningLimits(machines_per_region=MACHINES),
    )
    plan = solve_multicast(made, MinThroughput(RATE_GBPS))
    spent_s = time.process_time() - start_s
    rows = []
    for number, line in enumerate(compare_multicast(made, plan)):
        rows.append(
            [
                name if number == 0 else "",
                line.name,
                f"{line.throughput_gbps:.2f}",
                f"{line.cost_usd:.2f}",
                f"{line.cost_usd / plan.cost.total_usd:.2f}×",
                str(line.machines),
                f"{line.time_s:.0f} s",
                f"{plan.gap:.1%}" if number == 0 else "",
                f"{spent_s:.1f}" if number == 0 else "",
            ]
        )
    return rows
