"""Runs the real ``tradewind`` command as a user would, and watches it from outside: events, processes, CPU, memory.

Each :class:`Command` has a home folder of its own (state, configuration, credentials), and marks everything it starts
with an environment variable, so that a test can prove that no process was left behind.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from testbed.processes import gateway_name
from testbed.servers.process import guarded, process_cpu_s
from testbed.transcript import record_command, record_output

MARK = "LC_TESTBED_TRADEWIND_RUN"
"""Environment variable that marks a process and its descendants. Gateways inherit few variables, but all of LC_*."""
_SETPRIV = ["setpriv", "--pdeathsig", "KILL", "--"]
RUN_TIMEOUT_S = 240.0
"""Timeout of a command. After it the command is killed and the test fails."""
OUTPUT_TIMEOUT_S = 30.0
"""A command's output must end this long after the command: whatever it started must not hold it open."""

Event = dict[str, Any]


class MissingBinary(RuntimeError):
    """The project has not been built."""


def find_binary(name: str) -> Path:
    """Return the path of ``name``: beside the running Python, on ``PATH``, or in Cargo's release folder."""
    root = Path(__file__).resolve().parent.parent
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    beside = Path(sys.executable).parent / name
    on_path = shutil.which(name)
    for candidate in (beside, root / ".venv" / "bin" / name, target / "release" / name, on_path and Path(on_path)):
        if candidate and candidate.exists():
            return candidate
    raise MissingBinary(f"{name} is not built: run `make setup`")


@dataclass
class Finished:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str
    events: list[Event]
    """With ``--json``: the lines of stdout."""

    @property
    def summary(self) -> Event:
        """The last event. Fails unless it is ``done``."""
        assert self.events, f"no events; stderr: {self.stderr}"
        assert self.events[-1]["event"] == "done", self.events[-1]
        return self.events[-1]

    @property
    def failures(self) -> list[Event]:
        """The objects that failed."""
        return [event for event in self.events if event["event"] == "object_failed"]

    @property
    def failure_kinds(self) -> list[str]:
        """The kinds of error of the objects that failed."""
        return [failure["kind"] for failure in self.failures]

    def expect(self, code: int) -> Finished:
        """Fail with the command's output unless the exit code is ``code``. Return self."""
        assert self.code == code, (
            f"exit {self.code}, expected {code}\nstderr: {self.stderr}\nstdout: {self.stdout[-3000:]}"
        )
        return self


@dataclass
class Command:
    """The ``tradewind`` command with a home folder and an environment of its own."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    enter: tuple[str, ...] = ()
    """Prefix that runs the command elsewhere, such as in a machine of a sky."""

    def __post_init__(self) -> None:
        self.binary = find_binary("tradewind")
        self.home.mkdir(parents=True, exist_ok=True)

    @property
    def state(self) -> Path:
        """Tradewind's state folder."""
        return self.home / "state" / "tradewind"

    @property
    def configuration(self) -> Path:
        """The path of the user's configuration."""
        return self.home / "config" / "tradewind" / "config.toml"

    def configure(self, *lines: str) -> None:
        """Replace the user's configuration."""
        self.configuration.parent.mkdir(parents=True, exist_ok=True)
        self.configuration.write_text("\n".join([*lines, ""]), encoding="utf-8")

    def run(self, *arguments: str | Path, stdin: bytes | None = None, timeout_s: float = RUN_TIMEOUT_S) -> Finished:
        """Run the command to its end. Output is text; for object bytes use :meth:`run_bytes`."""
        code, stdout, stderr = self._run(arguments, stdin, timeout_s)
        text = stdout.decode(errors="replace")
        return Finished(code, text, stderr, parse_events(text) if "--json" in arguments else [])

    def run_bytes(self, *arguments: str | Path, timeout_s: float = RUN_TIMEOUT_S) -> tuple[int, bytes, str]:
        """Run the command; return its exit code, stdout as bytes, and stderr."""
        return self._run(arguments, None, timeout_s)

    def start(self, *arguments: str | Path) -> Running:
        """Start the command with ``--json``, and return at once."""
        record_command(arguments)
        process = subprocess.Popen(
            _dying_with_us([*self.enter, str(self.binary), *map(str, arguments), "--json"]),
            env=self.full_environment(),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        return Running(process, self)

    def jobs(self) -> list[dict[str, Any]]:
        """Return the output of ``jobs list --json``."""
        listed = self.run("jobs", "list", "--json")
        assert listed.code == 0, listed.stderr
        return [json.loads(line) for line in listed.stdout.splitlines()]

    def full_environment(self) -> dict[str, str]:
        """Return the command's environment, without the user's own cloud settings."""
        clouds = ("AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR", "TRADEWIND_", "XDG_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(clouds)}
        return {
            **inherited,
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.home / "state"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "AWS_EC2_METADATA_DISABLED": "true",
            "TRADEWIND_GATEWAY": str(find_binary("tradewind-gateway")),
            MARK: self.mark,
            **self.environment,
        }

    def processes(self) -> list[int]:
        """Return the living processes that this command started, directly or indirectly."""
        wanted = f"{MARK}={self.mark}".encode()
        return [pid for pid in _live_pids() if wanted in _read(Path(f"/proc/{pid}/environ")).split(b"\0")]

    def kill_all(self) -> list[str]:
        """Kill all processes that this command started. Return their command lines."""
        killed = []
        for pid in self.processes():
            killed.append(_read(Path(f"/proc/{pid}/cmdline")).replace(b"\0", b" ").decode(errors="replace").strip())
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return killed

    def wait_until_alone(self, timeout_s: float = 30.0) -> None:
        """Wait until all processes that this command started have ended: gateways end with their client."""
        for pid in self.processes():
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            ended, _, _ = select.select([descriptor], [], [], timeout_s)
            os.close(descriptor)
            assert ended, f"process {pid} outlives its client"

    def _run(self, arguments: tuple[str | Path, ...], stdin: bytes | None, timeout_s: float) -> tuple[int, bytes, str]:
        for_people = "--json" not in arguments
        if for_people:
            record_command(arguments)
        process = subprocess.Popen(
            _dying_with_us([*self.enter, str(self.binary), *map(str, arguments)]),
            env=self.full_environment(),
            cwd=self.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            stdout, stderr = process.communicate(stdin, timeout_s)
        except BaseException:
            process.kill()
            self.kill_all()
            process.communicate()
            raise
        said = stderr.decode(errors="replace")
        if for_people:
            record_output(said + stdout.decode(errors="replace"))
        return process.returncode, stdout, said


class Running:
    """A running command, whose events are read by a thread."""

    def __init__(self, process: subprocess.Popen[bytes], command: Command) -> None:
        self.process, self._command = process, command
        self.events: list[Event] = []
        self._lines: list[str] = []
        self._stderr = b""
        self._changed = threading.Condition()
        self._ended = False
        self._readers = [threading.Thread(target=each, daemon=True) for each in (self._read_events, self._read_stderr)]
        for reader in self._readers:
            reader.start()

    def wait_for(self, condition: Callable[[Event], bool], timeout_s: float = RUN_TIMEOUT_S) -> Event:
        """Wait for the first event, past or future, that meets ``condition``, and return it."""
        with self._changed:
            found: list[Event] = []

            def look() -> bool:
                found.extend(event for event in self.events if condition(event))
                return bool(found) or self._ended

            self._changed.wait_for(look, timeout_s)
            if found:
                return found[0]
        said = self._stderr.decode(errors="replace")
        raise AssertionError(f"no such event; the last of {len(self.events)}: {self.events[-1:]}\nstderr: {said}")

    def wait_for_bytes(self, count: int) -> Event:
        """Wait for a progress event with at least this many acknowledged bytes."""
        return self.wait_for(lambda event: event["event"] == "progress" and event["bytes_done"] >= count)

    def wait_for_objects(self, count: int) -> Event:
        """Wait for a progress event with at least this many objects done."""
        return self.wait_for(lambda event: event["event"] == "progress" and event["objects_done"] >= count)

    def gateways(self) -> dict[str, int]:
        """Return the process id of each gateway, by name."""
        found = {}
        for pid in self._command.processes():
            with suppress(OSError):
                if (name := gateway_name(pid)) is not None:
                    found[name] = pid
        return found

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command itself, not to its gateways."""
        self.process.send_signal(number)

    def finish(self, timeout_s: float = RUN_TIMEOUT_S) -> Finished:
        """Wait for the command's end."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self._command.kill_all()
            self.process.wait()
            said = self._stderr.decode(errors="replace")
            raise AssertionError(
                f"not done within {timeout_s:.0f} s; last event {self.events[-1:]}\nstderr: {said}"
            ) from None
        for reader in self._readers:
            reader.join(OUTPUT_TIMEOUT_S)
        if any(reader.is_alive() for reader in self._readers):
            raise AssertionError(f"its output stays open after its end; still running: {self._command.kill_all()}")
        said = self._stderr.decode(errors="replace")
        record_output(said)
        return Finished(code, "".join(self._lines), said, self.events)

    def _read_events(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for raw in stream:
                line = raw.decode()
                events = parse_events(line)
                record_output("\n".join(f"note: {one['message']}" for one in events if one.get("event") == "notice"))
                with self._changed:
                    self._lines.append(line)
                    self.events.extend(events)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for raw in stream:
                self._stderr += raw


def _dying_with_us(command: list[str]) -> list[str]:
    """Wrap ``command`` so that it is killed with this process: by ``setpriv`` of util-linux if present (faster)."""
    return [*_SETPRIV, *command] if _setpriv_works() else guarded(command)


@cache
def _setpriv_works() -> bool:
    """Return whether ``setpriv`` has the option, which BusyBox's does not."""
    return (
        shutil.which(_SETPRIV[0]) is not None
        and subprocess.run([*_SETPRIV, "true"], capture_output=True).returncode == 0
    )


def parse_events(text: str) -> list[Event]:
    """Parse NDJSON. A line that is not a JSON object fails the test: stdout must contain only data."""
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def peak_rss_bytes(pid: int) -> int:
    """Return the peak resident memory of a living process (``VmHWM``)."""
    for line in _read(Path(f"/proc/{pid}/status")).decode().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that a living process has used."""
    return process_cpu_s(pid)


def _live_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(path: Path) -> bytes:
    """Return the content of a process's file; empty if the process has just ended or is not ours."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
