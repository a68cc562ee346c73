"""How a job of the service ends when its machines do not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tradewind.engine.closed import ClosedPlaces
from tradewind.errors import GatewayLost, Interrupted, MachinesMayRun, StateError
from tradewind.service.faults import Faults
from tradewind.service.job_worker import JobWorker
from tradewind.service.jobs import LeaseLost


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


class LeftMachines:
    """Machines that a killed server has left. They are ended when somebody stops waiting."""

    def __init__(self, looks: int = 3) -> None:
        self._looks = looks

    def end_machines(self, is_to_stop: Callable[[], bool]) -> None:
        if any(is_to_stop() for _ in range(self._looks)):
            raise Interrupted("stopped", hint=None, job_id="j-1")


@pytest.mark.parametrize("why", ["the server ends", "the lease is lost"])
def test_a_server_that_must_leave_a_job_stops_waiting_for_the_end_of_its_machines(why: str) -> None:
    """The job stays as it is: the next server ends them."""
    closing = threading.Event()

    def state(_: Any) -> str:
        if why == "the lease is lost":
            raise LeaseLost("j-1")
        closing.set()
        return "pausing"

    worker: Any = SimpleNamespace(_closing=closing, _leases=SimpleNamespace(state=state))
    row, left, lease = SimpleNamespace(id="j-1"), LeftMachines(), SimpleNamespace(job="j-1")
    with pytest.raises(StateError, match="j-1"):
        JobWorker._end_machines(worker, row, left, lease)  # type: ignore[arg-type]


def test_a_job_that_is_to_pause_waits_for_the_end_of_its_machines() -> None:
    leases = SimpleNamespace(state=lambda _: "pausing")
    worker: Any = SimpleNamespace(_closing=threading.Event(), _leases=leases)
    row, lease = SimpleNamespace(id="j-1"), SimpleNamespace(job="j-1")
    JobWorker._end_machines(worker, row, LeftMachines(), lease)  # type: ignore[arg-type]
