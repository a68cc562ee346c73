"""Tells the scheduler which routes a running job uses, however slowly the database answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from tradewind.errors import StateError
from tradewind.model.plan import Plan
from tradewind.service.faults import Faults
from tradewind.service.job_routes import JobRoutes, RoutesInUse
from tradewind.service.jobs import LeaseLost

__all__ = ["RoutesRecorder"]


class RoutesRecorder:
    """Records the routes in use in a thread of its own, one write at a time.

    An answer of the database can take longer than a lease, and the thread of a run must notice in time that its lease
    has ended: another server then runs the job.
    """

    def __init__(self, routes: RoutesInUse, write: Callable[[JobRoutes], None], faults: Faults) -> None:
        self._routes, self._write, self._faults = routes, write, faults
        self._lost: LeaseLost | None = None
        #: The thread that records now, or did so last.
        self.recording: threading.Thread | None = None

    def look(self, plan: Plan) -> None:
        """Record the routes of the present plan if they are new. Does not wait.

        Raises LeaseLost if an earlier write has found that.
        """
        if self._lost is not None:
            raise self._lost
        if self._routes.has_seen(plan) or (self.recording is not None and self.recording.is_alive()):
            return
        self.recording = threading.Thread(target=self._record, args=(plan,), name="routes of a job", daemon=True)
        self.recording.start()

    def _record(self, plan: Plan) -> None:
        # While the database does not answer, the lease decides; the next look tries again.
        with suppress(StateError), self._faults.caught("jobs", recovers=False):
            try:
                self._routes.record(plan, self._write)
            except LeaseLost as error:
                self._lost = error
