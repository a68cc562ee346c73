"""Access to a machine of a cloud: its console can be read, but nobody can log in."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from tradewind.errors import GatewayError
from tradewind.fleet.provider import CallRefused, Machine
from tradewind.model.records import dataclass

__all__ = ["LOOK_S", "ConsoleAccess"]

#: Interval between two looks at a machine that is asked often whether it has ended.
LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class ConsoleAccess:
    """A machine seen from outside."""

    machine: Machine
    look: Callable[[Machine], str | None]
    """Return how a machine ended; None if it has not. Raises CallRefused."""
    console: Callable[[Machine, int], str]
    """Return the end of a machine's console, to which boot.sh writes. Raises CallRefused."""

    def put(self, name: str, content: bytes) -> str:
        """Raise GatewayError: nobody can log in."""
        raise GatewayError(f"{name} cannot be written on {self.machine.name}: the machine admits no login")

    def run(self, words: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Raise GatewayError: nobody can log in."""
        raise GatewayError(f"{words[0]} cannot run on {self.machine.name}: the machine admits no login")

    def log_tail(self, bytes_max: int) -> str:
        """Return the end of the console. Raises CallRefused."""
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
