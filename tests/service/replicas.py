"""Servers that share a PostgreSQL database, for tests: the balancer in front of them, and which one runs a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

from testbed.debian import debian_program
from testbed.postgres import Postgres
from testbed.servers.process import free_port, spawn, stop_group, wait_until_answering
from tests.service.server import Server

__all__ = ["balanced", "owner_of"]

BALANCER = """
defaults
  mode tcp
  timeout connect 1s
  timeout client 60s
  timeout server 60s
  option redispatch
  retries 3
frontend api
  bind 127.0.0.1:{port}
  default_backend servers
backend servers
  balance roundrobin
  default-server check inter 200ms fall 1 rise 1 on-marked-down shutdown-sessions
"""


@contextmanager
def balanced(ports: Sequence[int], folder: Path) -> Iterator[str]:
    """Run a plain TCP balancer, HAProxy, in front of servers at loopback ports, and yield its address.

    Raises InstallError.
    """
    haproxy, port, settings = debian_program("haproxy"), free_port(), folder / "haproxy.cfg"
    lines = [f"  server s{one} 127.0.0.1:{one}" for one in ports]
    settings.write_text(BALANCER.format(port=port) + "\n".join(lines) + "\n")
    balancer = spawn([haproxy, "-db", "-f", str(settings)], folder)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_answering(balancer, f"{url}/healthz", folder)
        yield url
    finally:
        stop_group(balancer)


def owner_of(postgres: Postgres, replicas: Sequence[Server], job_id: str) -> Server:
    """Return the server that works on a job. Its id has its process id."""
    with psycopg.connect(postgres.url, password=postgres.environment["PGPASSWORD"]) as connection:
        row = connection.execute("SELECT owner FROM jobs WHERE id = %s", (job_id,)).fetchone()
    assert row is not None
    return next(one for one in replicas if one.process is not None and f"-{one.process.pid}-" in row[0])
