"""A fault of the service in one job fails that job, which is charged for what it has moved."""

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, update

from tests.service.local import copy_request, job_runner, new_database
from tests.service.server import Server, submit, until
from tradewind.engine.proposal import Request
from tradewind.engine.request import Options
from tradewind.service import job_worker
from tradewind.service.auth import Sender
from tradewind.service.job_worker import JobWorker
from tradewind.service.jobs import JobQueue
from tradewind.service.money import charges_of
from tradewind.service.money_tables import tariffs
from tradewind.service.tables import jobs

WAIT_S = 30.0
BYTES = 300_000
SENDER = Sender("admin", "default", "service_admin", frozenset())


def faulty(*_: object, **__: object) -> Any:
    raise ZeroDivisionError


def fault_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    end = JobWorker._end

    def fails_if_done(self: JobWorker, row: Any, lease: Any, state: str, **fields: Any) -> None:
        if state == "done":
            raise ZeroDivisionError
        end(self, row, lease, state, **fields)

    monkeypatch.setattr(JobWorker, "_end", fails_if_done)


def fault_in_the_receipt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_worker, "public_receipt", faulty)


@pytest.mark.parametrize(
    ("fault", "usd_micros"), [(fault_at_the_end, [3_000]), (fault_in_the_receipt, [])], ids=["end", "receipt"]
)
def test_a_job_with_a_fault_fails_and_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None], usd_micros: list[int]
) -> None:
    """Without a receipt nobody knows what it has moved, but it ends."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "0").write_bytes(os.urandom(BYTES))
    database = new_database(tmp_path)
    price = {"from_quantity": 0, "usd_micros_per_unit": 10_000_000}
    tariff = {"name": "base", "src": "*", "dst": "*", "unit": "GB", "tiers": [price]}
    with database.write() as connection:
        connection.execute(insert(tariffs).values(set_unix_ms=1, document=json.dumps([tariff])))
    queue, runner = JobQueue(database), job_runner(database, tmp_path)
    links = [("site:local", "site:local")]
    row, _ = queue.submit(SENDER, "key", "digest", copy_request(tmp_path), [str(tmp_path / "copy")], links)
    fault(monkeypatch)
    runner.start()
    try:
        deadline_s = time.monotonic() + WAIT_S
        while (found := queue.find(row.id)) is None or found.state != "failed":
            assert time.monotonic() < deadline_s, found
            time.sleep(0.02)
        assert re.fullmatch(r"internal error of the service \(fault [0-9a-f]{8}\)", found.error or "")
        with database.read() as connection:
            assert [line["usd_micros"] for line in charges_of(connection, row.id)] == usd_micros
    finally:
        runner.close()
        database.close()


def test_a_job_whose_start_was_forgotten_on_a_full_disk_is_proposed_again(tmp_path: Path) -> None:
    """The engine could remove the folder of a job that could not begin, but not its record."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "0").write_bytes(b"1")
    database = new_database(tmp_path)
    queue, runner = JobQueue(database), job_runner(database, tmp_path)
    request = Request(str(tmp_path / "source"), str(tmp_path / "copy"), Options(recursive=True), via="local")
    proposal = runner.engine.propose(request, keep=True)
    begun = runner.engine.start(proposal)
    begun.require_running().wait_ended(WAIT_S)
    begun.require_running().close()
    shutil.rmtree(runner.engine.control.store.path(begun.id))
    row, _ = queue.submit(SENDER, "key", "digest", copy_request(tmp_path), [str(tmp_path / "copy")])
    with database.write() as connection:
        connection.execute(update(jobs).values(proposal=proposal.id))
    runner.start()
    try:
        deadline_s = time.monotonic() + WAIT_S
        while (found := queue.find(row.id)) is None or found.state != "done":
            assert time.monotonic() < deadline_s and found is not None and found.error is None, found
            time.sleep(0.02)
        assert found.engine_job != begun.id
    finally:
        runner.close()
        database.close()


def test_a_waiting_job_without_its_record_of_the_engine_fails(tmp_path: Path) -> None:
    """Otherwise each pass of the scheduler would end with the same error, and start no other job."""
    database = new_database(tmp_path)
    queue, runner = JobQueue(database), job_runner(database, tmp_path)
    row, _ = queue.submit(SENDER, "key", "digest", copy_request(tmp_path), [str(tmp_path / "copy")])
    with database.write() as connection:
        connection.execute(update(jobs).values(engine_job="gone"))
    waiting = queue.find(row.id)
    assert waiting is not None
    runner._worker.fail(waiting, "5 attempts failed")
    found = queue.find(row.id)
    assert found is not None and (found.state, found.error) == ("failed", "5 attempts failed")
    runner.close()
    database.close()


def test_a_resumed_job_without_its_record_of_the_engine_says_so(tmp_path: Path) -> None:
    """The engine prunes jobs that failed before they began. Begun anew, such a job could cost its ceiling twice."""
    server = Server(tmp_path)
    server.start()
    try:
        with server.client() as client:
            job = submit(client, "key", server.data / "missing", server.data / "copy").json()["id"]
            until(client, job, "failed")
            for folder in (server.state / "engine" / "jobs").iterdir():
                shutil.rmtree(folder)
            assert client.post(f"/v1/jobs/{job}/resume").status_code == 202
            found = until(client, job, "failed")
        assert found["error"] == "the record of this job's earlier run was removed"
        assert found["hint"] == "submit it as a new job"
        assert "Traceback" not in server.log
    finally:
        server.kill()
