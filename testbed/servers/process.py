"""One server process: on a free port, in its own process group, ready when it answers, stopped by its id."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from types import TracebackType

from testbed.servers.janitor import delete_when_gone

START_TIMEOUT_S = 60.0
"""Timeout for a server's first answer. After it the server is stopped and reported with its log."""
STOP_TIMEOUT_S = 10.0
"""Timeout for a server's end after SIGTERM. After it the server is killed."""
POLL_S = 0.05

#: Below those that Linux gives to whoever asks for any (net.ipv4.ip_local_port_range).
_PORTS = range(20_000, 32_768)
_GUARD = str(Path(__file__).with_name("guarded.py"))


class ServerError(RuntimeError):
    """A server did not start. The message contains the end of its log."""


def free_port() -> int:
    """Return a loopback port that is free now, and that the system gives to no connection or listener by itself."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def guarded(command: list[str]) -> list[str]:
    """Return ``command``, wrapped so that it dies with this process."""
    return [sys.executable, "-I", "-S", _GUARD, str(os.getpid()), *command]


@dataclass
class Server:
    """A running server and its address."""

    name: str
    endpoint: str
    """``http(s)://127.0.0.1:PORT``."""
    environment: dict[str, str]
    """Variables that a client needs: credentials, region and, for clients that read it from there, the endpoint."""
    process: subprocess.Popen[bytes] | None
    """None in a process that only uses the server (``shared.py``)."""
    folder: Path
    """Data, log and certificates; deleted at stop."""
    access_key: str = ""
    secret_key: str = ""
    ca_file: Path | None = None
    """PEM of the private CA when the endpoint is HTTPS."""
    options: dict[str, str] = field(default_factory=dict)
    """Other facts about this server for tests."""

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process group and delete the folder. No effect if repeated, or in a process that only uses it."""
        if self.process is not None:
            stop_group(self.process)
            shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        """Return the end of the server's log."""
        return log_tail(self.folder)

    def cpu_s(self) -> float:
        """Return the user and system CPU seconds that the server's main process has used."""
        return process_cpu_s(self.pid)

    @property
    def pid(self) -> int:
        """The id of the server's process. Only known in the process that started it."""
        if self.process is None:
            raise ServerError(f"{self.name} was started by another process")
        return self.process.pid


def process_cpu_s(pid: int) -> float:
    """Return the CPU seconds, user and system, of a living process, all threads (``/proc/PID/stat``, 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def temporary_folder(name: str, parent: Path | None = None) -> Path:
    """Return a new folder, which is deleted at the end of this process at the latest."""
    folder = Path(tempfile.mkdtemp(prefix=f"tradewind-{name}-", dir=parent))
    delete_when_gone(folder)
    return folder


def spawn(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a server in its own process group. Its output goes to ``folder/log``."""
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            guarded(command),
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def wait_until_answering(
    process: subprocess.Popen[bytes],
    url: str,
    folder: Path,
    ca_file: Path | None = None,
    *,
    timeout_s: float = START_TIMEOUT_S,
) -> None:
    """Wait for any HTTP answer from ``url``, except 503, by which a server says that it is not ready yet.

    Raises :class:`ServerError` if there is none in time.
    """
    context = ssl.create_default_context(cafile=str(ca_file)) if ca_file else None
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise ServerError(f"server ended with {process.returncode}:\n{log_tail(folder)}")
        try:
            with urllib.request.urlopen(url, timeout=5, context=context):
                return
        except urllib.error.HTTPError as answer:
            if answer.code != HTTPStatus.SERVICE_UNAVAILABLE:
                return
            time.sleep(POLL_S)
        except OSError:
            time.sleep(POLL_S)
    stop_group(process)
    raise ServerError(f"{url} did not answer within {timeout_s:.0f} s:\n{log_tail(folder)}")


def stop_group(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the process group, then SIGKILL if it does not end. No effect if repeated."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def log_tail(folder: Path, lines: int = 20) -> str:
    """Return the last lines of ``folder/log``."""
    log = folder / "log"
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""
