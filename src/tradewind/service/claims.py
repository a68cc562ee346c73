"""Claims of jobs in the database: which server works on which job, and until when.

A claim gives a job an owner, a higher epoch, and a lease by the database's clock. The scheduler makes waiting jobs
`running` without an owner, see `scheduling`; each server claims its share of them, and of those of servers that died:
as if each job went to the server with the smallest part of its places in use. What another server should claim is left
to it for a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, func, insert, or_, select, update

from tradewind.model.records import dataclass
from tradewind.service.database import ServiceDatabase, database_unix_ms
from tradewind.service.jobs import JobLease
from tradewind.service.limits import LEFT_TO_OTHERS_S
from tradewind.service.scheduling_tables import schedulers
from tradewind.service.tables import ACTIVE, jobs, replicas

__all__ = ["Capacity", "ClaimTable", "Load", "share_of"]


@dataclass(frozen=True)
class Capacity:
    """The servers that run now, and the jobs that they may run together."""

    servers: int
    jobs_max: int


@dataclass(frozen=True)
class Load:
    """The jobs that a server works on, and the most that it may."""

    jobs: int
    jobs_max: int

    @property
    def part(self) -> float:
        """Part of its places that are in use."""
        return self.jobs / self.jobs_max


def share_of(server: str, loads: Mapping[str, Load], count: int) -> int:
    """Return how many of `count` jobs a server gets, if each goes to the one with the smallest part of its places in
    use. Between equals, the order of their names decides, so all servers find the same.
    """
    found, mine = dict(loads), 0
    for _ in range(count):
        free = [(load.part, name) for name, load in found.items() if load.jobs < load.jobs_max]
        if not free:
            break
        _, chosen = min(free)
        found[chosen] = Load(found[chosen].jobs + 1, found[chosen].jobs_max)
        mine += chosen == server
    return mine


class ClaimTable:
    """The claims of one server. `owner` is its id, `lease_ms` the length of its leases [ms].

    `peer` is where other servers reach it (JSON), see `peers`; None if they do not.
    """

    def __init__(
        self, database: ServiceDatabase, owner: str, jobs_max: int, lease_ms: int, peer: str | None = None
    ) -> None:
        self._database, self.owner, self._jobs_max, self._lease_ms = database, owner, jobs_max, lease_ms
        self._peer = peer

    def renew(self) -> dict[JobLease, str]:
        """Renew the leases of this server and of its jobs; return each active job's state. Raises StateError."""
        with self._database.write_rows() as connection:
            until = self._until(connection)
            values = {"jobs_max": self._jobs_max, "lease_unix_ms": until, "peer": self._peer}
            if connection.execute(update(replicas).where(replicas.c.id == self.owner).values(**values)).rowcount == 0:
                connection.execute(insert(replicas).values(id=self.owner, **values))
            held = connection.execute(
                update(jobs)
                .where(jobs.c.owner == self.owner, jobs.c.state.in_(ACTIVE))
                .values(lease_unix_ms=until)
                .returning(jobs.c.id, jobs.c.epoch, jobs.c.state)
            )
            return {JobLease(job, self.owner, epoch): state for job, epoch, state in held}

    def held(self) -> dict[JobLease, str]:
        """Return the state of each active job of this server. Raises StateError."""
        query = select(jobs.c.id, jobs.c.epoch, jobs.c.state).where(
            jobs.c.owner == self.owner, jobs.c.state.in_(ACTIVE)
        )
        with self._database.read() as connection:
            return {JobLease(job, self.owner, epoch): state for job, epoch, state in connection.execute(query)}

    def capacity(self) -> Capacity:
        """Return the capacity of all servers whose lease has not expired. Raises StateError."""
        query = select(func.count(), func.coalesce(func.sum(replicas.c.jobs_max), 0)).where(
            or_(replicas.c.lease_unix_ms >= self._database.clock_ms, replicas.c.id == self.owner)
        )
        with self._database.read() as connection:
            servers, jobs_max = connection.execute(query).one()
        return Capacity(int(servers), int(jobs_max))

    def peer_of(self, owner: str) -> str | None:
        """Return where another server is reached (JSON); None if it is this one, or gone. Raises StateError."""
        is_there = replicas.c.id == owner, replicas.c.id != self.owner
        query = select(replicas.c.peer).where(*is_there, replicas.c.lease_unix_ms >= self._database.clock_ms)
        with self._database.read() as connection:
            peer: str | None = connection.execute(query).scalar()
        return peer

    def adopt(self, limit: int) -> dict[JobLease, str]:
        """Claim up to `limit` active jobs without an owner, or with an expired lease; return their states.

        The share of another server is left to it for LEFT_TO_OTHERS_S. Jobs that are being paused or cancelled need no
        room, so they are adopted at once and beyond the limit.
        """
        is_free = or_(jobs.c.owner.is_(None), jobs.c.lease_unix_ms < self._database.clock_ms)
        names = jobs.c.id, jobs.c.epoch, jobs.c.state, jobs.c.updated_unix_ms, jobs.c.lease_unix_ms
        query = select(*names).where(jobs.c.state.in_(ACTIVE), is_free)
        with self._database.read() as connection:
            if connection.execute(query.limit(1)).first() is None:
                return {}
        adopted: dict[JobLease, str] = {}
        with self._database.write() as connection:
            until = self._until(connection)
            left_ms = until - self._lease_ms - LEFT_TO_OTHERS_S * 1000
            found = connection.execute(query.order_by(jobs.c.id).with_for_update(skip_locked=True)).all()
            share = share_of(self.owner, self._loads(connection), sum(row.state == "running" for row in found))
            for job, epoch, state, updated_ms, lease_ms in found:
                if state == "running":
                    is_left = share <= 0 and max(updated_ms, lease_ms or 0) > left_ms
                    if is_left or limit <= 0:
                        continue
                    share, limit = share - 1, limit - 1
                adopted[self._given(connection, job, epoch, until)] = state
        return adopted

    def _loads(self, connection: Connection) -> dict[str, Load]:
        """Return the load of each server whose lease has not expired."""
        owned = select(jobs.c.owner, func.count().label("jobs")).where(
            jobs.c.state.in_(ACTIVE), jobs.c.owner.is_not(None)
        )
        counts: dict[str, int] = {row.owner: row.jobs for row in connection.execute(owned.group_by(jobs.c.owner))}
        living = replicas.c.lease_unix_ms >= self._database.clock_ms
        servers = select(replicas.c.id, replicas.c.jobs_max).where(living)
        known = {self.owner: self._jobs_max, **{row.id: row.jobs_max for row in connection.execute(servers)}}
        return {name: Load(counts.get(name, 0), jobs_max) for name, jobs_max in known.items()}

    def release(self, lease: JobLease) -> None:
        """Give a job up, so that another server adopts it at once. Raises StateError."""
        with self._database.write_rows() as connection:
            held = jobs.c.id == lease.job, jobs.c.owner == lease.owner, jobs.c.epoch == lease.epoch
            connection.execute(update(jobs).where(*held).values(owner=None, lease_unix_ms=database_unix_ms(connection)))

    def close(self) -> None:
        """Claim no more jobs: the other servers get this one's share. Raises StateError."""
        self._jobs_max = 0
        with self._database.write_rows() as connection:
            connection.execute(update(replicas).where(replicas.c.id == self.owner).values(jobs_max=0))

    def leave(self) -> None:
        """Remove this server, and those whose lease has expired. Raises StateError."""
        with self._database.write_rows() as connection:
            is_gone = or_(replicas.c.id == self.owner, replicas.c.lease_unix_ms < self._database.clock_ms)
            connection.execute(delete(replicas).where(is_gone))

    def end_others(self) -> None:
        """End the leases of all other servers, which are gone: a lock says that this one is alone."""
        with self._database.write() as connection:
            connection.execute(delete(replicas))
            connection.execute(update(schedulers).values(lease_unix_ms=0))
            connection.execute(update(jobs).where(jobs.c.owner.is_not(None)).values(owner=None))

    def _until(self, connection: Connection) -> int:
        return self._database.read_clock(connection) + self._lease_ms

    def _given(self, connection: Connection, job: str, epoch: int, until: int, **values: Any) -> JobLease:
        owned = {"owner": self.owner, "epoch": epoch + 1, "lease_unix_ms": until}
        connection.execute(update(jobs).where(jobs.c.id == job).values(**owned, **values))
        return JobLease(job, self.owner, epoch + 1)
