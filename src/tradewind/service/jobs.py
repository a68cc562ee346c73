"""The jobs of the service in its database: submitted once, in one state, with a reason while they wait.

States: `waiting` → `running` → `done` or `failed`; `pausing` → `paused` → `waiting`; `stopping` → `waiting`, if the
scheduler stops a run; `cancelling` → `cancelled`. Every change is one transaction that names the states that it may
start from, so two threads never both make it. A change by the owner of an active job also names its lease, so a server
that has lost the job changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, insert, select, update

from tradewind.engine.jobs import new_job_id
from tradewind.model.records import dataclass
from tradewind.service.auth import Sender
from tradewind.service.connections import require_connections
from tradewind.service.database import ServiceDatabase, database_clock_ms, database_unix_ms, record_change
from tradewind.service.job_routes import JobRoutes
from tradewind.service.limits import OPEN_JOBS_PER_TENANT_MAX
from tradewind.service.money import job_moved, job_submitted
from tradewind.service.money_tables import accounts
from tradewind.service.problems import ApiProblem
from tradewind.service.scheduling_rules import bans_in_force, closed_now, limits_of_resources
from tradewind.service.stores import stores_of
from tradewind.service.tables import ACTIVE, ENDED, job_events, jobs
from tradewind.service.webhooks import enqueue_event

__all__ = ["STATES", "JobLease", "JobQueue", "JobRow", "LeaseLost", "add_event"]

STATES = ("waiting", *ACTIVE, "paused", *ENDED)


class LeaseLost(Exception):
    """Another server may work on the job: this one must stop, and write nothing about it."""


@dataclass(frozen=True)
class JobLease:
    """The right to work on a job: `epoch` is its fencing number, which grows with each owner."""

    job: str
    owner: str
    epoch: int


@dataclass(frozen=True)
class JobRow:
    """A job of the service. `request` is what was submitted, with resolved places; `waiting` is why it waits."""

    id: str
    tenant: str
    request: Mapping[str, Any]
    owned: tuple[str, ...]
    state: str
    waiting: str | None
    not_before_unix_ms: int
    attempts: int
    proposal: str | None
    engine_job: str | None
    error: str | None
    hint: str | None
    owner: str | None
    epoch: int
    created_unix_ms: int
    updated_unix_ms: int
    size_bytes: int | None
    price_usd_micros: int | None
    failures: str
    failure: str | None
    moved_bytes: int
    granted: str | None
    earliest_unix_ms: int | None
    latest_unix_ms: int | None
    traceparent: str | None
    routes: str | None


#: Read once: records make their fields anew each time.
_NAMES = tuple(JobRow.__dataclass_fields__)
#: Without the receipt, which is long.
_COLUMNS = tuple(jobs.c[name] for name in _NAMES)


class JobQueue:
    """All jobs. Any thread may use it. `moved` is called after each change of a job's state, with the new one."""

    def __init__(self, database: ServiceDatabase, moved: Callable[[str, str], None] | None = None) -> None:
        self._database, self._moved = database, moved

    def submit(
        self,
        sender: Sender,
        key: str,
        digest: str,
        request: Mapping[str, Any],
        owned: Sequence[str],
        links: Sequence[tuple[str, str]] = (),
        *,
        size_bytes: int | None = None,
        schedule: str | None = None,
        traceparent: str | None = None,
    ) -> tuple[JobRow, bool]:
        """Record a job, or return the one that was submitted with this key; and whether it is new.

        `digest` is that of the request as it was sent; `request` has resolved places, and may name
        a quote; `links` are its pairs of regions; `size_bytes` is its size, if that is known; `traceparent` is the
        span that its own spans belong to.

        Raises ApiProblem 409 if the key was used for another request or a ban refuses new jobs, 429 if the tenant has
        too many open jobs; for those of quote and budget see `job_submitted`.
        """
        text = json.dumps(dict(request))
        with self._database.write() as connection:
            now = database_unix_ms(connection)
            job_id = new_job_id(now)  # Jobs are listed and scheduled in the order of their ids.
            found = self._of_key(connection, sender.tenant, key, digest)
            if found is not None:
                return found, False
            open_jobs = select(func.count()).where(jobs.c.tenant == sender.tenant, jobs.c.state.not_in(ENDED))
            if connection.execute(open_jobs).scalar_one() >= OPEN_JOBS_PER_TENANT_MAX:
                raise ApiProblem(
                    429, f"{OPEN_JOBS_PER_TENANT_MAX:,} jobs have not ended", headers={"Retry-After": "60"}
                )
            _require_no_ban(connection, sender.tenant, request, now)
            require_connections(connection, sender.tenant, request)
            connection.execute(
                insert(jobs).values(
                    id=job_id,
                    tenant=sender.tenant,
                    idempotency_key=key,
                    request_digest=digest,
                    request=text,
                    owned=json.dumps(list(owned)),
                    state="waiting",
                    not_before_unix_ms=0,
                    attempts=0,
                    epoch=0,
                    lease_unix_ms=0,
                    created_unix_ms=now,
                    updated_unix_ms=now,
                    size_bytes=size_bytes,
                    schedule=schedule,
                    traceparent=traceparent,
                )
            )
            quoted = job_submitted(connection, job_id, sender.tenant, links, request, now)
            if quoted is not None:
                price = select(accounts.c.quote_usd_micros).where(accounts.c.job == job_id).scalar_subquery()
                values = {"proposal": quoted.proposal, "price_usd_micros": price, "routes": quoted.routes}
                connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))
            add_event(connection, job_id, "waiting", None)
            record_change(connection, sender.tenant, sender.token, "job.submit", job_id)
            return _require(_one(connection, job_id)), True

    def resubmitted(self, sender: Sender, key: str, digest: str) -> JobRow | None:
        """Return the job that was submitted with this key; None without one. Raises ApiProblem 409 for another."""
        with self._database.read() as connection:
            return self._of_key(connection, sender.tenant, key, digest)

    def _of_key(self, connection: Connection, tenant: str, key: str, digest: str) -> JobRow | None:
        row = (
            connection.execute(
                select(*_COLUMNS, jobs.c.request_digest).where(jobs.c.tenant == tenant, jobs.c.idempotency_key == key)
            )
            .mappings()
            .first()
        )
        if row is None:
            return None
        if row["request_digest"] != digest:
            raise ApiProblem(
                409, "the Idempotency-Key was used for another request", hint="use a new key for a new job"
            )
        return _row(row)

    def get(self, tenant: str, job_id: str) -> JobRow:
        """Return a job of a tenant. Raises ApiProblem 404, also for a job of another tenant."""
        # A row of another tenant is not even read, so that the time of the answer does not show that it exists.
        query = select(*_COLUMNS).where(jobs.c.id == job_id, jobs.c.tenant == tenant)
        with self._database.read() as connection:
            row = connection.execute(query).mappings().first()
        if row is None:
            raise ApiProblem(404, "no such job")
        return _row(row)

    def receipt(self, job_id: str) -> dict[str, Any] | None:
        """Return the receipt of a job that has ended, or was paused while it ran; None for any other."""
        with self._database.read() as connection:
            text = connection.execute(select(jobs.c.receipt).where(jobs.c.id == job_id)).scalar()
        found: dict[str, Any] | None = None if text is None else json.loads(text)
        return found

    def find(self, job_id: str) -> JobRow | None:
        """Return a job of any tenant."""
        with self._database.read() as connection:
            return _one(connection, job_id)

    def page(self, tenant: str, *, before: str | None, state: str | None, limit: int) -> list[JobRow]:
        """Return jobs of a tenant, newest first, that are older than the job `before`."""
        query = select(*_COLUMNS).where(jobs.c.tenant == tenant).order_by(jobs.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(jobs.c.id < before)
        if state is not None:
            query = query.where(jobs.c.state == state)
        with self._database.read() as connection:
            return [_row(row) for row in connection.execute(query).mappings()]

    def count_by_state(self) -> dict[str, int]:
        """Return the number of jobs in each state."""
        query = select(jobs.c.state, func.count()).group_by(jobs.c.state)
        with self._database.read() as connection:
            found = {str(state): int(count) for state, count in connection.execute(query)}
        return {state: found.get(state, 0) for state in STATES}

    def move(
        self,
        job_id: str,
        from_states: Sequence[str],
        to_state: str,
        *,
        by: Sender | None = None,
        lease: JobLease | None = None,
        **fields: Any,
    ) -> bool:
        """Change a job's state if it is in one of `from_states`, and under the lease; return whether it was.

        `by` is audited. The `receipt` of a run that has ended is charged; a job that waits for its next run keeps none,
        nor routes that are closed: it is then planned again.
        """
        values = {"waiting": None, **fields, "state": to_state}
        if to_state == "waiting":
            values["receipt"] = None
        if to_state not in ACTIVE:
            values["owner"] = None
        with self._database.write_rows() as connection:
            now_ms = values["updated_unix_ms"] = database_unix_ms(connection)
            if to_state == "waiting" and "routes" not in fields and _has_closed_routes(connection, job_id, now_ms):
                values["routes"] = None
            change = update(jobs).where(jobs.c.id == job_id, jobs.c.state.in_(from_states), *_held(lease))
            changed = connection.execute(change.values(**values))
            if changed.rowcount == 0:
                return False
            job_moved(connection, job_id, to_state, fields.get("receipt"), values["updated_unix_ms"])
            add_event(connection, job_id, to_state, values.get("error") or values["waiting"])
            if by is not None:
                record_change(connection, by.tenant, by.token, f"job.{to_state}", job_id)
        self.tell_moved(job_id, to_state)
        return True

    def tell_moved(self, job_id: str, state: str) -> None:
        """Report that a job's state has changed, after the transaction that changed it."""
        if self._moved is not None:
            self._moved(job_id, state)

    def note(self, lease: JobLease, **fields: Any) -> None:
        """Record fields of a job without changing its state. Raises LeaseLost."""
        with self._database.write_rows() as connection:
            changed = connection.execute(update(jobs).where(jobs.c.id == lease.job, *_held(lease)).values(**fields))
        if changed.rowcount == 0:
            raise LeaseLost(lease.job)

    def set_waiting(self, reasons: Mapping[str, str]) -> None:
        """Record why jobs wait."""
        with self._database.write_rows() as connection:
            for job_id, reason in sorted(reasons.items()):
                connection.execute(
                    update(jobs)
                    .where(jobs.c.id == job_id, jobs.c.state == "waiting")
                    .values(waiting=reason, updated_unix_ms=self._database.clock_ms)
                )

    def set_ends(self, ends: Mapping[str, tuple[int, int] | None]) -> None:
        """Record between which Unix times [ms] jobs end; None if that is not known."""
        with self._database.write_rows() as connection:
            for job_id, end in sorted(ends.items()):
                earliest, latest = end or (None, None)
                values = {"earliest_unix_ms": earliest, "latest_unix_ms": latest}
                connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))

    def latest(self, job_ids: Sequence[str]) -> dict[str, tuple[str, int, str | None]]:
        """Return the state of each job, the number of its last event, and its job of the engine."""
        number = select(func.max(job_events.c.number)).where(job_events.c.job == jobs.c.id).scalar_subquery()
        query = select(jobs.c.id, jobs.c.state, number, jobs.c.engine_job).where(jobs.c.id.in_(job_ids))
        with self._database.read() as connection:
            return {job: (state, last or 0, engine_job) for job, state, last, engine_job in connection.execute(query)}

    @staticmethod
    def columns() -> tuple[ColumnElement[Any], ...]:
        """Return the columns of a JobRow."""
        return _COLUMNS

    @staticmethod
    def row(row: Mapping[Any, Any]) -> JobRow:
        """Return a row that was selected by `columns`."""
        return _row(row)

    @staticmethod
    def rows(connection: Connection, job_ids: Sequence[str]) -> list[JobRow]:
        """Return jobs by their ids, of any tenant."""
        query = select(*_COLUMNS).where(jobs.c.id.in_(job_ids)).order_by(jobs.c.id)
        return [_row(row) for row in connection.execute(query).mappings()]

    def events(self, job_id: str, after: int, most: int) -> list[tuple[int, dict[str, Any]]]:
        """Return the next changes of a job's state after a number, each with its number."""
        query = (
            select(job_events)
            .where(job_events.c.job == job_id, job_events.c.number > after)
            .order_by(job_events.c.number)
            .limit(most)
        )
        with self._database.read() as connection:
            return [
                (
                    row["number"],
                    {"event": "state", "state": row["state"], "reason": row["reason"], "at_unix_ms": row["at_unix_ms"]},
                )
                for row in connection.execute(query).mappings()
            ]


def _require_no_ban(connection: Connection, tenant: str, request: Mapping[str, Any], now_ms: int) -> None:
    """Raise ApiProblem 409 if a ban refuses new jobs like this one."""
    source, ends = stores_of(request)
    ban = bans_in_force(connection, now_ms).refusing(tenant, [source], ends, now_ms / 1000)
    if ban is not None:
        raise ApiProblem(409, f"ban {ban.id} refuses new jobs: {ban.reason}", hint="submit the job later")


def _has_closed_routes(connection: Connection, job_id: str, now_ms: int) -> bool:
    """Return whether a job has run on routes that are closed now. One that has not run has the routes of its quote."""
    query = select(jobs.c.routes).where(jobs.c.id == job_id, jobs.c.engine_job.is_not(None))
    routes = JobRoutes.of_text(connection.execute(query).scalar())
    return routes is not None and routes.uses(closed_now(connection, now_ms, limits_of_resources(connection)))


def _one(connection: Connection, job_id: str) -> JobRow | None:
    row = connection.execute(select(*_COLUMNS).where(jobs.c.id == job_id)).mappings().first()
    return None if row is None else _row(row)


def _require(row: JobRow | None) -> JobRow:
    assert row is not None
    return row


def _row(row: Mapping[Any, Any]) -> JobRow:
    plain = {name: row[name] for name in _NAMES}
    try:
        documents = {"request": json.loads(row["request"]), "owned": tuple(json.loads(row["owned"]))}
    except ValueError:
        documents = {"request": {}, "owned": ()}  # Damaged. The job fails alone, and lists show the others.
    return JobRow(**{**plain, **documents})


def _held(lease: JobLease | None) -> list[ColumnElement[bool]]:
    return [] if lease is None else [jobs.c.owner == lease.owner, jobs.c.epoch == lease.epoch]


def add_event(connection: Connection, job_id: str, state: str, reason: str | None) -> None:
    """Record a change of a job's state, in the transaction that has changed its row."""
    last = select(func.coalesce(func.max(job_events.c.number), 0)).where(job_events.c.job == job_id)
    number = connection.execute(last).scalar_one() + 1
    row = {"job": job_id, "number": number, "at_unix_ms": database_clock_ms(connection)}
    connection.execute(insert(job_events).values(**row, state=state, reason=reason))
    enqueue_event(connection, job_id, number, state, reason)
