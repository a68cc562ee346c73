"""Transfers over given routes: their steady rates, how these vary, and the time from start to end."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.sky.carry import carry_launch
from benchmarks.taas.world import ROUTE_MBPS, Pools, Route, Weather, launch, pools_of
from testbed.processes import gateways_of
from tradewind.engine.launch_spec import LaunchSpec
from tradewind.fleet.sky_catalog import data_per_wire
from tradewind.sky.file import MTU_BYTES
from tradewind.sky.running import Sky

CHUNK_BYTES = 64 << 10
WARMUP_S, STEADY_PART = 2.0, 0.85
"""A transfer is steady after this time, and until this part of its bytes has arrived."""
SAMPLE_S, WINDOW_S = 0.2, 1.0
"""Interval of reading the links' counters, and of the rates whose variation is stated."""
SLICE_S = 0.1
"""A loaded processor gives the gateway its share of time in turns of this length."""

Launcher = Callable[[Sky, Sequence[Route]], LaunchSpec]


@dataclass
class Samples:
    """Bytes on the wire that have reached a node, by time."""

    at_s: list[float] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)

    def windows_mbps(self, whole_bytes: int) -> list[float]:
        """Return the rates of data in the windows of the steady part. What TCP sent twice does not count.

        The counters have all packets, so they are scaled to the size of the transfer, which has ended.
        """
        to_data = min(data_per_wire(MTU_BYTES), whole_bytes / max([1, *self.bytes]))
        began = next((at_s for at_s, got in zip(self.at_s, self.bytes, strict=True) if got > CHUNK_BYTES), 0.0)
        steady = [
            (at_s, got * to_data)
            for at_s, got in zip(self.at_s, self.bytes, strict=True)
            if at_s >= began + WARMUP_S and got * to_data <= STEADY_PART * whole_bytes
        ]
        rates, begin = [], None
        for at_s, got in steady:
            if begin is None:
                begin = (at_s, got)
            elif at_s - begin[0] >= WINDOW_S:
                rates.append((got - begin[1]) * 8e-6 / (at_s - begin[0]))
                begin = (at_s, got)
        return rates


@dataclass(frozen=True)
class Measured:
    """One transfer of one application."""

    elapsed_s: float
    windows_mbps: list[float]

    @property
    def mbps(self) -> float:
        """Mean of the windows. Raises StatisticsError if there are none."""
        return statistics.fmean(self.windows_mbps)


def transfer(
    sky: Sky,
    applications: Sequence[Sequence[Route]],
    size_bytes: int,
    seed: int,
    *,
    share: float = 1.0,
    pools: Pools | None = None,
    launcher: Launcher = launch,
) -> list[Measured]:
    """Run one transfer per application at once. `share` is the part of the time that relays may run. `pools` are by
    default those of the applications.

    A transfer that is too short has no windows.
    """
    every = [route for routes in applications for route in routes]
    samples = {routes[0][-1]: Samples() for routes in applications}
    relays = {name for route in every for name in route[1:-1]} if share < 1 else set()
    with (
        Weather(sky, pools_of(applications) if pools is None else pools, seed),
        _sampling(sky, samples),
        _loaded(relays, share),
        ThreadPoolExecutor(len(applications)) as pool,
    ):
        began = [pool.submit(_elapsed_s, launcher(sky, routes), size_bytes) for routes in applications]
        elapsed = [each.result() for each in began]
    windows = [samples[routes[0][-1]].windows_mbps(size_bytes) for routes in applications]
    return [Measured(*pair) for pair in zip(elapsed, windows, strict=True)]


def size_for(seconds: float, routes: float) -> int:
    """Return the bytes that so many routes carry in this time."""
    return round(ROUTE_MBPS * routes * seconds * 1e6 / 8)


def _elapsed_s(how: LaunchSpec, size_bytes: int) -> float:
    return carry_launch(how, 1, CHUNK_BYTES, None, object_bytes=size_bytes).elapsed_s


@contextmanager
def _sampling(sky: Sky, samples: dict[str, Samples]) -> Iterator[None]:
    ended = threading.Event()

    def read() -> None:
        is_over = False
        while not is_over:
            is_over = ended.wait(SAMPLE_S)  # One more time after the end: the counters are then complete.
            arrived = dict.fromkeys(samples, 0)
            now_s = time.monotonic()
            for path in sky.stats().paths:
                sink = path.dst.removesuffix("-1")
                if sink in arrived:
                    arrived[sink] += path.wire_bytes
            for sink, got in arrived.items():
                samples[sink].at_s.append(now_s)
                samples[sink].bytes.append(got)

    with _thread(read, ended):
        yield


@contextmanager
def _loaded(relays: set[str], share: float) -> Iterator[None]:
    """Stop the gateways of these nodes for a part of each slice, as a busy processor does. The kernel's TCP runs on."""
    ended = threading.Event()

    def turn() -> None:
        while not ended.is_set():
            pids = [pid for name, pid in gateways_of().items() if name in relays]
            _signal(pids, signal.SIGSTOP)
            ended.wait(SLICE_S * (1 - share) / share)
            _signal(pids, signal.SIGCONT)
            ended.wait(SLICE_S)

    if not relays:
        yield
        return
    with _thread(turn, ended):
        yield


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextmanager
def _thread(work: object, ended: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=work, daemon=True)  # type: ignore[arg-type]
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
