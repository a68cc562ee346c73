"""Faults of the program in the threads of a server: logged with an id, shown, survived, and not shown to users."""

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from tests.service.local import new_database, scheduler
from tests.service.server import WAIT_S, Server, eventually, get, submit, until
from tradewind.errors import StateError
from tradewind.model.event import Progress
from tradewind.service import scheduling
from tradewind.service.auth import Sender
from tradewind.service.database import ServiceDatabase
from tradewind.service.faults import Faults
from tradewind.service.jobs import JobQueue
from tradewind.service.schedule_runner import ScheduleRunner
from tradewind.service.scheduling_tables import schedules
from tradewind.service.tables import jobs

SENDER = Sender("admin", "default", "service_admin", frozenset())
REQUEST = {"source": "/a", "destination": ["/b"], "verb": "cp", "recursive": True, "limit_bytes_per_s": None}
FAULT = re.compile(r"ERROR: fault ([0-9a-f]{8}) in (\w+)\nTraceback")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("faults"), "--allow-webhook-network", "127.0.0.0/8")
    (server.data / "source").mkdir()
    (server.data / "source" / "one").write_bytes(b"1")
    (server.data / "large").mkdir()
    with (server.data / "large" / "one").open("wb") as file:
        file.truncate(500 << 20)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ServiceDatabase]:
    database = new_database(tmp_path)
    yield database
    database.close()


def change(server: Server, statement: str, *values: str) -> None:
    """Change the database behind the server's back."""
    with closing(sqlite3.connect(server.state / "service.sqlite", timeout=WAIT_S)) as database, database:
        assert database.execute(statement, values).rowcount == 1


def health(server: Server) -> dict[str, Any]:
    answer = get(f"{server.url}/healthz")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def until_ok(server: Server) -> None:
    eventually(lambda: health(server) == {"status": "ok", "faults": []})


def test_scheduling_continues_after_a_fault(server: Server) -> None:
    """The row of a running job is damaged, so no decision can be made until it is repaired."""
    with server.client() as admin:
        slow = submit(admin, "slow", server.data / "large", server.data / "slow", recursive=True, limit_bytes_per_s=500)
        slow_id = slow.json()["id"]
        until(admin, slow_id, "running")
        owned = json.dumps([str(server.data / "slow")])
        change(server, "UPDATE jobs SET owned = '[' WHERE id = ?", slow_id)
        other = submit(admin, "other", server.data / "source", server.data / "other", recursive=True)
        assert other.status_code == 201
        (shown,) = eventually(lambda: [one for one in health(server)["faults"] if one["part"] == "scheduling"])
        assert health(server)["status"] == "degraded"
        assert (shown["id"], "scheduling") in FAULT.findall(server.log)
        assert get(f"{server.url}/readyz").status_code == 200
        text = admin.get("/metrics").text
        assert 'tradewind_service_failing{part="scheduling"} 1.0' in text
        assert re.search(r'tradewind_service_faults_total\{part="scheduling"\} [1-9]', text)
        assert admin.get(f"/v1/jobs/{other.json()['id']}").json()["state"] == "waiting"
        change(server, "UPDATE jobs SET owned = ? WHERE id = ?", owned, slow_id)
        until(admin, other.json()["id"], "done")
        until_ok(server)
        assert 'tradewind_service_failing{part="scheduling"} 0.0' in admin.get("/metrics").text
        admin.post(f"/v1/jobs/{slow_id}/cancel")
        until(admin, slow_id, "cancelled")


@pytest.mark.parametrize("column", ["failures", "request", "owned"])
def test_a_damaged_waiting_job_fails_alone(server: Server, column: str) -> None:
    with server.client() as admin:
        until_ok(server)
        place, other = server.data / f"place-{column}", server.data / f"other-{column}"
        slow = submit(
            admin, f"slow-{column}", server.data / "large", place, recursive=True, limit_bytes_per_s=500
        ).json()["id"]
        until(admin, slow, "running")
        behind = submit(admin, f"behind-{column}", server.data / "source", place, recursive=True).json()["id"]
        change(server, f"UPDATE jobs SET {column} = '[' WHERE id = ?", behind)
        # A server that starts reads all jobs, and no other one has read this one before.
        server.kill()
        server.start()
    with server.client() as admin:
        failed = until(admin, behind, "failed")
        found = FAULT.findall(server.log)
        assert failed["error"] == f"internal error of the service (fault {found[-1][0]})"
        assert admin.get("/v1/jobs").status_code == 200
        after = submit(admin, f"after-{column}", server.data / "source", other, recursive=True).json()["id"]
        until(admin, after, "done")
        admin.post(f"/v1/jobs/{slow}/cancel")
        until(admin, slow, "cancelled")


def test_a_running_job_whose_request_is_damaged_fails_alone(server: Server) -> None:
    with server.client() as admin:
        slow = submit(admin, "torn", server.data / "large", server.data / "torn", recursive=True, limit_bytes_per_s=500)
        slow_id = slow.json()["id"]
        until(admin, slow_id, "running")
        change(server, "UPDATE jobs SET request = '[' WHERE id = ?", slow_id)
        server.kill()
        server.start()
    with server.client() as admin:
        assert until(admin, slow_id, "failed")["error"].startswith("internal error of the service (fault ")
        after = submit(admin, "after-torn", server.data / "source", server.data / "after-torn", recursive=True)
        until(admin, after.json()["id"], "done")


def test_a_delivery_with_a_fault_counts_as_failed(server: Server) -> None:
    with server.client() as admin:
        made = admin.post("/v1/webhooks", json={"url": "http://127.0.0.1:9/hook", "states": ["done"]}).json()
        change(server, "UPDATE webhooks SET sealed = 'x' WHERE id = ?", made["id"])
        job_id = submit(admin, "one", server.data / "source", server.data / "one", recursive=True).json()["id"]
        until(admin, job_id, "done")
        url = f"/v1/webhooks/{made['id']}/deliveries"
        shown = eventually(lambda: [one for one in admin.get(url).json()["deliveries"] if one["attempts"]])
        assert re.fullmatch(r"internal error of the service \(fault [0-9a-f]{8}\)", shown[0]["error"])
        assert shown[0]["state"] == "pending"


def test_another_server_schedules_after_a_fault(
    database: ServiceDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "PROGRESS_EVERY_S", 0.0)

    def faulty(_: str) -> Progress | None:
        raise ZeroDivisionError

    one, two = scheduler(database, tmp_path, "one", progress=faulty), scheduler(database, tmp_path, "two")
    one.step()
    JobQueue(database).submit(SENDER, "key", "digest", REQUEST, ["/b"])
    one.step()
    with database.write() as connection:
        connection.execute(update(jobs).values(engine_job="e"))
    with pytest.raises(ZeroDivisionError):
        one.step()
    assert not one.is_scheduling
    one.leave()
    two.step()
    assert two.is_scheduling


def test_a_damaged_schedule_stops_no_other(database: ServiceDatabase) -> None:
    now_ms = round(time.time() * 1000)
    row = {"tenant": "default", "token": "admin", "cron": "* * * * *", "time_zone": "UTC", "overlap": "allow"}
    row |= {"request": json.dumps(REQUEST), "owned": '["/b"]', "links": "[]"}
    times = dict.fromkeys(("created_unix_ms", "last_unix_ms", "next_unix_ms"), now_ms - 90_000)
    with database.write() as connection:
        for name, queued in (("bad", "["), ("good", "[]")):
            connection.execute(insert(schedules).values(**row, **times, id=name, queued=queued, submitted=0))
    faults = Faults()
    runner = ScheduleRunner(database, JobQueue(database), faults)
    runner.step(is_scheduling=True)
    with database.read() as connection:
        assert set(connection.execute(select(jobs.c.schedule)).scalars()) == {"good"}
    assert [fault.part for fault in faults.failing()] == ["schedules"]
    runner.step(is_scheduling=True)
    assert faults.counts()["schedules"] == 1, "it is tried again after a pause"


def test_a_repeated_fault_is_logged_once_and_pauses_longer(caplog: pytest.LogCaptureFixture) -> None:
    faults = Faults()
    for _ in range(3):
        with faults.caught("scheduling"):
            raise KeyError("secret")
    (failing,) = faults.failing()
    assert failing.in_a_row == faults.counts()["scheduling"] == 3
    assert len(caplog.records) == 1 and failing.id in caplog.text
    assert 1 < faults.pause_s("scheduling") <= 4
    faults.record("scheduling", ValueError())
    assert len(caplog.records) == 2
    with pytest.raises(StateError), faults.caught("scheduling"):
        raise StateError("the database is locked")
    faults.recovered("scheduling")
    assert (faults.failing(), faults.pause_s("scheduling")) == ([], 0.0)
