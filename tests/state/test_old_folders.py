"""State folders of versions that kept files.

`files_before_the_database.json` has the files that the last of these versions wrote for six jobs: done, done with
prices, failed, interrupted, paused, and one whose control and lead were killed; and the fleet of the last one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.drive import Command
from tradewind.engine.event_store import read_events
from tradewind.engine.job_control import JobControl
from tradewind.engine.jobs import JobStore
from tradewind.engine.receipt import receipt_of
from tradewind.errors import JobUnreadable
from tradewind.fleet.journal import FleetJournal
from tradewind.model.ledger import Ledger
from tradewind.model.locks import FileLock
from tradewind.state.old_folders import FLEET_FILES, IMPORTED, JOB_FILES

OLD = json.loads(Path(__file__).with_name("files_before_the_database.json").read_text())
DONE, PRICED, FAILED, INTERRUPTED, PAUSED, KILLED = sorted({path.split("/")[1] for path in OLD if path[0] == "j"})
STATES = ["done", "done", "failed", "interrupted", "paused", "interrupted"]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state folder, with the sources of its jobs."""
    state = tmp_path / "root" / "state"
    for name, content in OLD.items():
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text(content.replace("@ROOT@", str(tmp_path / "root")))
    (tmp_path / "root" / "source").mkdir()
    for number in "123":
        (tmp_path / "root" / "source" / number).write_text(number * 400_000)
    topology = {
        "gateways": {"a": {"role": "source"}, "b": {"role": "sink"}},
        "routes": [{"nodes": ["a", "b"], "share": 1.0}],
    }
    (tmp_path / "root" / "topology.json").write_text(json.dumps(topology))
    return state


def test_all_jobs_are_unchanged(state: Path) -> None:
    control = JobControl(state_dir=str(state))
    records = {record.id: record for record in control.store.records()}
    assert [(record.id, record.state) for record in records.values()] == list(
        zip([DONE, PRICED, FAILED, INTERRUPTED, PAUSED, KILLED], STATES, strict=True)
    )
    for job_id, record in records.items():
        old = json.loads((state / "jobs" / job_id / IMPORTED / "job.json").read_text())
        assert record.document["spec"].pop("state_dir") == str(state / "jobs" / job_id)
        assert record.document == old
        lines = (state / "jobs" / job_id / IMPORTED / "events.ndjson").read_text().splitlines(keepends=True)
        assert [line.decode() for line, _, _ in read_events(control.store.database, job_id)] == lines
        assert control.ledger(record).total_usd(0.0) == pytest.approx(record.progress.cost_usd)
        ledger = state / "jobs" / job_id / IMPORTED / "ledger.json"
        assert control.book(job_id).read() == (
            Ledger.from_document(json.loads(ledger.read_text())) if ledger.exists() else None
        )
        assert receipt_of(control, job_id)["runs"]
    assert records[PRICED].progress.cost_usd > 0
    (fleet,) = FleetJournal(state).records()
    assert (fleet.purpose, fleet.ownership, len(fleet.machines)) == (f"job {KILLED}", "elsewhere", 3)


def test_files_are_moved_after_they_are_in_the_database_and_others_stay(state: Path) -> None:
    assert len(list(JobStore(str(state)).records())) == 6
    left = {str(path.relative_to(state)) for path in state.rglob("*") if path.is_file()}
    moved = {path for path in OLD if path.rsplit("/", 1)[1] in (*JOB_FILES, *FLEET_FILES)}
    for path in OLD:
        folder, name = path.rsplit("/", 1)
        assert (f"{folder}/{IMPORTED}/{name}" if path in moved else path) in left
    assert not moved & left


def test_jobs_can_be_resumed_after_the_migration(state: Path, tmp_path: Path) -> None:
    command = Command(tmp_path / "home", {"TRADEWIND_STATE_DIR": str(state)})
    for job_id, name in ((INTERRUPTED, "interrupted"), (PAUSED, "paused")):
        command.run("jobs", "resume", job_id).expect(0)
        for number in "123":
            assert (tmp_path / "root" / name / number).read_text() == number * 400_000
        assert command.run("jobs", "wait", job_id).expect(0).code == 0
    assert {job["state"] for job in command.jobs() if job["id"] in (INTERRUPTED, PAUSED)} == {"done"}


READER = """
import sys
from tradewind.engine.jobs import JobStore
print(*(f"{record.id} {record.state}" for record in JobStore(sys.argv[1]).records()), sep="\\n")
"""


def test_processes_that_start_together_migrate_a_folder_once(state: Path) -> None:
    words = [sys.executable, "-c", READER, str(state)]
    readers = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    seen = [reader.communicate()[0].splitlines() for reader in readers]
    assert all(lines == seen[0] and len(lines) == 6 for lines in seen)


def test_a_killed_migration_is_restarted(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the kill the database has no part of it, and no file is missing."""
    with monkeypatch.context() as patch:
        patch.setattr("tradewind.state.old_folders._import_ledger", _killed)
        with pytest.raises(KeyboardInterrupt):
            list(JobStore(str(state)).records())
    assert all((state / path).exists() for path in OLD)
    assert len(list(JobStore(str(state)).records())) == 6


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("content", ["[]", "{}", "null", "not JSON", "[" * 200_000, '{"id": "x", "spec": {}}'])
def test_a_damaged_job_is_reported_until_it_is_repaired_or_removed(state: Path, content: str) -> None:
    damaged = state / "jobs" / PAUSED / "job.json"
    good = damaged.read_text()
    damaged.write_text(content)
    store, reported = JobStore(str(state)), list[JobUnreadable]()
    assert PAUSED not in [record.id for record in store.records(reported.append)]
    (error,) = reported
    assert str(error).startswith(f"{damaged} is unreadable: ") and len(str(error)) < 500
    with pytest.raises(JobUnreadable):
        store.load(PAUSED)
    store.remove_remains()
    assert damaged.exists()
    damaged.write_text(good)
    store.database._leave()
    assert store.load(PAUSED).state == "paused"


def test_a_job_that_an_older_version_runs_is_not_touched(state: Path) -> None:
    lock = FileLock.take(state / "jobs" / KILLED / "client.lock")
    assert lock is not None
    store, reported = JobStore(str(state)), list[JobUnreadable]()
    assert KILLED not in [record.id for record in store.records(reported.append)]
    assert "an older version of tradewind runs it" in str(reported[0])
    assert (state / "jobs" / KILLED / "job.json").exists()
    lock.release()
    again = JobStore(str(state))
    again.database._leave()
    assert again.load(KILLED).state == "interrupted"


def test_an_unreadable_ledger_stays_unreadable(state: Path) -> None:
    (state / "jobs" / INTERRUPTED / "ledger.json").write_text("{")
    control = JobControl(state_dir=str(state))
    assert control.store.load(INTERRUPTED).state == "interrupted"
    assert control.book(INTERRUPTED).is_damaged()


def test_an_unreadable_fleet_is_reported(state: Path) -> None:
    (path,) = (state / name for name in OLD if name.endswith("fleet.json"))
    path.write_text("{")
    journal = FleetJournal(state)
    assert list(journal.records()) == []
    assert [fleet.id for fleet in journal.unreadable()] == [path.parent.name]
    journal.remove_remains()
    assert path.exists(), "its machines may live"


def test_an_unwritable_folder_is_reported(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = JobStore(str(state))
    monkeypatch.setattr(store.database, "_can_write", lambda: False)  # Root may write everywhere.
    with pytest.raises(Exception, match="cannot be upgraded") as refused:
        list(store.records())
    assert "copy of it" in refused.value.hint  # type: ignore[attr-defined]
    assert not os.path.exists(store.database.path)
