"""Servers that share a PostgreSQL database, for tests: the balancer in front of them, and which one runs a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

from testbed.balancer import start_balancer
from testbed.postgres import Postgres
from testbed.servers.process import free_port, stop_group, wait_until_answering
from tests.service.server import Server, eventually

__all__ = ["balanced", "owner_of"]


@contextmanager
def balanced(ports: Sequence[int], folder: Path) -> Iterator[str]:
    """Run a plain TCP balancer, HAProxy, in front of servers at loopback ports, and yield its address.

    Raises InstallError.
    """
    port = free_port()
    balancer = start_balancer(port, ports, folder)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_answering(balancer, f"{url}/healthz", folder)
        yield url
    finally:
        stop_group(balancer)


def owner_of(postgres: Postgres, replicas: Sequence[Server], job_id: str) -> Server:
    """Return the server that works on a job, once one has taken it. Its id has its process id."""

    def owner() -> str | None:
        row = connection.execute("SELECT owner FROM jobs WHERE id = %s", (job_id,)).fetchone()
        assert row is not None
        found: str | None = row[0]
        return found

    with psycopg.connect(postgres.url, password=postgres.environment["PGPASSWORD"], autocommit=True) as connection:
        name = eventually(owner)
    return next(one for one in replicas if one.process is not None and f"-{one.process.pid}-" in name)
