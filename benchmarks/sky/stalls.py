"""Cost of a gateway, link or disk that hangs, for a job with another route: seconds, and bytes sent twice.

A source sends over two equal routes to two sinks. The job's rate limit is less than what one route can carry, so that a
run with a fault takes longer only because of the time in which nothing notices the fault, and because of the bytes
that are sent again. The fault begins in the middle of the job, or when only its end is left, and stays.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.sky.carry import OBJECT_BYTES
from benchmarks.sky.table import INVALID, Figure, Table
from testbed.drive import find_binary
from testbed.faults.disk import DiskError, HangingDisk
from testbed.sky import valid
from tradewind.engine.job_control import JobControl
from tradewind.engine.launch_spec import LaunchSpec, planned_launch
from tradewind.engine.request import Options
from tradewind.engine.topology import topology_from_document
from tradewind.errors import SkyInvalid
from tradewind.model.event import Progress
from tradewind.sky.file import network_from_document
from tradewind.sky.running import Sky

RATE_MBPS = 80
RTT_MS = 40
CONNECTIONS = 4
#: Half of what one route can carry.
LIMIT_BYTES_PER_S = 5_000_000
#: Duration of a run without a fault, about.
SECONDS = 12
#: Fraction of the bytes that is acknowledged when the fault begins.
MOMENTS = {"in the middle": 0.4, "near the end": 0.9}
RUNS = 2
DISK_BYTES = 512 << 20
SINKS = ("sink-a", "sink-b")
#: The sink that gets the fault, and its machine.
SICK = SINKS[1]
MACHINE = f"{SICK}-1"


@dataclass(frozen=True)
class Cost:
    """Duration of one run, and its duplicates."""

    seconds: float
    duplicate_bytes: int
    """As the job's ledger counts them."""


@dataclass(frozen=True)
class Fault:
    """Begins, and is ended after the job."""

    begin: Callable[[Sky, HangingDisk], None]
    end: Callable[[Sky, HangingDisk], None]


FAULTS = {
    "frozen gateway": Fault(lambda sky, _: sky.freeze(MACHINE), lambda sky, _: sky.thaw(MACHINE)),
    "cut link": Fault(
        lambda sky, _: sky.set_link("source-1", MACHINE, up=False),
        lambda sky, _: sky.set_link("source-1", MACHINE, up=True),
    ),
    "hanging disk": Fault(lambda _, disk: disk.freeze(), lambda _, disk: disk.thaw()),
}


def measure_stalls(quick: bool) -> Table:
    """Return one row per fault and moment, with the medians of some runs, and the worst loss."""
    columns = ["fault", "begins", "without [s]", "with [s]", "lost [s]", "lost, worst [s]", "sent twice [MB]"]
    runs, moments = (1, dict(list(MOMENTS.items())[:1])) if quick else (RUNS, MOMENTS)
    seconds = SECONDS / 2 if quick else SECONDS
    table = Table(f"One of two routes stands still (limit {LIMIT_BYTES_PER_S / 1e6:g} MB/s, {runs} runs each)", columns)
    links = [
        {"between": ["site:source", f"site:{sink}"], "rtt_ms": RTT_MS, "rate": f"{RATE_MBPS}Mbit/s"} for sink in SINKS
    ]
    regions = {f"site:{name}": {"name": name} for name in ("source", *SINKS)}
    with tempfile.TemporaryDirectory(prefix="tradewind-stalls-") as place, ExitStack() as after:
        folder = Path(place)
        try:
            disk = after.enter_context(HangingDisk(folder, DISK_BYTES))
        except DiskError as error:
            raise SystemExit(f"error: {error}") from None
        sky = after.enter_context(Sky.up(network_from_document({"regions": regions, "links": links}, Path())))
        stage = _Stage(sky, folder, disk, round(seconds * LIMIT_BYTES_PER_S / OBJECT_BYTES))
        usual = [stage.run(None, 0.0) for _ in range(runs)]
        for fault in FAULTS:
            for moment, part in moments.items():
                table.rows.append([fault, moment, *_figures(usual, [stage.run(fault, part) for _ in range(runs)])])
    return table


def _figures(usual: list[Cost | None], sick: list[Cost | None]) -> list[Figure]:
    if None in usual or None in sick:
        return [INVALID] * 5
    without, runs = [each for each in usual if each], [each for each in sick if each]
    usual_s = statistics.median(each.seconds for each in without)
    lost = [each.seconds - usual_s for each in runs]
    sick_s = statistics.median(each.seconds for each in runs)
    twice = max(each.duplicate_bytes for each in runs)
    return [usual_s, sick_s, statistics.median(lost), max(lost), twice / 1e6]


class _Stage:
    """The sky, the disk of one sink, and the job."""

    def __init__(self, sky: Sky, folder: Path, disk: HangingDisk, objects: int) -> None:
        self._sky, self._folder, self._disk, self._objects, self._count = sky, folder, disk, objects, 0
        document: dict[str, Any] = {
            "lead": {"region": "site:source"},
            "gateways": {
                name: {"role": name.partition("-")[0], "region": f"site:{name}"} for name in ("source", *SINKS)
            },
            "routes": [{"nodes": ["source", sink], "share": 0.5} for sink in SINKS],
            "connections": CONNECTIONS,
        }
        self._launch: LaunchSpec = planned_launch(
            topology_from_document(document).plan, {"kind": "sky", "sky": str(sky.folder)}
        )

    def run(self, fault: str | None, part: float) -> Cost | None:
        """Run the job, with a fault when this part of it is acknowledged; None if the emulator was always late."""
        try:
            return valid(self._sky, lambda: self._once(fault, part))
        except SkyInvalid:
            return None

    def _once(self, fault: str | None, part: float) -> Cost:
        self._count += 1
        copy = self._folder / f"copy-{self._count}"
        copy.mkdir()
        options = Options(recursive=True, chunk_bytes=OBJECT_BYTES, limit_bytes_per_s=LIMIT_BYTES_PER_S)
        state = self._folder / f"state-{self._count}"
        with ExitStack() as after:
            control = JobControl(state_dir=str(state), gateway=str(self._gateway(copy)))
            source = f"mem:?objects={self._objects}&size_bytes={OBJECT_BYTES}"
            job = control.start(source, str(copy), options, self._launch)
            waiting = [] if fault is None else [FAULTS[fault]]
            from_bytes = part * self._objects * OBJECT_BYTES

            def see(event: object) -> None:
                if waiting and isinstance(event, Progress) and event.bytes_done >= from_bytes:
                    begun = waiting.pop()
                    begun.begin(self._sky, self._disk)
                    after.callback(begun.end, self._sky, self._disk)

            progress = job.wait(see).progress
            if waiting:
                raise RuntimeError("the job was over before the fault began")
            return Cost(progress.elapsed_s, job.ledger.runs[-1].duplicate_bytes)

    def _gateway(self, copy: Path) -> Path:
        """Return a gateway program in which only the sink that gets the fault writes to the disk that may hang."""
        program = self._folder / f"gateway-{self._count}"
        binary = find_binary("tradewind-gateway")
        own = Path(self._disk.path) / copy.name
        own.mkdir()
        mounted = f"mount --bind '{own}' '{copy}'"
        program.write_text(
            "#!/bin/sh\n"
            f'case "$1 $TRADEWIND_MACHINE$TRADEWIND_HOME" in serve*\'"{SICK}"\'*)\n'
            f'  exec unshare --mount sh -c "{mounted} && exec \\"\\$0\\" \\"\\$@\\"" \'{binary}\' "$@"\n'
            "esac\n"
            f"exec '{binary}' \"$@\"\n"
        )
        program.chmod(0o755)
        return program
