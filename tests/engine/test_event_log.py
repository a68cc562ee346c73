"""The event log: replayable, bounded, and no reader delays the writer or another reader."""

from __future__ import annotations

import json
import threading

import pytest

from tradewind.engine.event_log import EventLog
from tradewind.errors import GatewayLost


def test_each_reader_gets_everything_but_only_the_newest_progress() -> None:
    log = EventLog()
    log.append(b"a\n")
    log.put_progress(b"1\n")
    log.put_progress(b"2\n")
    log.append(b"b\n")
    log.end()
    for _ in range(2):
        assert list(log.lines()) == [b"a\n", b"2\n", b"b\n"]
    log.append(b"late\n")
    log.put_progress(b"3\n")
    assert list(log.lines()) == [b"a\n", b"2\n", b"b\n"]


def test_a_reader_that_keeps_up_gets_each_line() -> None:
    log, got, read = EventLog(), [], threading.Semaphore(0)

    def follow() -> None:
        for line in log.lines():
            got.append(line)
            read.release()

    reader = threading.Thread(target=follow)
    reader.start()
    for number in range(50):
        (log.put_progress if number % 3 else log.append)(b"%d\n" % number)
        assert read.acquire(timeout=30.0)
    log.end()
    reader.join()
    assert got == [b"%d\n" % number for number in range(50)]


def test_the_final_error_comes_after_the_remaining_events() -> None:
    log = EventLog()
    log.append(b"a\n")
    log.end(GatewayLost("gone"))
    log.end()
    lines = log.lines()
    assert next(lines) == b"a\n"
    with pytest.raises(GatewayLost, match="gone"):
        next(lines)


def test_beyond_the_limit_the_oldest_lines_are_dropped_and_counted_for_readers() -> None:
    log = EventLog(bytes_max=100)
    for number in range(50):
        log.append(b"%09d\n" % number)
    log.end()
    first, *rest = log.lines()
    assert rest == [b"%09d\n" % number for number in range(40, 50)]
    assert json.loads(first)["message"] == "nobody read 40 earlier lines in time"
