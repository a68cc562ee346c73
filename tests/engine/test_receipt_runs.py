"""The runs of a receipt state what each has moved, also killed ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.test_jobs import make
from tradewind.engine.event_store import EventStore
from tradewind.engine.jobs import JobStore
from tradewind.engine.receipt import _runs

JOB = "job-1"


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    store = JobStore(str(tmp_path))
    make(store, JOB)
    return store


def begin(store: JobStore) -> EventStore:
    return EventStore(store.database, JOB, store.path(JOB))


def line(event: str, done: int, earlier: int = 0) -> bytes:
    progress = {"bytes_done": done, "bytes_earlier": earlier}
    document: dict[str, Any] = {"event": event, **progress} if event == "progress" else {"event": event}
    return (json.dumps({**document, "progress": progress}) + "\n").encode()


def write_status(store: JobStore, unix_ms: int, done: int) -> None:
    status = {"updated_unix_ms": unix_ms, "progress": {"bytes_done": done, "bytes_earlier": 0}}
    Path(store.path(JOB), "status.json").write_text(json.dumps(status))


def moved(store: JobStore) -> list[int | None]:
    return [run["moved_bytes"] for run in _runs(store.database, JOB)]


def test_each_run_states_what_it_has_moved_itself(store: JobStore) -> None:
    for done, earlier in ((10, 0), (25, 10), (0, 0)):
        run = begin(store)
        run.append(line("done", done, earlier))
        run.end("interrupted", None)
    assert moved(store) == [10, 15, 0]


@pytest.mark.parametrize(("status_unix_ms", "expected"), [(2**62, 9), (1, 7)])
def test_a_killed_run_has_moved_what_was_last_written_about_it(
    store: JobStore, status_unix_ms: int, expected: int
) -> None:
    begin(store).put_progress(line("progress", 7))
    write_status(store, status_unix_ms, 9)
    assert moved(store) == [None]
    begin(store)
    assert moved(store) == [expected, None]


def test_runs_are_dated_by_the_clock_of_the_store(tmp_path: Path) -> None:
    """Servers that share a state folder have clocks of their own, and a run is charged by its times."""
    times = iter((5.0, 7.5))
    store = JobStore(str(tmp_path), unix_s=lambda: next(times))
    run = EventStore(store.database, JOB, store.path(JOB), store.unix_s)
    run.end("failed", None)
    (found,) = _runs(store.database, JOB)
    assert (found["started_unix_ms"], found["ended_unix_ms"]) == (5_000, 7_500)


def test_a_status_that_cannot_be_read_says_nothing(store: JobStore) -> None:
    begin(store)
    for content in (
        "[]",
        "{}",
        "x",
        '{"updated_unix_ms": "x", "progress": 1}',
        '{"updated_unix_ms": 9e17, "progress": 1}',
    ):
        Path(store.path(JOB), "status.json").write_text(content)
        begin(store)
    assert set(moved(store)) == {None}
