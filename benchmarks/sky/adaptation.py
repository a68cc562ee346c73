"""Slow a link to a third during a transfer, and measure the rate of each route with and without replanning."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.plots import Frame, LinePlot, line_plots
from benchmarks.sky.carry import OBJECT_BYTES
from benchmarks.sky.table import INVALID, Table
from testbed.drive import find_binary
from testbed.sky import valid
from tradewind.catalog.load import load_catalog
from tradewind.engine.job_control import JobControl
from tradewind.engine.launch_spec import planned_launch
from tradewind.engine.provisioning import pace_bytes_per_s, plan_gateways, with_memory_for
from tradewind.engine.replan import PlanRequest
from tradewind.engine.request import Options
from tradewind.errors import SkyInvalid
from tradewind.fleet.sky_catalog import sky_catalog
from tradewind.model.event import Event, Notice, Progress
from tradewind.model.goal import MinThroughput
from tradewind.model.region import Region
from tradewind.planner.network import PlanningLimits
from tradewind.sky.file import network_from_document
from tradewind.sky.running import Sky

SOURCE, RELAY, OTHER, SINK = "azure:canadacentral", "azure:westus2", "azure:eastus", "gcp:asia-northeast1"
#: Scaled by a hundred, on the wire: direct 50 Mbit/s for each of two pairs of machines, over a relay 64.
WORLD: dict[str, Any] = {
    "scale": 0.01,
    "regions": {
        SOURCE: {"name": "source", "machines": 2, "egress": "16Gbit/s", "ingress": "16Gbit/s"},
        RELAY: {"name": "relay", "egress": "6.4Gbit/s", "ingress": "16Gbit/s"},
        OTHER: {"name": "other", "egress": "6.4Gbit/s", "ingress": "16Gbit/s"},
        SINK: {"name": "sink", "machines": 2, "egress": "16Gbit/s", "ingress": "16Gbit/s"},
    },
    "links": [
        {"between": [SOURCE, SINK], "rtt_ms": 155, "rate": "5Gbit/s"},
        {"between": [SOURCE, RELAY], "rtt_ms": 60, "rate": "14Gbit/s"},
        {"between": [RELAY, SINK], "rtt_ms": 95, "rate": "10Gbit/s"},
        {"between": [SOURCE, OTHER], "rtt_ms": 30, "rate": "14Gbit/s"},
        {"between": [OTHER, SINK], "rtt_ms": 160, "rate": "9Gbit/s"},
    ],
}
DIRECT_MBPS = 50.0
GOAL = MinThroughput(0.12)
#: Planned duration of the transfer, and time until the direct link slows to a third.
SECONDS, SLOW_AFTER_S = 75.0, 20.0
#: Interval over which rates are averaged.
STEP_S = 2.0


class Seen:
    """The progress reports of one transfer."""

    def __init__(self) -> None:
        self.reports: list[Progress] = []
        self.notices: list[str] = []
        self.slow_s: float | None = None

    def mbps(self, begin_s: float, end_s: float, way: str | None = None) -> float:
        """Return the mean rate of the routes over the relays `way`, or of all routes."""
        first, last = self._bytes(begin_s, way), self._bytes(end_s, way)
        return (last - first) * 8e-6 / (end_s - begin_s)

    def over_time(self, way: str | None = None) -> list[tuple[float, float]]:
        """Return the end of each interval and the mean rate in it."""
        count = int(self.reports[-1].elapsed_s / STEP_S)
        ends = [STEP_S * step for step in range(1, count + 1)]
        return [(end_s, self.mbps(end_s - STEP_S, end_s, way)) for end_s in ends]

    def _bytes(self, at_s: float, way: str | None) -> float:
        """Return the bytes acknowledged by a time, interpolated between reports."""
        before = (0.0, 0)
        for report in self.reports:
            count = sum(hop.bytes for hop in report.hops if way in (None, _way(hop.name)))
            if report.elapsed_s >= at_s:
                part = (at_s - before[0]) / (report.elapsed_s - before[0])
                return before[1] + part * (count - before[1])
            before = report.elapsed_s, count
        return before[1]


def measure_adaptation(quick: bool) -> Table:
    """Return one row without and one with `--replan`, and a plot of both over time, by route."""
    table = Table(
        f"A link that slows to a third after {SLOW_AFTER_S:.0f} s: Mbit/s",
        ["transfer", "before", "5 to 10 s after", "15 to 25 s after", "seconds in all", "what was said"],
    )
    seconds = SLOW_AFTER_S + 30.0 if quick else SECONDS
    seen_by_title: dict[str, Seen] = {}
    for replan, name in ((False, "without --replan"), (True, "with --replan")):
        with Sky.up(network_from_document(WORLD, Path())) as sky:
            try:
                seen = valid(sky, lambda sky=sky, replan=replan: _run(sky, seconds, replan))  # type: ignore[misc]
            except SkyInvalid:
                table.rows.append([name, *[INVALID] * 5])
                continue
        slow_s, end_s = seen.slow_s or 0.0, seen.reports[-1].elapsed_s
        table.rows.append(
            [
                name,
                seen.mbps(slow_s - 10, slow_s),
                seen.mbps(slow_s + 5, slow_s + 10),
                seen.mbps(slow_s + 15, slow_s + 25),
                end_s,
                "; ".join(seen.notices),
            ]
        )
        seen_by_title[f"{name}: the direct link slows at {slow_s:.0f} s"] = seen
    most = max((rate for seen in seen_by_title.values() for _, rate in seen.over_time()), default=0.0)
    table.picture = line_plots([_plot(title, seen, most) for title, seen in seen_by_title.items()])
    return table


def _run(sky: Sky, seconds: float, replan: bool) -> Seen:
    sky.set_link(SOURCE, SINK, rate_mbps=DIRECT_MBPS)
    catalog = sky_catalog(network_from_document(WORLD, Path()), load_catalog())
    limits = PlanningLimits(machines_per_region=2)
    ends = Region.parse(SOURCE), Region.parse(SINK)
    volume_gb = GOAL.gbps / 8 * seconds
    plan = with_memory_for(plan_gateways(catalog, *ends, volume_gb, GOAL, limits), OBJECT_BYTES)
    plan_request = PlanRequest(catalog, *ends, GOAL, limits, OBJECT_BYTES, None, None)
    launch = planned_launch(plan, {"kind": "sky", "sky": str(sky.folder)}, plan_request=plan_request, replan=replan)
    options = Options(recursive=True, chunk_bytes=OBJECT_BYTES, limit_bytes_per_s=pace_bytes_per_s(plan))
    seen = Seen()

    def watch(event: Event) -> None:
        if isinstance(event, Notice):
            seen.notices.append(event.message)
        if isinstance(event, Progress):
            seen.reports.append(event)
            if seen.slow_s is None and event.elapsed_s >= SLOW_AFTER_S:
                seen.slow_s = event.elapsed_s
                sky.set_link(SOURCE, SINK, rate_mbps=DIRECT_MBPS / 3)

    count = round(volume_gb * 1e9 / OBJECT_BYTES)
    with tempfile.TemporaryDirectory(prefix="tradewind-bench-") as state:
        control = JobControl(state_dir=state, gateway=str(find_binary("tradewind-gateway")))
        job = control.start(f"mem:?objects={count}&size_bytes={OBJECT_BYTES}", "mem:", options, launch)
        seen.reports.append(job.wait(watch).progress)
    return seen


def _plot(title: str, seen: Seen, most_mbps: float) -> LinePlot:
    everything = seen.over_time()
    lines = {"all": [rate for _, rate in everything]}
    for way in dict.fromkeys(_way(hop.name) for hop in seen.reports[-1].hops):
        lines[way] = [rate for _, rate in seen.over_time(way)]
    frame = Frame(title, "seconds", "Mbit/s", event_x=seen.slow_s, y_max=most_mbps)
    return LinePlot(frame, [end_s for end_s, _ in everything], lines)


def _way(route: str) -> str:
    """Return the name that routes over the same relays share."""
    relays = route.split(" → ")[1:-1]
    return f"over {', '.join(relays)}" if relays else "direct"
