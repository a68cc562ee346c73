"""Faults of the program in the threads of a server: logged with an id, counted, and survived.

A thread that does one thing again and again, such as scheduling, does it within `Faults.caught`. An error that is not a
`TradewindError` is a fault of the program. It ends neither the thread nor the server: the part pauses, longer after
each fault in a row, and begins anew. Users see the id and the name of the part; only the log has the error itself.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tradewind.errors import TradewindError
from tradewind.model.records import dataclass
from tradewind.service.limits import FAULT_LOG_EVERY_S, FAULT_PAUSE_S, FAULT_PAUSE_S_MAX

__all__ = ["PARTS", "Fault", "Faults", "Step"]

_LOG = logging.getLogger("tradewind.service")
#: Parts of a server that run in threads or tasks of their own, or whose faults must not stop the others of a thread.
PARTS = (
    *("adoption", "deliveries", "jobs", "leases", "orphans", "schedules", "scheduling", "stores", "streams"),
    "webhooks",
)


@dataclass(frozen=True)
class Fault:
    """The latest fault of a part: its id in the log, its time by the monotonic clock [s], and its number in a row."""

    part: str
    id: str
    at_s: float
    in_a_row: int


@dataclass
class Step:
    """A step of a part, and the id of the fault that ended it, if there was one."""

    fault: str | None = None

    @property
    def error(self) -> str | None:
        """Message for users; None without a fault."""
        return None if self.fault is None else f"internal error of the service (fault {self.fault})"


class Faults:
    """The faults of one server since it started. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failing: dict[str, Fault] = {}
        self._counts = dict.fromkeys(PARTS, 0)
        self._due_s: dict[str, float] = {}
        self._logged: dict[str, tuple[object, float, str]] = {}

    @contextmanager
    def caught(
        self,
        part: str,
        *,
        recovers: bool = True,
        passing: type[TradewindError] = TradewindError,
        pause_s_max: float = FAULT_PAUSE_S_MAX,
    ) -> Iterator[Step]:
        """Run the block as a step of a part. A fault in it is recorded and suppressed; errors of `passing` pass.

        With `recovers`, the part has recovered when the block ends without an error.
        """
        step = Step()
        try:
            yield step
        except passing:
            raise
        except Exception as error:  # noqa: BLE001
            step.fault = self.record(part, error, pause_s_max=pause_s_max)
        else:
            if recovers:
                self.recovered(part)

    def record(self, part: str, error: Exception, *, pause_s_max: float = FAULT_PAUSE_S_MAX) -> str:
        """Log and count a fault, begin the pause of its part, and return the id of the fault.

        A fault of the same place in the program, in a row, is logged once in `FAULT_LOG_EVERY_S` with one id.
        """
        now_s, kind = time.monotonic(), _kind(error)
        with self._lock:
            before = self._failing.get(part)
            in_a_row = 1 if before is None else before.in_a_row + 1
            logged, logged_s, fault_id = self._logged.get(part, (None, 0.0, ""))
            is_logged = before is not None and kind == logged and now_s - logged_s < FAULT_LOG_EVERY_S
            if not is_logged:
                fault_id = secrets.token_hex(4)
                self._logged[part] = (kind, now_s, fault_id)
            self._failing[part] = Fault(part, fault_id, now_s, in_a_row)
            self._counts[part] += 1
            self._due_s[part] = now_s + min(FAULT_PAUSE_S * 2 ** min(in_a_row - 1, 16), pause_s_max)
        if not is_logged:
            _LOG.error("fault %s in %s", fault_id, part, exc_info=error)
        return fault_id

    def recovered(self, part: str) -> None:
        """Note that a part has worked without a fault."""
        if part in self._failing:
            with self._lock:
                self._failing.pop(part, None)
                self._due_s.pop(part, None)

    def pause_s(self, part: str) -> float:
        """Return the time for which a part should pause after its latest fault [s]; 0 without one."""
        with self._lock:
            return max(0.0, self._due_s.get(part, 0.0) - time.monotonic())

    def failing(self) -> list[Fault]:
        """Return the latest fault of each part that has not worked since, by name."""
        with self._lock:
            return [self._failing[part] for part in sorted(self._failing)]

    def counts(self) -> dict[str, int]:
        """Return the number of faults of each part since the server started."""
        with self._lock:
            return dict(self._counts)


def _kind(error: Exception) -> object:
    """Return the type of an error, and where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return type(error), None if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
