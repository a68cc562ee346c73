"""Wishes of several commands at once: each is carried out or refused, and none replaces the end of an acceleration."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tradewind.engine import accelerations
from tradewind.engine.accelerations import WISH_LOCK, Accelerations
from tradewind.engine.engine import Engine
from tradewind.errors import GatewayLost
from tradewind.model.acceleration import AccelerationState, AccelerationWish
from tradewind.model.locks import FileLock
from tradewind.model.records import replace

#: Time between two looks of a supervisor.
LOOK_S = 0.2


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Accelerations]:
    """A running acceleration `one`."""
    with Engine(state_dir=str(tmp_path)) as engine:
        book = Accelerations(engine.control)
        book.make("one", "")
        book.write(AccelerationState("one", "running", 0.0, time.time()))
        yield book


@pytest.fixture
def lock(book: Accelerations) -> Iterator[FileLock]:
    """The lock of its supervisor."""
    lock = book.hold("one")
    yield lock
    lock.release()


def answer(book: Accelerations, wish: AccelerationWish) -> None:
    """Answer a wish as a supervisor that has carried it out."""
    state = replace(book.state("one"), wish=wish.number, supervision=None, updated_unix_s=time.time())
    book.write(replace(state, phase="ended") if wish.down else state)


def test_each_replan_is_carried_out(book: Accelerations, lock: FileLock, tmp_path: Path) -> None:
    seen: list[str | None] = []
    done = threading.Event()

    def supervise() -> None:
        while not done.wait(LOOK_S):
            wish = book.wish("one")
            if wish is not None and wish.number > book.state("one").wish:
                seen.append(wish.flows)
                answer(book, wish)

    names = ["a", "b", "c", "d"]
    for name in names:
        (tmp_path / name).write_text(name)
    supervisor = threading.Thread(target=supervise)
    supervisor.start()
    try:
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(lambda name: book.replan("one", str(tmp_path / name)), names))
    finally:
        done.set()
        supervisor.join()
    assert sorted(seen, key=str) == names


def test_no_replan_replaces_an_end_that_the_supervisor_has_not_seen(book: Accelerations, lock: FileLock) -> None:
    """The machines would run on, and `down` would wait in vain."""
    end = AccelerationWish(1, down=True)
    assert book._put(book.state("one"), end) == 1
    with pytest.raises(GatewayLost, match="is being ended"):
        book.replan("one", None)
    assert book.wish("one") == end
    assert book._put(book.state("one"), end) == 2, "another `down` may have another time to drain"


def test_a_replan_that_an_end_has_replaced_fails(book: Accelerations, lock: FileLock) -> None:
    with ThreadPoolExecutor(1) as pool:
        replanned = pool.submit(book.replan, "one", None)
        while book.wish("one") is None:
            time.sleep(LOOK_S)
        book._put(book.state("one"), AccelerationWish(0, down=True))
        wish = book.wish("one")
        assert wish is not None and wish.down
        answer(book, wish)
        with pytest.raises(GatewayLost, match="is being ended"):
            replanned.result()


def test_a_damaged_wish_keeps_no_acceleration_from_its_end(book: Accelerations) -> None:
    path, lock = book.folder / "one" / "wish.json", book.hold("one")
    book._put(book.state("one"), AccelerationWish(0, flows="a"))
    path.write_text("")
    # The supervisor may have read it before, as number 1.
    assert book._put(book.state("one"), AccelerationWish(0, down=True)) == 2
    assert book.wish("one") == AccelerationWish(2, down=True)
    path.write_text("")
    lock.release()
    with book.taken_over("one") as former:
        assert former.wish >= 1


@pytest.mark.parametrize("change", ["replan", "down"])
def test_a_command_that_is_stopped_while_it_records_a_wish_holds_up_no_other_for_ever(
    book: Accelerations, lock: FileLock, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(accelerations, "WISHING_S_MAX", 0.3)
    stopped = FileLock.take(book.folder / "one" / WISH_LOCK)
    assert stopped is not None
    with pytest.raises(GatewayLost, match="another command has begun to change acceleration one"):
        book.down("one", 0.0) if change == "down" else book.replan("one", None)
    stopped.release()
    assert book.wish("one") is None
