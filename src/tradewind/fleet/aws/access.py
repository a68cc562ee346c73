"""Access to an instance: its console can be read, but nobody can log in."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from tradewind.errors import GatewayError
from tradewind.fleet.aws.api import AwsApi
from tradewind.fleet.provider import CallRefused, Machine
from tradewind.model.records import dataclass

__all__ = ["LOOK_S", "AwsAccess"]

#: Interval between two looks at a machine that is asked often whether it has ended.
LOOK_S = 2.0
#: Code of EC2 for the latest console of an instance that has none but the kept one.
NO_LATEST = "UnsupportedOperation"


@dataclass(frozen=True, slots=True)
class AwsAccess:
    """A machine seen from outside: its console."""

    machine: Machine
    api: AwsApi
    look: Callable[[Machine], str | None]
    """Return how a machine ended; None if it has not. Raises CallRefused."""

    def put(self, name: str, content: bytes) -> str:
        """Raise GatewayError: nobody can log in."""
        raise GatewayError(f"no file can be written on {self.machine.name}: its instance admits no login")

    def run(self, words: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Raise GatewayError: nobody can log in."""
        raise GatewayError(f"no command can be run on {self.machine.name}: its instance admits no login")

    def log_tail(self, bytes_max: int) -> str:
        """Return the end of the console, which boot.sh writes to."""
        return _console(self.api, self.machine, bytes_max)

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


def _console(api: AwsApi, machine: Machine, bytes_max: int) -> str:
    """Return the end of a machine's console. Raises CallRefused."""
    region, _, name = machine.id.partition("/")
    try:
        answer = api.ec2(region, "get_console_output", InstanceId=name, Latest=True)
    except CallRefused as error:
        if not error.refusal.reason.startswith(NO_LATEST):
            raise
        answer = {}
    if not answer.get("Output"):
        # Only Nitro instances show the latest. Others, and terminated ones, show what EC2 has kept.
        answer = api.ec2(region, "get_console_output", InstanceId=name)
    return str(answer.get("Output", ""))[-bytes_max:]
