"""The transfers of the demo: the same files in two skies, directly and by an overlay; or over two local routes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tradewind.catalog.load import load_catalog
from tradewind.engine.job_control import JobControl
from tradewind.engine.launch_spec import planned_launch, topology_launch
from tradewind.engine.provisioning import chunk_bytes_for, pace_bytes_per_s, plan_beside_direct, with_memory_for
from tradewind.engine.request import Options
from tradewind.engine.running import RunningJob
from tradewind.engine.sample_files import SampleFiles
from tradewind.fleet.sky_catalog import sky_catalog
from tradewind.fleet.sky_world import sky_world
from tradewind.model.event import Progress
from tradewind.model.job import MIN_FILE_CHUNK_BYTES
from tradewind.model.overlay import UnicastOverlay
from tradewind.model.plan import Plan
from tradewind.model.records import dataclass, field
from tradewind.model.region import Region
from tradewind.sky.file import network_from_document
from tradewind.sky.running import Sky

__all__ = ["LOCAL_RATE_BYTES_PER_S", "LOCAL_VICTIM", "Racer", "SkyRace", "start_local"]

#: The route of the Skyplane paper's first figure, its two relays, and a relay of a third cloud.
SOURCE, SINK = Region.parse("azure:canadacentral"), Region.parse("gcp:asia-northeast1")
REGIONS = {
    SOURCE: "toronto",
    SINK: "tokyo",
    Region.parse("azure:japaneast"): "saitama",
    Region.parse("azure:westus2"): "quincy",
    Region.parse("aws:us-west-2"): "oregon",
}
#: 4 Gbit/s become 40 Mbit/s: two skies at that scale stay far below what two busy cores can emulate.
SCALE = 0.01
#: Maximum cost of the overlay, as a multiple of the direct path's cost.
COST_FACTOR = 1.8
#: Rate limit without a sky, so that a user can watch the middle of the job.
LOCAL_RATE_BYTES_PER_S = 150_000_000
LOCAL_TOPOLOGY: Mapping[str, Any] = {
    "description": "two routes from one source to one sink, each through its own relay",
    "gateways": {
        "source": {"role": "source"},
        "north": {"role": "relay"},
        "south": {"role": "relay"},
        "sink": {"role": "sink"},
    },
    "routes": [
        {"nodes": ["source", "north", "sink"], "share": 0.6, "usd_per_gb": 0.02},
        {"nodes": ["source", "south", "sink"], "share": 0.4, "usd_per_gb": 0.05},
    ],
    "connections": 8,
}
#: The relay that the demo kills without a sky.
LOCAL_VICTIM = "north"


@dataclass
class Racer:
    """One of the two transfers."""

    name: str
    plan: Plan
    job: RunningJob
    sky: Sky
    copy: Path
    progress: Progress = field(default_factory=Progress)
    ended: bool = False

    @property
    def overlay(self) -> UnicastOverlay:
        """The overlay of its plan."""
        return _overlay(self.plan)

    def busiest_relay(self) -> tuple[str, float]:
        """Return the relay with the largest planned share, and that share."""
        carried: defaultdict[str, float] = defaultdict(float)
        for route in self.plan.routes:
            for relay in route.nodes[1:-1]:
                carried[relay] += route.share
        relay = max(sorted(carried), key=lambda name: carried[name])
        return relay, carried[relay]


class SkyRace:
    """Two skies of the same regions, and in each a transfer of the same files: `direct`, and the fastest `overlay` for
    COST_FACTOR times its price. As a context it ends its skies. `place` is an empty folder for all files.

    Raises SkyUnavailable if this host cannot run a sky.
    """

    def __init__(self, place: Path, gateway: str | None) -> None:
        self._place, self._gateway = place, gateway
        self._catalog = load_catalog()
        self.network = network_from_document(sky_world(self._catalog, list(REGIONS), SCALE, names=REGIONS), place)
        self._held = ExitStack()
        self._skies: Sequence[Sky] = ()

    def __enter__(self) -> SkyRace:
        with ExitStack() as stack:
            self._skies = [stack.enter_context(Sky.up(self.network)) for _ in range(2)]
            self._held = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    @property
    def rtt_ms(self) -> float:
        """Round-trip time between source and sink."""
        ends = {self.network.machines.index(machine): machine.region for machine in self.network.machines}
        paths = (path for path in self.network.paths if (ends[path.src], ends[path.dst]) == (SOURCE, SINK))
        return next(paths).delay_us * 2e-3

    def plans(self, volume_bytes: int) -> dict[str, Plan]:
        """Return the plan of each transfer, by name."""
        catalog = sky_catalog(self.network, self._catalog)
        direct, overlay = plan_beside_direct(
            catalog, SOURCE, SINK, volume_bytes / 1e9, cost_factor=COST_FACTOR, machines_per_region=1
        )
        return {"direct": direct, "overlay": overlay}

    @contextmanager
    def started(self, sample: SampleFiles, plans: Mapping[str, Plan]) -> Iterator[list[Racer]]:
        """Run both transfers within the block; its end stops them, at once if it is left early."""
        (self._place / "files").write_text("".join(f"{name}\n" for name in sample.names), encoding="utf-8")
        control = JobControl(state_dir=str(self._place / "state"), gateway=self._gateway)
        racers: list[Racer] = []
        try:
            for (name, plan), sky in zip(plans.items(), self._skies, strict=True):
                chunk_bytes = chunk_bytes_for(plan, SCALE, MIN_FILE_CHUNK_BYTES)
                options = Options(
                    recursive=True,
                    files_from=str(self._place / "files"),
                    verify="read",
                    chunk_bytes=chunk_bytes,
                    limit_bytes_per_s=pace_bytes_per_s(plan),
                )
                launch = planned_launch(with_memory_for(plan, chunk_bytes), {"kind": "sky", "sky": str(sky.folder)})
                copy = self._place / "copy" / name
                job = control.start("/", f"{copy}/", options, launch, verb="demo")
                racers.append(Racer(name, plan, job, sky, copy))
            yield racers
        except BaseException:
            # The transfers are not resumed, and nothing may be written into folders that are removed next.
            for racer in racers:
                racer.job.kill()
            raise
        finally:
            for racer in racers:
                racer.job.close()

    def late(self) -> list[str]:
        """Return, for each overloaded sky, why its times do not count."""
        return [reason for sky in self._skies if (reason := sky.stats().invalid) is not None]


def start_local(place: Path, sample: SampleFiles, copy: Path, gateway: str | None) -> RunningJob:
    """Start a transfer of the files over two routes on this machine."""
    (place / "files").write_text("".join(f"{name}\n" for name in sample.names), encoding="utf-8")
    (place / "topology.json").write_text(json.dumps(LOCAL_TOPOLOGY), encoding="utf-8")
    options = Options(
        recursive=True, files_from=str(place / "files"), limit_bytes_per_s=LOCAL_RATE_BYTES_PER_S, verify="read"
    )
    control = JobControl(state_dir=str(place / "state"), gateway=gateway)
    return control.start("/", f"{copy}/", options, topology_launch(str(place / "topology.json")), verb="demo")


def _overlay(plan: Plan) -> UnicastOverlay:
    assert plan.overlay is not None, "the planner made it"
    return plan.overlay
