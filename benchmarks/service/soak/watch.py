"""Looks at the service from outside while it runs: processes, the database, and what the replicas use."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.service.soak.world import MARK, SoakWorld
from tradewind.model.records import dataclass
from tradewind.service.places import conflict

__all__ = ["Usage", "Watch", "all_rows", "marked_processes", "open_files", "rows"]

LOOK_S = 0.4
ENGINE_JOB = re.compile(r"/engine/jobs/([^/]+)/")
BUDGETS = """
SELECT b.tenant, b.limit_usd_micros,
  (SELECT coalesce(sum(usd_micros), 0) FROM charges c WHERE c.tenant = b.tenant),
  (SELECT coalesce(sum(reserved_usd_micros), 0) FROM accounts a WHERE a.tenant = b.tenant AND a.is_open = 1)
FROM budgets b"""
ACTIVE = """SELECT id, owned FROM jobs WHERE CASE state WHEN 'cancelling' THEN (
    SELECT state FROM job_events WHERE job = jobs.id AND state <> 'cancelling' ORDER BY number DESC LIMIT 1
) ELSE state END IN ('running', 'pausing', 'stopping')"""
"""Jobs that may write. One that was cancelled while it waited only aborts its own unfinished uploads."""


@dataclass(frozen=True)
class Usage:
    """Memory and files that a replica used at a time after the start."""

    at_s: float
    replica: str
    pid: int
    rss_bytes: int
    files: int


class Watch:
    """Looks again and again until it is closed. `violations` has what must never be seen."""

    def __init__(self, world: SoakWorld) -> None:
        self._world = world
        self.usage: list[Usage] = []
        self.violations: list[str] = []
        self.budget_looks = self.process_looks = 0
        self.gateways_max = self.active_max = 0
        #: When each machine was seen first and last, in seconds after the start.
        self.machines: dict[str, tuple[float, float]] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)
        self._began_s = time.monotonic()

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_S):
            self._look_at_processes()
            self._look_at_machines()
            self._look_at_usage()
            self._look_at_database()

    def _look_at_processes(self) -> None:
        """Two living gateways must never have the same job of the engine."""
        found = defaultdict(set)
        for pid in marked_processes(self._world):
            if _program(pid) == "tradewind-gateway":
                for job in _jobs_of(pid):
                    found[job].add(pid)
        self.process_looks += 1
        self.gateways_max = max(self.gateways_max, len(found))
        for job, pids in found.items():
            if len(pids) > 1 and all(job in _jobs_of(pid) for pid in pids):
                self.violations.append(f"engine job {job} has {len(pids)} gateways at once: {sorted(pids)}")

    def _look_at_machines(self) -> None:
        now_s = time.monotonic() - self._began_s
        for name in self._world.provider.machines():
            self.machines[name] = (self.machines.get(name, (now_s, now_s))[0], now_s)

    def _look_at_usage(self) -> None:
        for replica in self._world.replicas:
            if replica.process is None:
                continue
            pid = replica.process.pid
            try:
                status = Path(f"/proc/{pid}/status").read_text()
                files = len(os.listdir(f"/proc/{pid}/fd"))
                rss = next(line for line in status.splitlines() if line.startswith("VmRSS"))
            except (OSError, StopIteration):
                continue
            usage = Usage(time.monotonic() - self._began_s, replica.name, pid, int(rss.split()[1]) << 10, files)
            self.usage.append(usage)

    def _look_at_database(self) -> None:
        """Spent plus reserved must never exceed a budget, and two active jobs must never write to one place."""
        import psycopg

        try:
            budgets, active = rows(self._world, BUDGETS), rows(self._world, ACTIVE)
        except psycopg.Error:
            return
        self.budget_looks += 1
        for tenant, limit, spent, reserved in budgets:
            if spent + reserved > limit:
                self.violations.append(f"budget of {tenant}: {spent} + {reserved} exceed {limit} micro-dollars")
        places = [(job, json.loads(owned)) for job, owned in active]
        self.active_max = max(self.active_max, len(places))
        for number, (job, mine) in enumerate(places):
            for other, theirs in places[:number]:
                if conflict(mine, theirs):
                    self.violations.append(f"jobs {other} and {job} are active with one destination: {mine}")


def rows(world: SoakWorld, query: str, *values: object) -> list[Any]:
    """Return the rows of a query, by a connection of its own. Raises psycopg.Error."""
    import psycopg

    with psycopg.connect(
        world.postgres.url, password=world.postgres.environment["PGPASSWORD"], connect_timeout=2
    ) as connection:
        return connection.execute(query, values or None).fetchall()


def all_rows(world: SoakWorld) -> dict[str, list[Any]]:
    """Return the rows of each table that says what became of the jobs, as objects. Raises psycopg.Error."""
    return {
        table: [row for (row,) in rows(world, f"SELECT to_json(t) FROM {table} t")]
        for table in ("jobs", "job_events", "accounts", "charges", "quotes", "deliveries")
    }


def marked_processes(world: SoakWorld) -> list[int]:
    """Return the living processes that the replicas and their children are, by the mark in their environment."""
    mark, found = f"{MARK}={world.folder}".encode(), []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                if mark in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
            except OSError:
                continue
    return found


def open_files(pid: int) -> Counter[str]:
    """Return what a process has open, with the number of each: `socket`, `pipe` and names of files. Raises OSError."""
    found: Counter[str] = Counter()
    for entry in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            target = os.readlink(f"/proc/{pid}/fd/{entry}")
            found[target.rpartition("/")[2] if target.startswith("/") else target.partition(":")[0]] += 1
    return found


def _program(pid: int) -> str:
    try:
        return Path(os.readlink(f"/proc/{pid}/exe")).name.removesuffix(" (deleted)")
    except OSError:
        return ""


def _jobs_of(pid: int) -> set[str]:
    """Return the jobs of the engine whose files a process has open."""
    found = set()
    try:
        for entry in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{entry}")
            if match := ENGINE_JOB.search(target):
                found.add(match[1])
    except OSError:
        pass
    return found
