"""Old jobs are removed only when they are over."""

from pathlib import Path

import pytest

from tests.engine.test_jobs import REQUEST, SPEC, make
from tradewind.engine import pruning
from tradewind.engine.jobs import JobStore
from tradewind.engine.ledger import LedgerBook
from tradewind.engine.pruning import Pruned, prune, prune_oldest
from tradewind.fleet.journal import FleetJournal
from tradewind.model.ledger import Ledger, MachineUse

NEW_UNIX_MS = 1_000_000


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    return JobStore(str(tmp_path))


def old(store: JobStore, job_id: str, state: str = "done") -> None:
    make(store, job_id, state)
    store.database.write("UPDATE jobs SET created_unix_ms = ? WHERE id = ?", (NEW_UNIX_MS - 1, job_id))


def rented(store: JobStore, job_id: str, ended_s: float | None) -> None:
    """Record one machine of a job that costs 2 USD/s from second 10 on."""
    use = MachineUse(1, "fleet", "m1", "aws:us-east-1", 10.0, ended_s, usd_per_s=2.0)
    LedgerBook(store.database, job_id, store.path(job_id)).write(Ledger(machines=(use,), heartbeat_s=20.0))


def kept(store: JobStore) -> list[str]:
    return [record.id for record in store.records()]


def test_old_jobs_are_removed_with_their_folders_and_costs(store: JobStore) -> None:
    for job_id in ("dear", "free"):
        old(store, job_id)
    rented(store, "dear", 13.0)
    old(store, "cancelled", "cancelled")
    make(store, "new", "done")
    expected = Pruned(("cancelled", "dear", "free"), 1, 6.0)
    assert prune(store, NEW_UNIX_MS, dry_run=True) == expected
    assert kept(store) == ["cancelled", "dear", "free", "new"]
    assert prune(store, NEW_UNIX_MS) == expected
    assert kept(store) == ["new"] and [path.name for path in Path(store.folder).iterdir()] == ["new"]
    assert store.database.row("SELECT count(*) FROM ledgers") == (0,)
    assert prune(store, NEW_UNIX_MS) == Pruned()


@pytest.mark.parametrize("state", ["running", "interrupted", "failed"])
def test_jobs_that_can_be_resumed_stay(store: JobStore, state: str) -> None:
    old(store, "job", state)
    assert prune(store, NEW_UNIX_MS) == Pruned() and kept(store) == ["job"]


def test_a_job_that_failed_before_its_lead_began_is_removed(store: JobStore) -> None:
    """It has nothing to resume. Its costs were kept until now."""
    for job_id in ("cheap", "begun"):
        store.make_folder(job_id)
        store.create(job_id, SPEC, REQUEST, None)
        store.set_start_failed(job_id)
        store.database.write("UPDATE jobs SET created_unix_ms = ? WHERE id = ?", (NEW_UNIX_MS - 1, job_id))
    rented(store, "cheap", 13.0)
    Path(store.path("begun"), "lock").touch()
    assert [record.state for record in store.records()] == ["failed", "failed"]
    assert prune(store, NEW_UNIX_MS) == Pruned(("cheap",), 1, 6.0)


@pytest.mark.usefixtures("few")
def test_failed_starts_do_not_accumulate(store: JobStore) -> None:
    for number in range(5):
        store.make_folder(f"job-{number}")
        store.create(f"job-{number}", SPEC, REQUEST, None)
        store.set_start_failed(f"job-{number}")
        rented(store, f"job-{number}", 13.0)
    assert prune_oldest(store).jobs == ("job-0", "job-1", "job-2")


def test_a_job_whose_process_lives_stays(store: JobStore) -> None:
    old(store, "job")
    lock = store.hold("job")
    assert prune(store, NEW_UNIX_MS) == Pruned()
    lock.release()
    assert prune(store, NEW_UNIX_MS).jobs == ("job",)


def test_a_job_whose_machines_have_not_ended_stays(store: JobStore) -> None:
    old(store, "machine")
    rented(store, "machine", None)
    old(store, "fleet")
    journal = FleetJournal(store.state_dir)
    journal.open("f1", "job fleet", {"kind": "local"}, {"m1": "aws:us-east-1"})
    assert prune(store, NEW_UNIX_MS) == Pruned()
    journal.close("f1")
    rented(store, "machine", 13.0)
    assert prune(store, NEW_UNIX_MS).jobs == ("fleet", "machine")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "OVER_JOBS_MAX", 2)
    monkeypatch.setattr(pruning, "OVER_JOBS_SLACK", 2)


@pytest.mark.usefixtures("few")
def test_only_the_newest_jobs_that_are_over_are_kept(store: JobStore) -> None:
    for number, state in enumerate(["done", "interrupted", "cancelled"]):
        make(store, f"job-{number}", state)
    assert prune_oldest(store) == Pruned()
    make(store, "job-3", "done")
    assert prune_oldest(store).jobs == ("job-0",)
    assert kept(store) == ["job-1", "job-2", "job-3"]


@pytest.mark.usefixtures("few")
def test_the_oldest_jobs_stay_too_if_they_can_be_resumed_or_are_held_or_have_machines(store: JobStore) -> None:
    for number, state in enumerate(["failed", "done", "done", "done", "done", "done"]):
        make(store, f"job-{number}", state)
    store.settle("job-0")
    ending = store.hold("job-1")
    rented(store, "job-2", None)
    assert prune_oldest(store).jobs == ("job-3",)
    ending.release()
    assert kept(store) == ["job-0", "job-1", "job-2", "job-4", "job-5"]
