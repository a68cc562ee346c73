"""Bytes that the service's gateways have sent to a guest that receives, by their own count.

A job is charged by what its destination has acknowledged. A guest may run another program than ours, which keeps bytes
and acknowledges none. So what was sent is counted, too.
"""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from pathlib import Path

from tradewind.errors import GatewayError
from tradewind.fleet.counts_file import recorded_count, write_count
from tradewind.fleet.sockets import HOME, MACHINES, ControlFolder, socket_names
from tradewind.gateway.client import GatewayClient

__all__ = ["SENT_FILE", "SentRecord", "SourceMeter", "sent_bytes", "sent_to"]

#: File in the job's folder with the bytes that were sent to its guest in all runs.
SENT_FILE = "sent"
#: Interval at which gateways are asked, and maximum wait for an answer.
COUNT_EVERY_S, ANSWER_S = 0.5, 2.0
#: A line of a gateway's metrics (control/metrics.rs): the receiver and the bytes.
HOP_BYTES = re.compile(r'^tradewind_hop_bytes_total\{.*to="([^"]*)"\} ([0-9.e+]+)$', re.MULTILINE)


def sent_to(guest: str, metrics: str) -> int:
    """Return the bytes that a gateway has sent to a guest, by its metrics."""
    return sum(int(float(count)) for name, count in HOP_BYTES.findall(metrics) if name == guest)


class SourceMeter:
    """Asks the gateways of one run what they have sent to its guest, each COUNT_EVERY_S. Any thread may use it.

    `fleet_folder` has the control sockets of the gateways; `guest` is the name of the guest's. Close it.
    """

    def __init__(self, fleet_folder: Path, guest: str) -> None:
        self._folder, self._guest = fleet_folder, guest
        self._controls = {name: ControlFolder(fleet_folder, name=name) for name in (HOME, MACHINES)}
        self._sent: dict[str, int] = {}
        self._reading, self._closed = threading.Lock(), threading.Event()
        threading.Thread(target=self._watch, name="source counts", daemon=True).start()

    @property
    def sent_bytes(self) -> int:
        """Bytes that were sent to the guest in this run, with headers."""
        return sum(self._sent.values())

    def count(self) -> None:
        """Ask the gateways now. One that does not answer keeps its last count."""
        with self._reading:
            if self._closed.is_set():
                return
            for kind, controls in self._controls.items():
                for name in socket_names(self._folder, kind):
                    with suppress(GatewayError, OSError):
                        address = controls.address(name)
                        found = sent_to(self._guest, GatewayClient(address).metrics(ANSWER_S))
                        self._sent[address] = max(found, self._sent.get(address, 0))

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()
        with self._reading:
            for controls in self._controls.values():
                controls.close()

    def _watch(self) -> None:
        while not self._closed.wait(COUNT_EVERY_S):
            self.count()


class SentRecord:
    """Record of what was sent to the guest of a job in all runs, in the job's folder."""

    def __init__(self, folder: str) -> None:
        self._file = Path(folder) / SENT_FILE
        self._earlier_bytes, self._run_bytes = recorded_count(self._file) or 0, 0

    def note(self, run_bytes: int) -> None:
        """Record what the present run has sent. On a full disk, the next call does."""
        if run_bytes > self._run_bytes:
            with suppress(OSError):
                write_count(self._file, self._earlier_bytes + run_bytes)
                self._run_bytes = run_bytes


def sent_bytes(folder: str) -> int | None:
    """Return what was sent to the guest of a job, by its folder; None if it has no guest that receives."""
    return recorded_count(Path(os.path.join(folder, SENT_FILE)))
