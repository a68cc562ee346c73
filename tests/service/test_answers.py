"""Requests get the scheduler's answers also while a pass reads much, or the grid is read anew."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from tests.service.local import new_database, scheduler
from tests.service.test_two_schedulers import submit
from tradewind.engine.grid_export import grid_rows
from tradewind.service import grid, scheduling
from tradewind.service.database import ServiceDatabase
from tradewind.service.grid import GridReader
from tradewind.service.tables import jobs


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ServiceDatabase]:
    database = new_database(tmp_path)
    yield database
    database.close()


class Slow:
    """A reader that reads until it may go on."""

    def __init__(self) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def read(self, *_: object) -> Any:
        """Read, and return nothing."""
        self.begun.set()
        assert self.goes_on.wait(60)

    def during(self, act: Callable[[], object], then: Callable[[], object]) -> object:
        """Return what `then` returns while another thread acts."""
        thread = threading.Thread(target=act)
        thread.start()
        try:
            assert self.begun.wait(60)
            return then()
        finally:
            self.goes_on.set()
            thread.join()


def test_requests_ask_the_scheduler_while_a_pass_reads_the_progress_of_jobs(
    database: ServiceDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "PROGRESS_EVERY_S", 0.0)
    monkeypatch.setattr(scheduling, "ANSWER_WAIT_S", 0.01)
    slow = Slow()
    one = scheduler(database, tmp_path, "one", 3, slow.read)
    (name,) = submit(database, 0, 1)
    one.step()
    with database.write() as connection:
        connection.execute(update(jobs).values(engine_job="e"))
    assert slow.during(one.step, lambda: one.answer(name)) is not None


def test_a_pass_that_reads_decides_nothing_after_the_scheduler_has_left(
    database: ServiceDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "PROGRESS_EVERY_S", 0.0)
    slow = Slow()
    one = scheduler(database, tmp_path, "one", 3, slow.read)
    submit(database, 0, 1)
    one.step()
    with database.write() as connection:
        connection.execute(update(jobs).values(engine_job="e"))
    slow.during(one.step, one.leave)
    assert not one.is_scheduling


def test_readers_get_the_grid_as_it_was_while_it_is_read_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reader, slow = GridReader(str(tmp_path)), Slow()
    before = reader.rows()
    assert before
    monkeypatch.setattr(grid, "GRID_KEPT_S", -1.0)
    read = grid_rows

    def slowly(state_dir: str) -> object:
        slow.read()
        return read(state_dir)

    monkeypatch.setattr(grid, "grid_rows", slowly)
    seen: list[object] = []
    reading = threading.Thread(target=lambda: seen.append(slow.during(reader.rows, reader.rows)))
    reading.start()
    reading.join(10)
    slow.goes_on.set()
    reading.join()
    assert len(seen) == 1 and seen[0] is before
