"""The clock of the service's database, as one server counts it between readings.

The servers share it, whatever their own clocks say. Telling the time never waits for the database, so a machine is
charged also while the database cannot be reached.
"""

from __future__ import annotations

from collections.abc import Callable

from tradewind.model.clock import elapsed_s, host_unix_s

__all__ = ["DatabaseClock"]

#: A reading that took longer says too little: this process may have been frozen meanwhile. It only counts if it is the
#: first.
READING_S_MAX = 1.0


class DatabaseClock:
    """Unix time of the database. Any thread may use it.

    Until the first reading, it has the time of this machine.
    """

    def __init__(self) -> None:
        self._ahead_s = host_unix_s() - elapsed_s()
        self._is_read = False

    def unix_s(self) -> float:
        """Return the Unix time of the database [s], at once."""
        return elapsed_s() + self._ahead_s

    def read(self, ask: Callable[[], int]) -> int:
        """Return the database's answer to `ask`, its Unix time [ms], and tell the time by it from now on."""
        asked_s = elapsed_s()
        unix_ms = ask()
        answered_s = elapsed_s()
        if not self._is_read or answered_s - asked_s <= READING_S_MAX:
            self._ahead_s, self._is_read = unix_ms / 1000 - (asked_s + answered_s) / 2, True
        return unix_ms
