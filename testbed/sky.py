"""Measure traffic over a sky: goodput and round trips. A measurement during which the emulator was late is repeated."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tradewind.errors import SkyInvalid
from tradewind.sky.running import Sky, find_emulator

#: Share of the wire's rate that TCP carries as payload at MTU 1500: 1448 bytes of 1538 (20 IP, 32 TCP with
#: timestamps, 38 Ethernet with preamble and gap).
GOODPUT_PER_WIRE = 1448 / 1538
PORT = 5000
#: Maximum attempts of a measurement during which the emulator was late.
ATTEMPTS = 3
#: Time that a traffic command may take beyond its measurement, on a busy machine.
PATIENCE_S = 60.0

T = TypeVar("T")


def unavailable() -> str | None:
    """Return why no sky can run here, or None if one can."""
    if os.geteuid() != 0:
        return "a sky needs root"
    if not Path("/dev/net/tun").exists():
        return "a sky needs /dev/net/tun"
    return None


@contextmanager
def sink(sky: Sky, machine: str, *, window_bytes: int | None = None, port: int = PORT) -> Iterator[str]:
    """Run a traffic sink in a machine, and yield the address at which others reach it."""
    words = [find_emulator(), "traffic", "sink", "--listen", f"0.0.0.0:{port}"]
    if window_bytes is not None:
        words += ["--window", str(window_bytes)]
    with sky.popen(machine, words, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            json.loads(process.stdout.readline())
            yield f"{sky.machines[machine].address}:{port}"
        finally:
            process.kill()


def send(
    sky: Sky, machine: str, to: str, *, connections: int = 1, seconds: float = 5.0, warmup_s: float = 3.0, cc: str = ""
) -> float:
    """Return the goodput from a machine to a sink [Mbit/s]: the payload that arrived in `seconds`, after a warm-up."""
    words = [
        "send",
        "--to",
        to,
        "--connections",
        str(connections),
        "--seconds",
        str(seconds),
        "--warmup",
        str(warmup_s),
    ]
    options = ["--congestion-control", cc] if cc else []
    return float(_traffic(sky, machine, [*words, *options], seconds + warmup_s)["mbps"])


def ping(sky: Sky, machine: str, to: str, *, count: int = 20, interval_s: float = 0.05) -> dict[str, float]:
    """Return the round trips to a sink over one TCP connection: min_ms, median_ms, max_ms."""
    words = ["ping", "--to", to, "--count", str(count), "--interval", str(interval_s)]
    return _traffic(sky, machine, words, count * (interval_s + 1.0))


def valid(sky: Sky, measure: Callable[[], T]) -> T:
    """Return the result of `measure`, repeated while the emulator is late. Raises SkyInvalid after ATTEMPTS."""
    for attempt in range(1, ATTEMPTS + 1):
        sky.reset_stats()
        measured = measure()
        try:
            sky.check_valid()
        except SkyInvalid:
            if attempt == ATTEMPTS:
                raise
            continue
        return measured
    raise AssertionError("ATTEMPTS is at least one")


def _traffic(sky: Sky, machine: str, words: Sequence[str], lasting_s: float) -> dict[str, Any]:
    command = [find_emulator(), "traffic", *words]
    done = sky.run(machine, command, capture_output=True, text=True, timeout=lasting_s + PATIENCE_S)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
