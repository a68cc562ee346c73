import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tradewind.engine import jobs
from tradewind.engine.jobs import JobStore, done_line, new_job_id
from tradewind.errors import JobBusy, JobNotFound, JobUnreadable
from tradewind.model.job import JobSpec, ObjectSelection, Target
from tradewind.model.locks import try_lock
from tradewind.model.store import StoreSpec

SPEC = JobSpec(StoreSpec("s3://s"), ObjectSelection("k"), (Target(StoreSpec("s3://d"), "k"),))
REQUEST = {"verb": "cp", "source": "s3://s/k", "destinations": ["s3://d/k"], "argv": [], "settings": {}}


def make(store: JobStore, job_id: str, state: str | None = None) -> None:
    store.make_folder(job_id)
    store.create(job_id, SPEC, REQUEST, None)
    if state is not None:
        status = {"state": state, "progress": {"objects_done": 3}, "updated_unix_ms": 1}
        Path(store.path(job_id), "status.json").write_text(json.dumps(status))


@contextmanager
def led(store: JobStore, job_id: str) -> Iterator[None]:
    """Hold the lock like a living lead."""
    descriptor = os.open(Path(store.path(job_id), "lock"), os.O_CREAT | os.O_RDWR)
    try:
        assert try_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    return JobStore(str(tmp_path))


@pytest.mark.parametrize("state", ["done", "failed", "cancelled"])
def test_an_ended_job_has_the_outcome_of_its_status(store: JobStore, state: str) -> None:
    make(store, "job-1", state)
    record = store.load("job-1")
    assert (record.state, record.progress.objects_done) == (state, 3)
    assert "job-1" in repr(record)


@pytest.mark.parametrize("state", [None, "running", "interrupted"])
def test_the_lock_distinguishes_running_from_interrupted(store: JobStore, state: str | None) -> None:
    make(store, "job-1", state)
    assert store.load("job-1").state == "interrupted"
    with led(store, "job-1"):
        assert store.load("job-1").state == "running"
        with pytest.raises(JobBusy) as busy:
            store.require_no_lead("job-1")
        assert "resume" in (busy.value.hint or ""), "the lead of a killed command ends by itself"
    assert store.load("job-1").state == "interrupted"
    store.require_no_lead("job-1")


def test_waiting_for_the_leads_end(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    make(store, "job-1")
    looks = []
    lead = ExitStack()

    def look(_: float) -> None:
        looks.append(store.has_lead("job-1"))
        if len(looks) == 3:
            lead.close()

    monkeypatch.setattr("tradewind.model.locks.time.sleep", look)
    with lead:
        lead.enter_context(led(store, "job-1"))
        store.wait_lead_ended("job-1")
    assert looks == [True, True, True], "it returned before the lead ended"
    assert not store.has_lead("job-1")


def test_the_wait_for_the_leads_end_is_limited(store: JobStore) -> None:
    make(store, "job-1")
    with led(store, "job-1"), pytest.raises(JobBusy, match="is still running"):
        store.wait_lead_ended("job-1", timeout_s=0.0)


def test_reading_a_job_never_acquires_its_lock(store: JobStore) -> None:
    """When readers used a shared `flock`, a lead that started at that moment failed with "Busy"."""
    make(store, "job-1")
    lock = Path(store.path("job-1"), "lock")
    lock.touch()
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            store.has_lead("job-1")

    watchers = [threading.Thread(target=watch) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    try:
        for _ in range(2000):
            with led(store, "job-1"):
                pass
    finally:
        stop.set()
        for watcher in watchers:
            watcher.join()


@pytest.mark.parametrize("job_id", ["nothing", "../..", "", "UPPER", "x" * 65])
def test_unknown_jobs(store: JobStore, job_id: str) -> None:
    make(store, "job-1")
    with pytest.raises(JobNotFound):
        store.load(job_id)


def test_records_are_sorted_by_age_and_skip_other_folders(store: JobStore) -> None:
    for job_id in ("20250102-000000-aaaa", "20250101-000000-bbbb"):
        make(store, job_id, "done")
    Path(store.folder, "20250103-000000-cccc").mkdir()
    assert [record.id for record in store.records()] == ["20250101-000000-bbbb", "20250102-000000-aaaa"]


def test_without_a_folder_there_are_no_jobs(tmp_path: Path) -> None:
    assert list(JobStore(str(tmp_path / "no")).records()) == []


def test_the_remains_of_a_killed_client_are_removed(store: JobStore) -> None:
    make(store, "a-job")
    for job_id in ("old", "used", "fresh"):
        store.make_folder(job_id)
    used = store.hold("used")
    for job_id in ("a-job", "old", "used"):
        os.utime(store.path(job_id), (0, 0))
    store.remove_remains()
    assert sorted(os.listdir(store.folder)) == ["a-job", "fresh", "used"]
    used.release()


def test_the_last_line_of_a_job_that_is_done_is_found_again(store: JobStore) -> None:
    make(store, "job-1")
    folder = store.path("job-1")
    assert done_line(folder) is None
    summary = {"outcome": "done", "progress": {"objects_done": 3}}
    for state, found in (("running", None), ("failed", None), ("done", {"event": "done", **summary})):
        status = {"state": state, "progress": {}, "summary": summary, "updated_unix_ms": 1}
        Path(folder, "status.json").write_text(json.dumps(status))
        assert done_line(folder) == found


def test_one_process_at_a_time_runs_a_job(store: JobStore) -> None:
    make(store, "job-1")
    lock = store.hold("job-1")
    for _ in range(2):
        with pytest.raises(JobBusy, match="another process is working on job job-1"):
            store.hold("job-1")
    lock.release()
    lock.release()
    store.hold("job-1").release()


def test_ids_are_valid_in_the_contract() -> None:
    made = [new_job_id() for _ in range(100)]
    assert [job_id[:-6] for job_id in made] == sorted(job_id[:-6] for job_id in made)
    ids = set(made)
    assert len(ids) == 100
    for job_id in ids:
        assert set(job_id) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert len(job_id) <= 64


def test_an_unfinished_job_of_the_same_places_is_found(store: JobStore) -> None:
    def found() -> str | None:
        job = store.unfinished("s3://s/k", ["s3://d/k"])
        return None if job is None else job.id

    assert found() is None
    make(store, "20250101-000000-aaaaa", "interrupted")
    assert found() == "20250101-000000-aaaaa"
    assert store.unfinished("s3://s/k", ["s3://other/k"]) is None
    make(store, "20250101-000001-aaaaa")
    assert found() == "20250101-000001-aaaaa"
    with led(store, "20250101-000001-aaaaa"):
        assert found() is None, "it runs"
    make(store, "20250101-000002-aaaaa", "done")
    assert found() is None, "a later job has completed it"


@pytest.mark.parametrize(
    "change",
    [
        "request = 'not JSON'",
        "request = '[]'",
        f"spec = '{'[' * 200_000}'",
        "destinations = '{}'",
        "destinations = '[[1]]'",
        "source = x'ff'",
        "created_unix_ms = 'x'",
        "created_unix_ms = 1e300",
        "state = 'donf'",
        "spec = '{}'",
        """spec = '{"source": {"url": "s3://s"}, "targets": [{"stor": {}}]}'""",
        "state = 'done', progress = NULL",
        """state = 'failed', progress = '{"objects_done": "3"}'""",
        """request = replace(request, '"ceiling": null', '"ceiling": {"usd": 7}')""",
        "spec = replace(spec, 's3://s', 's3://r')",
        "spec = replace(spec, 's3://d', 's3://e')",
    ],
)
def test_a_damaged_job_is_reported_and_skipped(store: JobStore, change: str) -> None:
    make(store, "job-1", "done")
    make(store, "job-2")
    store.database.write(f"UPDATE jobs SET {change} WHERE id = 'job-2'")
    make(store, "job-3", "interrupted")
    damaged: list[JobUnreadable] = []
    assert [record.id for record in store.records(damaged.append)] == ["job-1", "job-3"]
    assert len(damaged) == 1
    assert "job job-2" in str(damaged[0])
    assert len(str(damaged[0])) < 500
    with pytest.raises(JobUnreadable):
        store.load("job-2")
    found = store.unfinished(REQUEST["source"], REQUEST["destinations"])  # type: ignore[arg-type]
    assert found is not None
    assert found.id == "job-3"


def test_a_job_of_an_older_version_has_no_digest(store: JobStore) -> None:
    make(store, "job-1")
    known = store.load("job-1")
    for column in ("request", "spec"):
        store.database.write(f"UPDATE jobs SET {column} = json_remove({column}, '$.digest')")
    assert store.load("job-1") == known and "digest" not in known.document


@pytest.mark.parametrize("status", ["[]", "{}", "[" * 200_000, '{"state": "done", "progress": {"objects_done": "3"}}'])
def test_a_damaged_status_counts_as_missing(store: JobStore, status: str) -> None:
    make(store, "job-1")
    Path(store.path("job-1"), "status.json").write_text(status)
    assert store.load("job-1").state == "interrupted"


def test_a_killed_cancellation_leaves_the_job_unchanged(store: JobStore) -> None:
    make(store, "job-1", "interrupted")
    folder = store.path("job-1")
    with jobs.cancelling(folder):
        assert store.is_cancelled("job-1")
        left = Path(folder, jobs.CANCELLING_FILE)
        assert left.exists()
    left.touch()
    assert not store.is_cancelled("job-1")


@pytest.mark.parametrize("state", ["done", "failed", "cancelled"])
def test_the_outcome_of_a_job_survives_its_files(store: JobStore, state: str) -> None:
    make(store, "job-1", state)
    store.settle("job-1")
    Path(store.path("job-1"), "status.json").unlink()
    record = store.load("job-1")
    assert (record.state, record.progress.objects_done) == (state, 3)
    store.reopen("job-1")
    assert store.load("job-1").state == "interrupted"


def test_a_job_whose_folder_was_removed_does_not_exist(store: JobStore) -> None:
    for job_id in ("job-1", "job-2"):
        make(store, job_id, "done")
        store.settle(job_id)
    shutil.rmtree(store.path("job-1"))
    assert [record.id for record in store.records()] == ["job-2"]
    with pytest.raises(JobNotFound):
        store.load("job-1")


def test_listing_ended_jobs_opens_none_of_their_files(store: JobStore) -> None:
    make(store, "job-0000", "done")
    store.settle("job-0000")
    with store.database.transaction() as connection:
        for number in range(1, 500):
            job_id = f"job-{number:04}"
            os.mkdir(store.path(job_id))
            connection.execute(
                "INSERT INTO jobs SELECT ?, created_unix_ms, verb, source, destinations, state, paused, progress,"
                " summary, json_remove(request, '$.digest'), json_remove(spec, '$.digest'), lead FROM jobs"
                " WHERE id = 'job-0000'",
                (job_id,),
            )
    opened: list[str] = []
    recording = True
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if recording and event == "open" else None)
    assert sum(record.state == "done" for record in store.records()) == 500
    recording = False
    assert not [path for path in opened if "job-" in path]
