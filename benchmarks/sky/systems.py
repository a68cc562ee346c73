"""Run Table 2 of the Skyplane paper: GridFTP, the direct path, RON's route, and two plans, memory to memory."""

from __future__ import annotations

import csv
from dataclasses import replace

from benchmarks.planner.grids import GRID_FOLDER, measured_catalog
from benchmarks.sky.carry import Carried, carried
from benchmarks.sky.gridftp import START_S, fetch_s
from benchmarks.sky.machines import BETWEEN, World
from benchmarks.sky.table import INVALID, Figure, Table
from testbed.sky import valid
from tradewind.catalog.load import load_catalog
from tradewind.errors import SkyInvalid
from tradewind.model.catalog import Catalog, Grid
from tradewind.model.goal import MaxCost, MinThroughput
from tradewind.model.overlay import UnicastOverlay
from tradewind.planner.baseline import gridftp, ron
from tradewind.planner.plan import solve_overlay
from tradewind.sky.running import Sky

SCALE = 0.003
#: The grid that the paper measured.
RTTS = "rtt_2022-04.csv"
MEASURED = ("throughput_2022-01.csv", "egress_price_2022.csv", RTTS)
#: Duration of a run. Connecting takes the first one or two seconds.
SECONDS = 66.0
MACHINES = 4
VOLUME_GB = 16
#: Rate of the paper's cost-optimised plan, as a multiple of the direct path's with one machine.
TIMES_DIRECT = 2.27
#: Cost of the paper's throughput-optimised plan, as a multiple of the direct path's.
TIMES_COST = 1.14
#: GridFTP's streams: as many as our gateways have connections.
STREAMS = 64
#: Timeout of a GridFTP run, as a multiple of the planned time.
PATIENCE = 8
COLUMNS = (
    "method",
    "predicted [Gbit/s]",
    "measured [Gbit/s]",
    "measured / predicted",
    "time [s]",
    "cost [USD]",
    "predicted [USD]",
)


def measure_systems(quick: bool) -> Table:
    """Measure with the links of the packaged model."""
    return _measure(load_catalog(), "by the packaged model", quick)


def measure_systems_2022(quick: bool) -> Table:
    """Measure with the paper's grid, January 2022 as received. Return an empty table if the grid is missing."""
    absent = [name for name in MEASURED if not (GRID_FOLDER / name).is_file()]
    if absent:
        reason = (
            f"{absent[0]} is not in the folder of the measured grids, {GRID_FOLDER.name} in {GRID_FOLDER.parent.name}"
        )
        return Table(f"Table 2 of the Skyplane paper on the grid of January 2022: left out, {reason}", COLUMNS)
    return _measure(_january(), "on the grid of January 2022", quick)


def _january() -> Catalog:
    """Return the catalog with January's received rates and April's round trips, the earliest available."""
    catalog = measured_catalog(GRID_FOLDER, "2022-01", "received_gbps")
    with (GRID_FOLDER / RTTS).open() as table:
        rtt_ms = {(row["src"], row["dst"]): float(row["avg_rtt_ms"]) for row in csv.DictReader(table)}
    links = {
        (src, dst): replace(link, rtt_ms=rtt_ms.get((str(src), str(dst))))
        for (src, dst), link in catalog.grid.links.items()
    }
    return replace(catalog, grid=Grid(links))


def _measure(base: Catalog, where: str, quick: bool) -> Table:
    """Return one row per method. Time and cost are computed for 16 GB at full scale from the measured rate."""
    table = Table(
        f"Table 2 of the Skyplane paper {where}: {VOLUME_GB} GB, {BETWEEN[0]} → {BETWEEN[1]}, rates × {SCALE:g} undone",
        COLUMNS,
    )
    seconds = 5.0 if quick else SECONDS
    world = World(BETWEEN, MACHINES, SCALE, base)
    with world.sky as sky:
        straight = world.straight(1)
        alone = gridftp(world.transfer(1))
        assert alone is not None, "there is a direct link"
        table.rows.append(_row("GridFTP (1 machine)", alone, _gridftp(sky, alone, seconds)))
        transfer = world.transfer(MACHINES)
        relayed = ron(transfer)
        assert relayed is not None, "there is a path"
        enough, most = straight.throughput_gbps * TIMES_DIRECT, straight.cost.total_usd * TIMES_COST
        plans = {
            "Tradewind (1 machine, direct)": straight,
            f"Tradewind on RON's route ({MACHINES} machines)": relayed,
            f"Tradewind (cheapest at {TIMES_DIRECT} × direct)": solve_overlay(transfer, MinThroughput(enough)),
            f"Tradewind (fastest for {TIMES_COST} × the cost of direct)": solve_overlay(transfer, MaxCost(most)),
        }
        for name, plan in plans.items():
            table.rows.append(_row(name, plan, carried(sky, SCALE, plan, seconds)))
    return table


def _row(name: str, plan: UnicastOverlay, done: Carried | None) -> list[Figure]:
    predicted_gbps, predicted_usd = plan.throughput_gbps / SCALE, plan.cost.total_usd / SCALE
    if done is None:
        return [name, predicted_gbps, INVALID, INVALID, INVALID, INVALID, predicted_usd]
    measured_gbps = done.mbps / 1e3 / SCALE
    machines_usd_per_s = sum(each.count * each.offer.usd_per_s for each in plan.machines) / SCALE
    egress_usd = plan.cost.egress_usd / SCALE if done.egress_usd_per_gb is None else done.egress_usd_per_gb * VOLUME_GB
    time_s = VOLUME_GB * 8 / measured_gbps
    usd = egress_usd + machines_usd_per_s * (plan.boot_s + time_s)
    return [name, predicted_gbps, measured_gbps, measured_gbps / predicted_gbps, time_s, usd, predicted_usd]


def _gridftp(sky: Sky, plan: UnicastOverlay, seconds: float) -> Carried | None:
    """Run GridFTP memory to memory in clear text, with as many streams as a gateway has connections."""
    source, sink = (sky.machines_in(region)[0] for region in BETWEEN[:2])
    size_bytes = round(plan.throughput_gbps * 1e9 / 8 * seconds)
    patience_s = seconds * PATIENCE + START_S

    def measure() -> Carried:
        took_s = fetch_s(sky, source, sink, streams=STREAMS, size_bytes=size_bytes, patience_s=patience_s)
        mbps = size_bytes * 8e-6 / took_s
        return Carried(mbps, mbps, None)

    try:
        return valid(sky, measure)
    except SkyInvalid:
        return None
