"""File size: one volume in objects of 1 KB to 1 GB, memory to memory over one link of the emulated WAN."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.plots import Frame, line_plot
from benchmarks.sky.carry import carry_launch
from benchmarks.sky.cpu import GatewayCpu
from benchmarks.sky.machines import BETWEEN, World
from benchmarks.sky.table import INVALID, Figure, Table
from testbed.sky import valid
from tradewind.engine.launch_spec import planned_launch
from tradewind.engine.provisioning import chunk_bytes_for, with_memory_for
from tradewind.errors import SkyInvalid
from tradewind.model.job import MIN_FILE_CHUNK_BYTES
from tradewind.model.overlay import UnicastOverlay
from tradewind.planner.gateways import assign_gateways
from tradewind.planner.routes import region_name
from tradewind.sky.running import Sky

#: 2 Gbit/s become 300 Mbit/s.
SCALE = 0.15
#: Volume of each run. The largest object is all of it.
VOLUME_BYTES = 1_000_000_000
SIZES = {
    "1 KB": 1_000,
    "10 KB": 10_000,
    "100 KB": 100_000,
    "1 MB": 1_000_000,
    "10 MB": 10_000_000,
    "100 MB": 100_000_000,
    "1 GB": 1_000_000_000,
}
QUICK_VOLUME_BYTES, QUICK_SIZES = 20_000_000, ("10 KB", "1 MB")


@dataclass(frozen=True)
class _Run:
    """One transfer."""

    elapsed_s: float
    cpu_s: float
    """CPU time of source and sink."""
    lead_cpu_s: float


def measure_sizes(quick: bool) -> Table:
    """Return one row per size of the objects."""
    volume_bytes = QUICK_VOLUME_BYTES if quick else VOLUME_BYTES
    sizes = {name: SIZES[name] for name in QUICK_SIZES} if quick else SIZES
    world = World(BETWEEN[:2], 1, SCALE)
    overlay = world.straight(1)
    planned_mbps = overlay.throughput_gbps * 1e3
    table = Table(
        f"{volume_bytes / 1e6:,.0f} MB in objects of each size, {BETWEEN[0]} → {BETWEEN[1]}, rates × {SCALE:g}: "
        f"planned {planned_mbps:.0f} Mbit/s",
        [
            "object",
            "objects",
            "time [s]",
            "objects/s",
            "data [Mbit/s]",
            "of the planned rate",
            "source and sink [CPU-s/GB]",
            "[CPU-µs/object]",
            "lead [CPU-s/GB]",
        ],
    )
    rates: list[Figure] = []
    with world.sky as sky:
        for name, size_bytes in sizes.items():
            figures = _figures(sky, overlay, volume_bytes // size_bytes, size_bytes)
            table.rows.append([name, volume_bytes // size_bytes, *figures])
            rates.append(figures[2])
    frame = Frame(
        "Rate over object size", "object size [MB]", "Mbit/s", logarithmic=True, limit=(planned_mbps, "planned")
    )
    table.picture = line_plot(frame, [size_bytes / 1e6 for size_bytes in sizes.values()], {"measured": rates})
    return table


def _figures(sky: Sky, overlay: UnicastOverlay, objects: int, size_bytes: int) -> list[Figure]:
    """Return the columns after the number of objects."""
    try:
        run = valid(sky, lambda: _run(sky, overlay, objects, size_bytes))
    except SkyInvalid:
        return [INVALID] * 7
    data_gb = objects * size_bytes / 1e9
    rate_gbps = data_gb * 8 / run.elapsed_s
    return [
        run.elapsed_s,
        objects / run.elapsed_s,
        rate_gbps * 1e3,
        rate_gbps / overlay.throughput_gbps,
        run.cpu_s / data_gb,
        round(run.cpu_s / objects * 1e6),
        run.lead_cpu_s / data_gb,
    ]


def _run(sky: Sky, overlay: UnicastOverlay, objects: int, size_bytes: int) -> _Run:
    plan = assign_gateways(overlay, lead_region=str(overlay.source))
    chunk_bytes = chunk_bytes_for(plan, SCALE, MIN_FILE_CHUNK_BYTES)
    launch = planned_launch(with_memory_for(plan, chunk_bytes), {"kind": "sky", "sky": str(sky.folder)})
    with GatewayCpu() as cpu:
        progress = carry_launch(launch, objects, chunk_bytes, None, object_bytes=size_bytes)
    ends_s = sum(cpu.of(region_name(region)) for region in overlay.routes[0].regions)
    return _Run(progress.elapsed_s, ends_s, cpu.of("lead"))
