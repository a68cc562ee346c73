"""How a job of the service ends when its machines do not."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tradewind.engine.closed import ClosedPlaces
from tradewind.errors import GatewayLost, MachinesMayRun
from tradewind.service.faults import Faults
from tradewind.service.job_worker import JobWorker


class Running:
    """A run that has ended, and whose machines raise an error when they are to be ended."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.asked = False

    def wait_ended(self, timeout_s: float) -> bool:
        return True

    def close_places(self, closed: ClosedPlaces) -> None:
        raise AssertionError("it has ended")

    def close(self) -> None:
        raise self._error

    def result(self) -> None:
        self.asked = True


def watch(running: Running) -> None:
    worker: Any = SimpleNamespace(_traces=None, _faults=Faults(), _note_limits=lambda *_: None)
    job: Any = SimpleNamespace(require_running=lambda: running, running=running)
    lease: Any = SimpleNamespace(job="j-1")
    row: Any = SimpleNamespace(granted=None, request={"source": "/a", "destination": ["/b"]}, traceparent=None)
    JobWorker._watch(worker, job, lease, lambda: False, row)


def test_a_job_is_done_although_its_machines_may_run(caplog: pytest.LogCaptureFixture) -> None:
    running = Running(MachinesMayRun("2 of 2 machines may still run"))
    with caplog.at_level(logging.ERROR):
        watch(running)
    assert running.asked and "job j-1: 2 of 2 machines may still run" in caplog.text


def test_another_error_of_the_end_fails_the_job() -> None:
    running = Running(GatewayLost("it died"))
    with pytest.raises(GatewayLost):
        watch(running)
    assert not running.asked
