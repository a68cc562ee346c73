"""Access to the pod of a machine: the end of its log, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tradewind.errors import GatewayError
from tradewind.fleet.kubernetes.calls import ClusterCalls
from tradewind.fleet.kubernetes.machines import Found
from tradewind.fleet.provider import CallRefused, Machine
from tradewind.model.kubernetes import KubeCluster
from tradewind.model.records import dataclass

__all__ = ["LOOK_S", "PodHost"]

#: Interval between two looks at a machine that is asked often whether it has ended.
LOOK_S = 0.5
#: Length of a line of a log that is assumed when a number of bytes is asked for.
LINE_BYTES = 80
NO_SHELL = "a gateway's image has no shell, so neither files nor commands are possible"


@dataclass(frozen=True, slots=True)
class PodHost:
    """The pod of a machine. `look` returns what its cluster lists of it now."""

    machine: Machine
    cluster: KubeCluster
    calls: ClusterCalls
    look: Callable[[], Found | None]

    def put(self, name: str, content: bytes) -> str:
        """Raise GatewayError."""
        raise GatewayError(f"{self.machine.id}: {NO_SHELL}")

    def run(self, words: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Raise GatewayError."""
        raise GatewayError(f"{self.machine.id}: {NO_SHELL}")

    def log_tail(self, bytes_max: int) -> str:
        """Return the end of the gateway's log; empty if the pod has not started, or is gone."""
        try:
            found = self.look()
            if found is None or found.pod is None or "waiting" in found.container:
                return ""
            return self.calls.log(found.pod["metadata"]["name"], max(1, bytes_max // LINE_BYTES))[-bytes_max:]
        except CallRefused as error:
            raise GatewayError(str(error), hint=error.hint) from error

    def ending(self, timeout_s: float) -> str | None:
        """Return how the gateway ended, or why it does not start; None if it runs or may still start."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                found = self.look()
            except CallRefused:
                return None  # Whoever does not answer says nothing about the machine.
            if found is None:
                return "its pod is gone"
            ending = found.ending()
            if ending is not None:
                return ending
            refusal = found.refusal(self.cluster, is_late=False)
            if refusal is not None:
                return refusal.reason
            if time.monotonic() >= deadline_s:
                return None
            time.sleep(LOOK_S)
