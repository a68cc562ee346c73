"""Run a command and measure its cost: wall time, CPU time of its process tree, peak memory. A hang is a result too."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.servers.process import process_cpu_s

SAMPLE_S = 0.05
"""Interval of reading the CPU time of single processes. Time used after the last reading is not counted."""


@dataclass(frozen=True)
class Cost:
    """One run."""

    wall_s: float
    cpu_s: float
    """User and system, of the command and all its descendants."""
    rss_bytes: int
    """Peak resident memory of the largest single process."""
    failure: str | None = None
    """Why the run is invalid: ``hang``, or the exit code with the last line of output."""


@dataclass(frozen=True)
class Spread:
    """Several runs of one command."""

    runs: tuple[Cost, ...]

    @property
    def failure(self) -> str | None:
        """The first failure, or None."""
        return next((run.failure for run in self.runs if run.failure), None)

    @property
    def wall_s(self) -> float:
        """Median."""
        return statistics.median(run.wall_s for run in self.runs)

    @property
    def wall_range_s(self) -> tuple[float, float]:
        """Minimum and maximum."""
        return min(run.wall_s for run in self.runs), max(run.wall_s for run in self.runs)

    @property
    def cpu_s(self) -> float:
        """Median."""
        return statistics.median(run.cpu_s for run in self.runs)

    @property
    def rss_bytes(self) -> int:
        """Largest."""
        return max(run.rss_bytes for run in self.runs)


def run(
    command: Sequence[str | Path],
    environment: dict[str, str],
    timeout_s: float,
    watch: Callable[[subprocess.Popen[bytes]], None] | None = None,
    cwd: Path | None = None,
    rss_bytes_max: int | None = None,
) -> Cost:
    """Run a command to its end; kill its process group after ``timeout_s``, or if it uses too much memory.

    ``watch`` runs in a thread meanwhile.
    """
    started = time.monotonic()
    process = subprocess.Popen(
        [str(word) for word in command],
        env=environment,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    said = _Tail(process)
    ended_for: list[str] = []

    def give_up(reason: str) -> None:
        ended_for.append(reason)
        os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(timeout_s, give_up, [f"hang: given up after {timeout_s:.0f} s"])
    timer.start()
    if rss_bytes_max is not None:
        threading.Thread(target=_limit_memory, args=(process, rss_bytes_max, give_up), daemon=True).start()
    watcher = threading.Thread(target=watch, args=(process,), daemon=True) if watch else None
    if watcher:
        watcher.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)
    except BaseException:
        give_up("interrupted")
        raise
    finally:
        timer.cancel()
    wall_s = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if watcher:
        watcher.join()
    failure = None
    if ended_for:
        failure = ended_for[0]
    elif process.returncode != 0:
        failure = f"exit {process.returncode}: {said.last_line()}"
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10, failure)


def _limit_memory(process: subprocess.Popen[bytes], rss_bytes_max: int, give_up: Callable[[str], None]) -> None:
    """End a command when one of its processes has used more memory than allowed."""
    while process.returncode is None and not _is_zombie(process.pid):
        for pid in (process.pid, *_children(process.pid)):
            try:
                used = _peak_rss_bytes(pid)
            except (OSError, StopIteration):  # It has ended meanwhile.
                continue
            if used > rss_bytes_max:
                give_up(f"more than {rss_bytes_max / (1 << 30):.1f} GiB of memory")
                return
        time.sleep(SAMPLE_S)


class _Tail:
    """Drains a pipe and keeps the end of its output."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self._end = process, b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            while piece := os.read(stream.fileno(), 64 << 10):
                self._end = (self._end + piece)[-4096:]

    def last_line(self) -> str:
        self._reader.join(timeout=5)
        lines = self._end.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "nothing said"


class CpuByName:
    """Measures the CPU time of a command's children by name. Pass :meth:`watch` to `run`."""

    def __init__(self, name_of: Callable[[int], str | None]) -> None:
        self._name_of = name_of
        self.cpu_s: dict[str, float] = {}
        self.rss_bytes: dict[str, int] = {}

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Read CPU times until the command ends."""
        while Path(f"/proc/{process.pid}/stat").exists() and not _is_zombie(process.pid):
            for pid in _children(process.pid):
                self._sample(pid)
            time.sleep(SAMPLE_S)

    def _sample(self, pid: int) -> None:
        try:
            name = self._name_of(pid)
            if name is not None:
                self.cpu_s[name] = process_cpu_s(pid)
                self.rss_bytes[name] = max(self.rss_bytes.get(name, 0), _peak_rss_bytes(pid))
        except (OSError, ValueError, IndexError):
            # The process has ended meanwhile.
            return


def _children(pid: int) -> list[int]:
    try:
        return [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return []


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _peak_rss_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    # A process that has just ended has no memory any more.
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)


def load() -> str:
    """Return the machine's load average over one minute."""
    return Path("/proc/loadavg").read_text().split()[0]
