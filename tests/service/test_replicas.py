"""Servers that share a PostgreSQL database: one continues the jobs of another, and none runs twice."""

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, insert, update

from testbed.postgres import Postgres
from tests.service.replicas import owner_of
from tests.service.server import WAIT_S, Server, do_not_overlap, eventually, get, submit, until
from tradewind.service.budgets import require_room, write_budget
from tradewind.service.database import ServiceDatabase, database_unix_ms
from tradewind.service.money_tables import accounts, charges
from tradewind.service.problems import ApiProblem
from tradewind.service.tables import jobs, tenants

SLOW = {"recursive": True, "limit_bytes_per_s": 2_000_000}
FILES = 12


@pytest.fixture(scope="module")
def replicas(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    folder = tmp_path_factory.mktemp("replicas")
    options = ("--database", postgres.url, "--lease", "2", "--jobs", "2")
    servers = [Server(folder, *options, log=f"{name}.log", **postgres.environment) for name in "ab"]
    for number in range(FILES):
        path = servers[0].data / "source" / f"{number:02}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(500_000))
    refused = run(servers[0])
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"error: {postgres.url} is empty\n")
    assert run(servers[0], "--migrate").stdout.startswith(f"{postgres.url}: migrated to version ")
    for server in servers:
        server.start()
    yield servers
    for server in servers:
        if server.process is not None:
            server.kill()


def run(server: Server, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        server.command(*options),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env={**os.environ, **server.environment},
    )


def test_jobs_are_spread_over_the_servers(replicas: list[Server], postgres: Postgres) -> None:
    data = replicas[0].data
    with replicas[0].client() as client:
        sent = [submit(client, f"spread{n}", data / "source", data / f"spread{n}", **SLOW).json()["id"] for n in "ab"]
        for job_id in sent:
            until(client, job_id, "running")
        counts = Counter(owned_by(postgres, replicas, sent))
        assert sorted(counts.values()) == [1, 1], counts
        for job_id in sent:
            client.post(f"/v1/jobs/{job_id}/cancel")
        for job_id in sent:
            until(client, job_id, "cancelled")


def owned_by(postgres: Postgres, replicas: list[Server], sent: list[str]) -> list[str]:
    """Return the address of the server of each job, once all have one."""
    with psycopg.connect(postgres.url, password=postgres.environment["PGPASSWORD"]) as connection:
        eventually(
            lambda: (
                not connection.execute("SELECT 1 FROM jobs WHERE id = ANY(%s) AND owner IS NULL", (sent,)).fetchone()
            )
        )
    return [owner_of(postgres, replicas, job_id).url for job_id in sent]


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL])
def test_another_replica_continues_the_job(replicas: list[Server], postgres: Postgres, number: signal.Signals) -> None:
    data = replicas[0].data
    copy = data / f"copy{number.value}"
    with replicas[0].client() as client:
        job_id = submit(client, f"k{number.value}", data / "source", copy, **SLOW).json()["id"]
        until(client, job_id, "running")
    while not list(copy.glob("*")):
        time.sleep(0.02)
    first = owner_of(postgres, replicas, job_id)
    first.kill(number)
    with next(one for one in replicas if one is not first).client() as client:
        job = until(client, job_id, "done")
        receipt = client.get(f"/v1/jobs/{job_id}/receipt").json()
        objects = client.get(f"/v1/jobs/{job_id}/objects?limit=200").json()["objects"]
    assert job["counts"]["objects_done"] == FILES
    assert len(receipt["runs"]) == 2
    assert sorted(Path(found["source"]).name for found in objects) == [f"{n:02}" for n in range(FILES)]
    first.start()


@pytest.mark.slow
def test_a_frozen_replica_loses_its_job_and_changes_nothing(replicas: list[Server], postgres: Postgres) -> None:
    data = replicas[0].data
    with replicas[0].client() as client:
        slow = {**SLOW, "limit_bytes_per_s": 600_000}
        job_id = submit(client, "frozen", data / "source", data / "frozen", **slow).json()["id"]
        until(client, job_id, "running")
    while not list((data / "frozen").glob("*")):
        time.sleep(0.02)
    first = owner_of(postgres, replicas, job_id)
    second = next(one for one in replicas if one is not first)
    assert first.process is not None
    os.kill(first.process.pid, signal.SIGSTOP)
    try:
        while owner_of(postgres, replicas, job_id) is not second:
            time.sleep(0.05)
        with second.client() as client:
            assert client.get(f"/v1/jobs/{job_id}").json()["state"] == "running", "its processes are still there"
    finally:
        os.kill(first.process.pid, signal.SIGCONT)
    with first.client() as client:
        job = until(client, job_id, "done")
        objects = client.get(f"/v1/jobs/{job_id}/objects?limit=200").json()["objects"]
        receipt = client.get(f"/v1/jobs/{job_id}/receipt").json()
    assert (job["counts"]["objects_done"], job["attempts"]) == (FILES, 0)
    # Its run is killed when it wakes, so objects that were not yet in the journal are written again.
    assert {Path(found["source"]).name for found in objects} == {f"{n:02}" for n in range(FILES)}
    assert do_not_overlap([receipt]), receipt["runs"]
    assert len(receipt["runs"]) == 2


def test_a_job_of_one_replica_is_shown_and_paused_by_the_other(replicas: list[Server]) -> None:
    with replicas[0].client() as one, replicas[1].client() as other:
        job_id = submit(one, "pause", replicas[0].data / "source", replicas[0].data / "paused", **SLOW).json()["id"]
        until(other, job_id, "running")
        for client, change, state in ((one, "pause", "paused"), (other, "resume", "running"), (one, "pause", "paused")):
            assert client.post(f"/v1/jobs/{job_id}/{change}").status_code == 202
            until(other, job_id, state)
        assert other.post(f"/v1/jobs/{job_id}/cancel").status_code == 202
        until(one, job_id, "cancelled")


def test_the_database_restarts_while_a_job_runs(replicas: list[Server], postgres: Postgres) -> None:
    with replicas[0].client() as client:
        data = replicas[0].data
        job_id = submit(client, "restart", data / "source", data / "restarted", **SLOW).json()["id"]
        until(client, job_id, "running")
        postgres.stop()
        refused = client.get(f"/v1/jobs/{job_id}")
        assert (refused.status_code, refused.headers["Content-Type"]) == (503, "application/problem+json")
        assert get(f"{replicas[0].url}/readyz").status_code == 503
        postgres.start()
        assert until(client, job_id, "done")["counts"]["objects_done"] == FILES


def test_servers_that_do_not_belong_together(replicas: list[Server], postgres: Postgres, tmp_path: Path) -> None:
    other = run(Server(tmp_path, "--database", postgres.url, **postgres.environment))
    assert other.returncode == 2
    assert other.stderr.startswith(f"error: {tmp_path / 'state'} is not the state folder of {postgres.url}\n")
    alone = Server(replicas[0].data.parent)
    assert "belongs to the servers of a PostgreSQL database" in run(alone).stderr


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://me:secret@localhost/x", "has a password"),
        ("postgresql://localhost/x?password=secret", "has a password"),
        ("postgresql://db.example/x", "does not say how the connection is encrypted"),
        ("mysql://localhost/x", "not a postgresql:// URL"),
        ("postgresql://localhost/x?nothing=1", "is not valid"),
    ],
)
def test_urls_that_are_refused(tmp_path: Path, url: str, reason: str) -> None:
    from tradewind.errors import UsageError
    from tradewind.service.postgres import checked_url

    with pytest.raises(UsageError, match=reason) as refused:
        checked_url(url)
    assert "secret" not in f"{refused.value} {refused.value.hint}"


@pytest.mark.usefixtures("replicas")
def test_a_budget_that_is_changed_meanwhile_holds(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in postgres.environment.items():
        monkeypatch.setenv(name, value)
    database = ServiceDatabase(tmp_path, postgres.url)
    with database.write() as connection:
        connection.execute(insert(tenants).values(name="changed", created_unix_ms=1))
        write_budget(connection, "changed", 1_000, "month", database_unix_ms(connection))

    def reserve() -> None:
        with database.write_rows() as connection:
            require_room(connection, "changed", "job j", 5_000, database_unix_ms(connection))

    with ThreadPoolExecutor(1) as pool:
        with database.write() as connection:
            write_budget(connection, "changed", 2_000, "day", database_unix_ms(connection))
            reserving = pool.submit(reserve)
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            with psycopg.connect(postgres.url, autocommit=True) as watcher:
                while watcher.execute(waits).fetchone() == (0,):
                    time.sleep(0.01)
        with pytest.raises(ApiProblem) as refused:
            reserving.result(WAIT_S)
    assert refused.value.status == 402
    database.close()


@pytest.mark.usefixtures("replicas")
def test_a_charge_while_a_budget_is_read_leaves_no_room(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Money that moves from reserved to spent must not be missed by a reader of both."""
    for name, value in postgres.environment.items():
        monkeypatch.setenv(name, value)
    database = ServiceDatabase(tmp_path, postgres.url)
    row: dict[str, Any] = {
        "id": "moving",
        "tenant": "moving",
        "idempotency_key": "k",
        "request_digest": "",
        "request": "{}",
    }
    row |= {"owned": "[]", "state": "done", "attempts": 0}
    times = dict.fromkeys(("created_unix_ms", "updated_unix_ms", "not_before_unix_ms"), 1)
    with database.write() as connection:
        connection.execute(insert(tenants).values(name="moving", created_unix_ms=1))
        connection.execute(insert(jobs).values(**row, **times))
        account: dict[str, Any] = {
            "job": "moving",
            "tenant": "moving",
            "links": "[]",
            "opened_unix_ms": 1,
            "is_open": 1,
        }
        connection.execute(insert(accounts).values(**account, reserved_usd_micros=600))
        write_budget(connection, "moving", 1_000, "month", database_unix_ms(connection))

    settled: list[bool] = []

    def settle() -> None:
        settled.append(True)
        with database.write_rows() as connection:
            connection.execute(update(accounts).where(accounts.c.job == "moving").values(reserved_usd_micros=0))
            line: dict[str, Any] = {"tenant": "moving", "job": "moving", "what": "egress", "usd_micros": 600}
            now_ms = database_unix_ms(connection)
            connection.execute(insert(charges).values(**line, at_unix_ms=now_ms, volume_bytes=0, run_ms=0))

    def settle_after_charges(_: Any, __: Any, statement: str, *___: Any) -> None:
        if "FROM charges" in statement and not settled:
            settle()

    with database.write_rows() as reading, pytest.raises(ApiProblem) as refused:
        event.listen(reading, "after_cursor_execute", settle_after_charges)
        require_room(reading, "moving", "job j", 500, database_unix_ms(reading))
    assert refused.value.status == 402
    database.close()
