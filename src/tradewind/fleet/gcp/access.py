"""Access to a VM: nobody can log in, but its console can be read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from tradewind.errors import GatewayError
from tradewind.fleet.provider import CallRefused, Machine
from tradewind.model.records import dataclass

__all__ = ["LOOK_S", "GcpAccess"]

#: Interval between two looks at a machine that is asked often whether it has ended.
LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class GcpAccess:
    """A machine seen from outside: its serial console."""

    machine: Machine
    look: Callable[[Machine], str | None]
    """Return how a machine ended; None if it has not. Raises CallRefused."""
    console: Callable[[Machine, int], str]
    """Return the end of a machine's console."""

    def put(self, name: str, content: bytes) -> str:
        """Raise GatewayError: nobody can log in."""
        raise GatewayError(f"no file can be written on {self.machine.name}: its VM admits no login")

    def run(self, words: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Raise GatewayError: nobody can log in."""
        raise GatewayError(f"no command can be run on {self.machine.name}: its VM admits no login")

    def log_tail(self, bytes_max: int) -> str:
        """Return the end of the serial console, which boot.sh writes to."""
        return self.console(self.machine, bytes_max)

    def ending(self, timeout_s: float) -> str | None:
        """Return how the machine ended; None if it still runs."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            with suppress(CallRefused):
                if (how := self.look(self.machine)) is not None:
                    return how
            if time.monotonic() >= deadline_s:
                return None
            time.sleep(min(LOOK_S, max(0.0, deadline_s - time.monotonic())))
