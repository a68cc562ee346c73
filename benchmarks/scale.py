"""``scale``: many small objects through one relay, a lead that is killed on the way, and very many routes.

Memory to memory, so that only gateways are measured. One run moves all objects while the lead is watched. In another,
the lead is killed when most are done, and the job resumes by itself. A third moves large objects in parts. Then the
lead's scheduler decides for up to a thousand simulated routes (`crates/wire/examples/routes.rs`).
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import CpuByName, run
from benchmarks.plots import Frame, line_plot
from testbed.chains import chain, write
from testbed.drive import MissingBinary, find_binary
from testbed.processes import gateway_name, gateways_of

OBJECTS, QUICK_OBJECTS = 10_000_000, 200_000
OBJECT_BYTES = 1024
PART_BYTES = 5 << 20
LARGE_OBJECTS, LARGE_BYTES = 8, 4 << 30
ROLES = ("lead", "source", "relay-1", "sink")
ROUTES = (1, 10, 100, 1000)
DECISIONS, QUICK_DECISIONS = 200_000, 5_000
KILL_AT = 0.9
SAMPLE_S = 0.2
TIMEOUT_S = 3600.0
BILLION = 1_000_000_000
PETABYTE = 10**15


class ScaleError(RuntimeError):
    """A run failed, so there is nothing to report."""


@dataclass(frozen=True)
class Sample:
    """Memory of the lead at one moment."""

    at_s: float
    rss_bytes: int
    journal_bytes: int
    report_bytes: int


@dataclass(frozen=True)
class Copied:
    """One run to its end."""

    objects: int
    size_bytes: int
    wall_s: float
    cpu_s: dict[str, float]
    samples: list[Sample]

    @property
    def journal_bytes(self) -> int:
        """Largest size, the write-ahead log included."""
        return max((sample.journal_bytes for sample in self.samples), default=0)

    @property
    def report_bytes(self) -> int:
        """Size at the end."""
        return max((sample.report_bytes for sample in self.samples), default=0)

    def lead_mib(self, share: float) -> float:
        """The lead's memory after this share of the samples."""
        at = min(int(share * len(self.samples)), len(self.samples) - 1)
        return self.samples[at].rss_bytes / 2**20


@dataclass(frozen=True)
class Killed:
    """A lead that was killed on the way."""

    objects: int
    done_before: int
    first_s: float
    """From the kill to the first new object."""
    done_s: float
    """From the kill to the end."""
    rss_bytes: int
    """The highest memory of the lead that resumed."""


@dataclass
class Watch:
    """Watches the job of one command: memory of its lead, sizes of its journal and its report."""

    folder: Path
    report: Path
    kill_at_bytes: int | None = None
    """Size of the journal at which the lead is killed."""
    samples: list[Sample] = field(default_factory=list)
    killed_s: float | None = None
    first_s: float | None = None
    ended_s: float = 0.0
    done_before: int = 0
    _report_at_kill: int = 0

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Take samples until the command ends."""
        began = time.monotonic()
        while _is_running(process.pid):
            self._sample(process.pid, time.monotonic() - began)
            time.sleep(SAMPLE_S if self.killed_s is None else SAMPLE_S / 10)
        self.ended_s = time.monotonic() - began

    def _sample(self, client: int, at_s: float) -> None:
        journal = next(self.folder.rglob("journal.sqlite"), None)
        size_bytes = 0 if journal is None else _size(journal) + _size(journal.with_name(journal.name + "-wal"))
        lead = gateways_of(client).get("lead")
        if lead is not None and (rss_bytes := _rss_bytes(lead)):
            self.samples.append(Sample(at_s, rss_bytes, size_bytes, _size(self.report)))
        if self.killed_s is not None:
            if self.first_s is None and _size(self.report) > self._report_at_kill:
                self.first_s = at_s
        elif journal is not None and lead is not None and self.kill_at_bytes and size_bytes >= self.kill_at_bytes:
            os.kill(lead, signal.SIGKILL)
            self.killed_s = at_s
            self.samples.clear()
            with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as connection:
                self.done_before = connection.execute("SELECT count(*) FROM done").fetchone()[0]
            self._report_at_kill = _size(self.report)


def run_scale(quick: bool, objects: int | None) -> tuple[str, dict[str, Any], str]:
    """Measure. Returns the tables as Markdown, all figures, and the plot of the lead's memory."""
    count = objects or (QUICK_OBJECTS if quick else OBJECTS)
    with tempfile.TemporaryDirectory(prefix="tradewind-bench-") as scratch:
        small, _ = _copy(Path(scratch) / "copy", count, OBJECT_BYTES)
        killed = _kill(Path(scratch) / "kill", small)
        large, _ = _copy(Path(scratch) / "parts", 1 if quick else LARGE_OBJECTS, LARGE_BYTES)
    routes = _routes(QUICK_DECISIONS if quick else DECISIONS)
    figures = {
        "copy": asdict(small),
        "kill": asdict(killed),
        "parts": asdict(large),
        "routes": routes,
        "extrapolation": _extrapolation(small, large),
    }
    text = "\n\n".join([_copy_table(small, large), _kill_text(killed), _routes_table(routes), _far(small, large)])
    return text + "\n", figures, _plot(small)


def _copy(folder: Path, objects: int, size_bytes: int, kill_at_bytes: int | None = None) -> tuple[Copied, Watch]:
    folder.mkdir()
    report = folder / "report.jsonl"
    topology = write(chain("relay-1"), folder / "topology.json")
    source = f"mem:?objects={objects}&size_bytes={size_bytes}"
    command: list[str | Path] = [find_binary("tradewind"), "cp", "-r", source, "mem:", "--topology", topology]
    command += ["--quiet", "--report", report, "--chunk-size", f"{PART_BYTES >> 20}MiB"]
    watch, cpu = Watch(folder / "state", report, kill_at_bytes), CpuByName(gateway_name)
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}

    def watch_both(process: subprocess.Popen[bytes]) -> None:
        by_name = threading.Thread(target=cpu.watch, args=(process,), daemon=True)
        by_name.start()
        watch.watch(process)
        by_name.join()

    cost = run(command, environment, TIMEOUT_S, watch_both)
    if cost.failure:
        raise ScaleError(f"{source}: {cost.failure}")
    report.unlink(missing_ok=True)
    return Copied(objects, objects * size_bytes, cost.wall_s, dict(cpu.cpu_s), watch.samples), watch


def _kill(folder: Path, whole: Copied) -> Killed:
    """Kill the lead at nine tenths of the journal of a whole run."""
    again, watch = _copy(folder, whole.objects, OBJECT_BYTES, int(KILL_AT * whole.journal_bytes))
    if watch.killed_s is None or watch.first_s is None:
        raise ScaleError("the job ended before its lead could be killed: take more objects")
    rss_bytes = max((sample.rss_bytes for sample in again.samples), default=0)
    first_s, done_s = watch.first_s - watch.killed_s, watch.ended_s - watch.killed_s
    return Killed(whole.objects, watch.done_before, first_s, done_s, rss_bytes)


def _routes(decisions: int) -> list[dict[str, Any]]:
    root = Path(__file__).resolve().parent.parent
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    build = ["cargo", "build", "--quiet", "--release", "--workspace", "--locked", "--example", "routes"]
    try:
        subprocess.run(build, cwd=root, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise MissingBinary(f"the program of the simulated routes cannot be built: {error}") from error
    program = target / "release" / "examples" / "routes"
    rows = []
    for shape in ("bundles", "parts"):
        for prices in ("free", "ceiling"):
            for routes in ROUTES:
                words = [str(program), str(routes), shape, prices, str(decisions)]
                rows.append(json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout))
    return rows


def _copy_table(small: Copied, large: Copied) -> str:
    lines = [
        f"### {small.objects:,} objects of {OBJECT_BYTES} bytes over one relay",
        "",
        "| | objects/s | wall s | " + " | ".join(f"{role} CPU-s per million" for role in ROLES) + " |",
        "|---|---:|---:|" + "---:|" * len(ROLES),
        f"| objects | {small.objects / small.wall_s:,.0f} | {small.wall_s:.1f} | "
        + " | ".join(f"{small.cpu_s.get(role, 0.0) / small.objects * 1e6:.2f}" for role in ROLES)
        + " |",
        f"| parts of {PART_BYTES >> 20} MiB | {_parts(large) / large.wall_s:,.0f} | {large.wall_s:.1f} | "
        + " | ".join(f"{large.cpu_s.get(role, 0.0) / _parts(large) * 1e6:.0f}" for role in ROLES)
        + " |",
        "",
        f"Journal {small.journal_bytes / small.objects:.1f} bytes and report {small.report_bytes / small.objects:.0f} "
        f"bytes per object. Memory of the lead after 10, 50 and 95% of the time: "
        + ", ".join(f"{small.lead_mib(share):.0f}" for share in (0.1, 0.5, 0.95))
        + " MiB.",
    ]
    return "\n".join(lines)


def _kill_text(killed: Killed) -> str:
    return (
        f"### The lead is killed with {killed.done_before:,} of {killed.objects:,} objects in its journal\n\n"
        f"First new object {killed.first_s:.1f} s after the kill, all done after {killed.done_s:.1f} s. "
        f"The lead that resumed used at most {killed.rss_bytes / 2**20:.0f} MiB."
    )


def _routes_table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "### Decisions with many routes",
        "",
        "| work | prices | routes | µs per decision | requests in flight | MiB |",
        "|---|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['shape']} | {row['prices']} | {row['routes']:,} | {row['us_per_decision']:.2f} "
        f"| {row['in_flight_max']:,} | {row['rss_bytes'] / 2**20:.0f} |"
        for row in rows
    ]
    return "\n".join(lines)


def _extrapolation(small: Copied, large: Copied) -> dict[str, float]:
    return {
        "billion_objects_hours": BILLION / (small.objects / small.wall_s) / 3600,
        "billion_objects_lead_cpu_hours": small.cpu_s.get("lead", 0.0) / small.objects * BILLION / 3600,
        "billion_objects_journal_gb": small.journal_bytes / small.objects,
        "billion_objects_report_gb": small.report_bytes / small.objects,
        "petabyte_parts": PETABYTE / PART_BYTES,
        "petabyte_lead_cpu_hours": large.cpu_s.get("lead", 0.0) / large.size_bytes * PETABYTE / 3600,
    }


def _far(small: Copied, large: Copied) -> str:
    far = _extrapolation(small, large)
    lines = [
        "### Extrapolated",
        "",
        "| | lead CPU hours | hours at the measured rate | journal GB | report GB |",
        "|---|---:|---:|---:|---:|",
        f"| 10⁹ objects of {OBJECT_BYTES} bytes | {far['billion_objects_lead_cpu_hours']:.1f} "
        f"| {far['billion_objects_hours']:.1f} | {far['billion_objects_journal_gb']:.0f} "
        f"| {far['billion_objects_report_gb']:.0f} |",
        f"| 1 PB in {far['petabyte_parts'] / 1e6:.0f} million parts of {PART_BYTES >> 20} MiB "
        f"| {far['petabyte_lead_cpu_hours']:.1f} | – | – | – |",
    ]
    return "\n".join(lines)


def _plot(small: Copied) -> str:
    samples = small.samples[:: max(1, len(small.samples) // 200)]
    lines = {
        "memory, MiB": [sample.rss_bytes / 2**20 for sample in samples],
        "journal, MiB": [sample.journal_bytes / 2**20 for sample in samples],
    }
    frame = Frame(f"The lead while it copies {small.objects:,} objects", "seconds", "MiB")
    return line_plot(frame, [sample.at_s for sample in samples], lines)


def _parts(large: Copied) -> float:
    return large.size_bytes / PART_BYTES


def _is_running(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _rss_bytes(pid: int) -> int:
    with suppress(OSError, ValueError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0
