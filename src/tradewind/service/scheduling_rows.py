"""Rows of jobs that the scheduler in the service reads, and the events made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Set
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, ScalarSelect, func, select

from tradewind.market.money import MICROS_PER_USD
from tradewind.model.event import Progress, StageLimit
from tradewind.service.bindings import binding_of, service_job
from tradewind.service.job_routes import JobRoutes
from tradewind.service.jobs import JobQueue, JobRow
from tradewind.service.limits import FIRST_JOBS_OF_TENANT, PASS_JOBS_MAX
from tradewind.service.machines import MachineRules
from tradewind.service.money_tables import charges
from tradewind.service.scheduler.events import CostCounted, JobRestored, RunProgressed, RunRerouted
from tradewind.service.scheduler.jobs import resources_of
from tradewind.service.scheduler.limits import DAY_S
from tradewind.service.scheduler.tuning import REQUESTS_MAX
from tradewind.service.tables import ACTIVE, ENDED, jobs

__all__ = [
    "ACTIVE_PLACES",
    "charged_usd_micros",
    "costs_today",
    "ended_jobs",
    "open_jobs",
    "parts",
    "progressed",
    "rerouted",
    "restored",
    "run_costs",
    "running_jobs",
]

#: Rows that are read at once.
ROWS_AT_ONCE = 500

ACTIVE_PLACES = select(jobs.c.owned).where(jobs.c.state.in_(ACTIVE))


def running_jobs(connection: Connection) -> list[tuple[str, str, int]]:
    """Return the running jobs with their jobs of the engine, and what they had moved before they were started."""
    query = select(jobs.c.id, jobs.c.engine_job, jobs.c.moved_bytes)
    found = connection.execute(query.where(jobs.c.state == "running", jobs.c.engine_job.is_not(None)))
    return [(job_id, engine_job, moved_bytes) for job_id, engine_job, moved_bytes in found]


def open_jobs(
    connection: Connection, known: Set[str] = frozenset(), *, with_first: bool = True
) -> dict[str, tuple[str, str, str | None]]:
    """Return state, failures and routes of the active jobs, of the oldest waiting ones, and of `known` ones that wait.

    If more wait, and `with_first`, also of the first ones of each tenant: few tenants must not hide all others.
    """
    names = jobs.c.id, jobs.c.state, jobs.c.failures, jobs.c.routes
    is_waiting = jobs.c.state == "waiting"
    rows = [*connection.execute(select(*names).where(jobs.c.state.in_(ACTIVE)))]
    oldest = connection.execute(select(*names).where(is_waiting).order_by(jobs.c.id).limit(PASS_JOBS_MAX)).all()
    rows += oldest
    if with_first and len(oldest) == PASS_JOBS_MAX:
        place = func.row_number().over(partition_by=jobs.c.tenant, order_by=jobs.c.id).label("place")
        placed = select(*names, place).where(is_waiting).subquery()
        first = select(placed).where(placed.c.place <= FIRST_JOBS_OF_TENANT).order_by(placed.c.place, placed.c.id)
        rows += connection.execute(first.limit(PASS_JOBS_MAX)).all()
    found = {row.id: (row.state, row.failures, row.routes) for row in rows}
    for some in parts(known - found.keys()):
        others = connection.execute(select(*names).where(jobs.c.id.in_(some), is_waiting))
        found |= {row.id: (row.state, row.failures, row.routes) for row in others}
    return found


def progressed(job_id: str, found: Progress, moved_before: int) -> RunProgressed:
    """Return what a run has moved after `moved_before` bytes of earlier runs, and the requests of its gateways."""
    # The host of a user may state more bytes done than there are.
    left = max(0, found.bytes_total - found.bytes_done) if found.listed else None
    stages = None if found.limits is None else (_per_gateway(found.limits.read), _per_gateway(found.limits.write))
    return RunProgressed(job_id, max(0, found.bytes_done - moved_before), left, stages)


def _per_gateway(stage: StageLimit | None) -> float | None:
    """Return the requests of each gateway of a stage; all have the same maximum."""
    return None if stage is None or stage.max <= 0 else REQUESTS_MAX * stage.now / stage.max


def ended_jobs(connection: Connection, job_ids: Iterable[str]) -> dict[str, tuple[str, str | None, int]]:
    """Return the states of jobs that are neither active nor among the oldest waiting ones.

    Each with its job of the engine, and what it had moved before its last run.
    """
    found: dict[str, tuple[str, str | None, int]] = {}
    columns = select(jobs.c.id, jobs.c.state, jobs.c.engine_job, jobs.c.moved_bytes)
    for some in parts(job_ids):
        query = columns.where(jobs.c.id.in_(some), jobs.c.state.in_((*ENDED, "paused")))
        found |= {one: (state, engine_job, moved) for one, state, engine_job, moved in connection.execute(query)}
    return found


def parts(job_ids: Iterable[str], size: int = ROWS_AT_ONCE) -> Iterator[list[str]]:
    """Yield the ids in lists of at most `size`."""
    left = iter(job_ids)
    while some := list(islice(left, size)):
        yield some


def restored(row: JobRow, proven: set[tuple[str, str]], rules: MachineRules) -> JobRestored:
    """Return the event for a job that this scheduler does not know, but an earlier one did."""
    common: dict[str, Any] = {
        "job": service_job(row, proven, rules),
        "failures": json.loads(row.failures),
        "failure": row.failure or "",
        "not_before_s": row.not_before_unix_ms / 1000,
        "moved_bytes": row.moved_bytes,
    }
    if row.state == "waiting" or row.granted is None:
        return JobRestored(**common)
    granted = json.loads(row.granted)
    run = {"rate_gbps": granted["rate_gbps"], "started_s": granted["at_unix_ms"] / 1000}
    return JobRestored(**common, **run, binding=binding_of(granted))


def rerouted(row: JobRow) -> list[RunRerouted]:
    """Return an event if a running job has other routes than it was granted."""
    routes = JobRoutes.of_text(row.routes)
    if row.state != "running" or routes is None or row.granted is None:
        return []
    if set(json.loads(row.granted)["links"]) == set(routes.links):
        return []
    return [RunRerouted(row.id, routes.links, routes.rate_gbps)]


def costs_today(connection: Connection, now_s: float) -> list[CostCounted]:
    """Return what jobs were charged today for runs that have ended."""
    day_ms = int(now_s // DAY_S) * DAY_S * 1000
    query = select(charges.c.job, func.sum(charges.c.usd_micros)).where(charges.c.at_unix_ms >= day_ms)
    found = connection.execute(query.where(charges.c.job.is_not(None)).group_by(charges.c.job))
    charged = {job_id: int(micros) for job_id, micros in found if micros > 0}
    costs = []
    for row in (row for some in parts(charged) for row in JobQueue.rows(connection, some)):
        if row.granted is not None:
            resources = resources_of(service_job(row), binding_of(json.loads(row.granted)))
            costs.append(CostCounted(resources, charged[row.id] / MICROS_PER_USD))
    return costs


def charged_usd_micros(job: ColumnElement[str]) -> ScalarSelect[int]:
    """Return the expression for what a job was charged so far; null for nothing."""
    return select(func.sum(charges.c.usd_micros)).where(charges.c.job == job).scalar_subquery()


def run_costs(connection: Connection, job_ids: Iterable[str]) -> dict[str, float]:
    """Return what jobs were charged for their latest run [USD]. Jobs of earlier versions are left out."""
    costs: dict[str, float] = {}
    for some in parts(job_ids):
        query = select(charges.c.job, func.sum(charges.c.usd_micros)).where(charges.c.job.in_(some))
        charged = {job_id: int(micros) for job_id, micros in connection.execute(query.group_by(charges.c.job))}
        granted = select(jobs.c.id, jobs.c.granted).where(jobs.c.id.in_(some), jobs.c.granted.is_not(None))
        for job_id, text in connection.execute(granted):
            before = json.loads(text).get("spent_usd_micros")
            if before is not None:
                costs[job_id] = (charged.get(job_id, 0) - before) / MICROS_PER_USD
    return costs
