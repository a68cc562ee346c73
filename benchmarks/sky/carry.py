"""Run plans with gateways in the machines of a sky, memory to memory, and measure rate and cost."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.sky.table import INVALID, Figure
from testbed.drive import find_binary
from testbed.sky import valid
from tradewind.engine.job_control import JobControl
from tradewind.engine.launch_spec import LaunchSpec, planned_launch
from tradewind.engine.provisioning import chunk_bytes_for, pace_bytes_per_s, with_memory_for
from tradewind.engine.request import Options
from tradewind.engine.running import RunningJob
from tradewind.errors import SkyInvalid
from tradewind.fleet.sky_catalog import data_per_wire
from tradewind.model.event import Progress
from tradewind.model.job import MIN_FILE_CHUNK_BYTES
from tradewind.model.overlay import UnicastOverlay
from tradewind.planner.gateways import assign_gateways
from tradewind.sky.file import MTU_BYTES
from tradewind.sky.running import Sky

#: An object must be a single chunk, because each gateway of a destination stores what it receives.
OBJECT_BYTES = MIN_FILE_CHUNK_BYTES
#: A transfer is steady after this time, and until this fraction of its bytes has been acknowledged.
WARMUP_S = 2.0
STEADY_PART = 0.8


@dataclass(frozen=True)
class Carried:
    """The result of one transfer. Rates count data, and are scaled like the sky's."""

    mbps: float
    """Mean rate of the whole transfer, from the first connection to the last acknowledgement."""
    steady_mbps: float
    """Rate on the wire without start and end, converted to data: the rate of a long transfer."""
    egress_usd_per_gb: float | None
    """None if it was not counted."""


def carry(sky: Sky, scale: float, overlay: UnicastOverlay, seconds: float) -> Carried:
    """Move as many bytes as the plan predicts for `seconds`, through its gateways. Raises TradewindError."""
    plan = assign_gateways(overlay, lead_region=str(overlay.source))
    count = max(64, math.ceil(overlay.throughput_gbps * 1e9 / 8 * seconds / OBJECT_BYTES))
    chunk_bytes = chunk_bytes_for(plan, scale, OBJECT_BYTES)
    launch = planned_launch(with_memory_for(plan, chunk_bytes), {"kind": "sky", "sky": str(sky.folder)})
    marks: list[tuple[float, int]] = []

    def watch(_: RunningJob, report: Progress) -> None:
        if report.elapsed_s >= WARMUP_S and report.bytes_done <= STEADY_PART * count * OBJECT_BYTES:
            marks.append((report.elapsed_s, _arrived_bytes(sky, str(overlay.routes[0].regions[-1]))))

    progress = carry_launch(launch, count, chunk_bytes, pace_bytes_per_s(plan), watch)
    if len(marks) < 2:
        raise RuntimeError(f"{count * OBJECT_BYTES} bytes are too few to see a rate in")
    (began_s, began), (ended_s, ended) = marks[0], marks[-1]
    steady_mbps = (ended - began) * data_per_wire(MTU_BYTES) * 8e-6 / (ended_s - began_s)
    return Carried(progress.bytes_per_s * 8e-6, steady_mbps, progress.cost_usd / (progress.bytes_done / 1e9))


def _arrived_bytes(sky: Sky, region: str) -> int:
    """Return the bytes on the wire that all links have delivered to a region so far."""
    machines = {machine.name for machine in sky.machines_in(region)}
    return sum(path.wire_bytes for path in sky.stats().paths if path.dst in machines and path.src not in machines)


def carry_launch(
    launch: LaunchSpec,
    objects: int,
    chunk_bytes: int,
    limit_bytes_per_s: int | None,
    watch: Callable[[RunningJob, Progress], None] | None = None,
    *,
    object_bytes: int = OBJECT_BYTES,
) -> Progress:
    """Move objects from memory to memory; `watch` gets each report. Raises TradewindError."""
    options = Options(recursive=True, chunk_bytes=chunk_bytes, limit_bytes_per_s=limit_bytes_per_s)
    with tempfile.TemporaryDirectory(prefix="tradewind-bench-") as state:
        control = JobControl(state_dir=state, gateway=str(find_binary("tradewind-gateway")))
        job = control.start(f"mem:?objects={objects}&size_bytes={object_bytes}", "mem:", options, launch)

        def see(event: object) -> None:
            if watch is not None and isinstance(event, Progress):
                watch(job, event)

        return job.wait(see).progress


def carried(sky: Sky, scale: float, overlay: UnicastOverlay, seconds: float) -> Carried | None:
    """Call `carry`, repeatedly while the emulator is late; return None if it always is."""
    try:
        return valid(sky, lambda: carry(sky, scale, overlay, seconds))
    except SkyInvalid:
        return None


def rates(overlay: UnicastOverlay, done: Carried | None) -> list[Figure]:
    """Return the predicted and the steady rate [Mbit/s], and the steady as a fraction of the predicted rate."""
    predicted_mbps = overlay.throughput_gbps * 1e3
    if done is None:
        return [predicted_mbps, INVALID, INVALID]
    return [predicted_mbps, done.steady_mbps, done.steady_mbps / predicted_mbps]
