"""The CPU time of the gateways that this process started, by name, while a transfer runs."""

from __future__ import annotations

import threading
from types import TracebackType

from testbed.processes import gateways_of
from testbed.servers.process import process_cpu_s

#: Interval of reading CPU times. What a gateway uses after the last reading is not counted.
SAMPLE_S = 0.1


class GatewayCpu:
    """Reads CPU times in a thread within its block. `cpu_s` has the latest of each gateway."""

    def __init__(self) -> None:
        self.cpu_s: dict[str, float] = {}
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> GatewayCpu:
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._reader.join()

    def of(self, start: str) -> float:
        """Return the CPU time of all gateways whose name begins with `start` [s]."""
        return sum(cpu_s for name, cpu_s in self.cpu_s.items() if name.startswith(start))

    def _read(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            for name, pid in gateways_of().items():
                try:
                    self.cpu_s[name] = process_cpu_s(pid)
                except (OSError, ValueError, IndexError):
                    continue  # It has ended meanwhile.
