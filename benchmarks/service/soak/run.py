"""Runs the soak: the world, load and faults at the same time, then the checks and the report."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.service.soak.checks import Check, Checks
from benchmarks.service.soak.clients import Clients, make_tenants, plan_load, prepare_sources
from benchmarks.service.soak.faults import FaultRunner, plan_faults
from benchmarks.service.soak.report import SoakReport, markdown
from benchmarks.service.soak.watch import Watch, all_rows
from benchmarks.service.soak.world import LEASE_S, SoakWorld
from tradewind.model.records import dataclass

__all__ = ["Soak", "measure_soak"]

PROGRESS_S = 5.0
FAULT_EVERY_S = 4.0
JOBS_PER_MINUTE = 30


@dataclass(frozen=True)
class Soak:
    """A soak of so many simulated hours in so many minutes.

    If None, `jobs` and `faults` follow from the minutes, and the share of jobs that rent machines is that of the kinds.
    """

    hours: float = 24.0
    minutes: float = 15.0
    seed: int = 0
    jobs: int | None = None
    faults: int | None = None
    keep: Path | None = None
    lease_s: int = LEASE_S
    machines_share: float | None = None


def measure_soak(soak: Soak, out: Path) -> tuple[str, bool]:
    """Run a soak, write `soak.json` and `soak.md` below `out`; return the Markdown, and whether all invariants hold.

    Raises InstallError or ServerError if a server cannot run on this machine.
    """
    duration_s = soak.minutes * 60
    jobs = soak.jobs if soak.jobs is not None else round(soak.minutes * JOBS_PER_MINUTE)
    faults = soak.faults if soak.faults is not None else round(duration_s / FAULT_EVERY_S)
    chance = random.Random(soak.seed)
    plan = plan_load(chance, jobs, duration_s, soak.hours, soak.machines_share)
    load_before = os.getloadavg()[0]
    with SoakWorld(soak.lease_s) as world:
        lanes = plan_faults(chance, faults, duration_s, soak.lease_s, can_fill=world.can_fill)
        prepare_sources(world, chance)
        clients = Clients(world, make_tenants(world, plan), plan)
        watch, runner = Watch(world), FaultRunner(world, lanes)
        try:
            _run(soak, clients, watch, runner, duration_s)
            checks = Checks(world, clients, watch, runner.done)
            found = list(_checked(checks, watch, world))
        finally:
            if soak.keep is not None:
                _keep(world, soak.keep)
        found.append(Check("every fault was carried out", sum(map(len, lanes)), runner.errors))
        report = SoakReport.of(soak, world, clients, watch, runner, checks, found, load_before)
    out.mkdir(parents=True, exist_ok=True)
    text = markdown(report)
    (out / "soak.json").write_text(json.dumps(report.document(), indent=1) + "\n")
    (out / "soak.md").write_text(text + "\n")
    return text, not any(one.violations for one in found)


def _run(soak: Soak, clients: Clients, watch: Watch, runner: FaultRunner, duration_s: float) -> None:
    """Let load and faults run to the end of the plan. Prints a line of progress now and then."""
    began_s = time.monotonic()
    for part in (watch, clients, runner):
        part.start()
    while (elapsed_s := time.monotonic() - began_s) < duration_s:
        done = sum(one.job is not None for one in list(clients.sent.values()))
        hour = soak.hours * elapsed_s / duration_s
        _progress(f"hour {hour:4.1f} of {soak.hours:.0f}: {done} jobs accepted, {runner.done.total()} faults")
        time.sleep(min(PROGRESS_S, duration_s - elapsed_s))
    runner.close()
    _progress("all faults are over; waiting for the last answers")
    clients.join()


def _checked(checks: Checks, watch: Watch, world: SoakWorld) -> Iterator[Check]:
    _progress("waiting until everything has ended")
    yield checks.wait_until_quiet()
    _progress("checking")
    yield from checks.while_it_runs()
    watch.close()
    in_time = world.stop_service()
    yield from checks.when_it_has_stopped(in_time=in_time)


def _keep(world: SoakWorld, folder: Path) -> None:
    """Keep the logs of the replicas, the state, and a dump of the database, for a look at a violation."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "database.json").write_text(json.dumps(all_rows(world), indent=1, default=str) + "\n")
    subprocess.run(["cp", "-r", *map(str, world.folder.glob("*.log")), str(world.state), str(folder)], check=False)


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
