"""Bytes that the sink of a job has written by its own count, where the lead is on the host of somebody else.

A lead counts the bytes that it has sent, and a job is charged by that. A guest may run another program than ours, so
its counts are raised to those of the sink, which is the service's own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tradewind.errors import GatewayError
from tradewind.fleet.counts_file import recorded_count, write_count
from tradewind.gateway.client import GatewayClient
from tradewind.model.records import dataclass

__all__ = ["SINK_FILE", "SinkCounts", "SinkMeter"]

#: File in the job's folder with the bytes that its sinks have written in all runs.
SINK_FILE = "sink"
#: Interval at which a sink is asked, and maximum wait for its answer.
COUNT_EVERY_S, ANSWER_S = 0.5, 2.0
#: Names of the sink's metrics (control/metrics.rs), in the order of the fields of SinkCounts.
METRICS = (
    "tradewind_sink_written_bytes_total",
    "tradewind_sink_saved_bytes_total",
    "tradewind_sink_deduplicated_bytes_total",
)


@dataclass(frozen=True, slots=True)
class SinkCounts:
    """Bytes that one sink has written, that bodies did not carry, and of those, that deduplication left out."""

    written: int = 0
    saved: int = 0
    deduplicated: int = 0

    @classmethod
    def of_metrics(cls, text: str) -> SinkCounts:
        """Return the counts in the metrics of a gateway; zeros where it has none."""
        found = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(METRICS))
        return cls(*(int(float(found.get(name, 0))) for name in METRICS))

    def corrected(self, progress: Mapping[str, Any], earlier_bytes: int) -> dict[str, Any]:
        """Return a lead's progress with at least the bytes that were written, and at most those that were saved.

        Earlier runs have written `earlier_bytes`.
        """
        done = max(progress["bytes_done"], earlier_bytes + self.written)
        hops = [dict(hop) for hop in progress["hops"]]
        lacking = self.written - sum(hop["bytes"] for hop in hops)
        if lacking > 0 and hops:
            hops[0]["bytes"] += lacking
        elif lacking > 0:
            hops = [{"name": "", "bytes": lacking}]
        for name, most in (("saved_bytes", self.saved), ("deduplicated_bytes", self.deduplicated)):
            for hop in hops:
                hop[name] = min(hop.get(name, 0), most)
                most -= hop[name]
        return {**progress, "bytes_done": done, "bytes_total": max(progress["bytes_total"], done), "hops": hops}


class SinkMeter:
    """Asks the sink of one run what it has written, each COUNT_EVERY_S. Any thread may use it. Close it.

    `sink` is the client of its gateway, `folder` that of the job. `over` is called once if more was written in all runs
    than `ceiling_bytes`.
    """

    def __init__(self, sink: GatewayClient, folder: str, ceiling_bytes: int | None, over: Callable[[], None]) -> None:
        self._sink, self._file, self._ceiling_bytes, self._over = sink, Path(folder) / SINK_FILE, ceiling_bytes, over
        self._earlier_bytes = recorded_count(self._file) or 0
        self._counts = SinkCounts()
        self._reading, self._closed = threading.Lock(), threading.Event()
        threading.Thread(target=self._watch, name="sink counts", daemon=True).start()

    @property
    def has_written(self) -> bool:
        """Return whether the sink has written anything in this run."""
        return self._counts.written > 0

    def corrected(self, progress: Mapping[str, Any]) -> dict[str, Any]:
        """Return a progress of the lead with the sink's latest counts, see SinkCounts."""
        return self._counts.corrected(progress, self._earlier_bytes)

    def count(self) -> None:
        """Ask the sink now, and record what it has written. A sink that does not answer keeps its last counts."""
        with self._reading, suppress(GatewayError, OSError):
            found = SinkCounts.of_metrics(self._sink.metrics(ANSWER_S))
            if found.written > self._counts.written:
                self._counts = found
                write_count(self._file, self._earlier_bytes + found.written)

    def close(self) -> None:
        """Ask the sink no more."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(COUNT_EVERY_S):
            self.count()
            written = self._earlier_bytes + self._counts.written
            if self._ceiling_bytes is not None and written > self._ceiling_bytes:
                self._over()
                return
