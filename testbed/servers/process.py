"""One server process: free port, own process group, ready when it answers, stopped by its own id."""

from __future__ import annotations

import os
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
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from testbed.servers.janitor import delete_when_gone

START_TIMEOUT_S = 60.0
"""A server that has not answered by then is stopped and reported with its log."""
STOP_TIMEOUT_S = 10.0
"""A server that has not ended by then after SIGTERM is killed."""
POLL_S = 0.05

_GUARD = str(Path(__file__).with_name("guarded.py"))


class ServerError(RuntimeError):
    """A server did not start; the message holds the end of its log."""


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def guarded(command: list[str]) -> list[str]:
    """``command``, wrapped so that it dies with this process."""
    return [sys.executable, "-I", "-S", _GUARD, str(os.getpid()), *command]


@dataclass
class Server:
    """A running server and how to reach it."""

    name: str
    endpoint: str
    """``http(s)://127.0.0.1:PORT``."""
    environment: dict[str, str]
    """What a client needs: credentials, region and, where a client reads it from there, the endpoint."""
    process: subprocess.Popen[bytes] | None
    """None in a process that only uses the server (``shared.py``)."""
    folder: Path
    """Data, log and certificates; deleted at stop."""
    access_key: str = ""
    secret_key: str = ""
    ca_file: Path | None = None
    """PEM of the private CA when the endpoint is HTTPS."""
    options: dict[str, str] = field(default_factory=dict)
    """Anything else that a test must know of this server."""

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the process group and deletes the folder. Harmless when repeated, and in a process that only uses it."""
        if self.process is not None:
            stop_group(self.process)
            shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        """The end of what the server said."""
        return log_tail(self.folder)

    def cpu_s(self) -> float:
        """User and system CPU seconds that the server's main process has used."""
        return process_cpu_s(self.pid)

    @property
    def pid(self) -> int:
        """The server's process. Only the process that started it knows."""
        if self.process is None:
            raise ServerError(f"{self.name} was started by another process")
        return self.process.pid


def process_cpu_s(pid: int) -> float:
    """User and system CPU seconds of a live process, all threads (``/proc/PID/stat`` fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def temporary_folder(name: str, parent: Path | None = None) -> Path:
    """A fresh folder that is deleted with this process at the latest."""
    folder = Path(tempfile.mkdtemp(prefix=f"tradewind-{name}-", dir=parent))
    delete_when_gone(folder)
    return folder


def spawn(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Starts a server in its own process group, its output going to ``folder/log``."""
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


def wait_until_answering(process: subprocess.Popen[bytes], url: str, folder: Path, ca_file: Path | None = None) -> None:
    """Returns when ``url`` gives any HTTP answer; raises :class:`ServerError` when it never does."""
    context = ssl.create_default_context(cafile=str(ca_file)) if ca_file else None
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise ServerError(f"server ended with {process.returncode}:\n{log_tail(folder)}")
        try:
            with urllib.request.urlopen(url, timeout=5, context=context):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(POLL_S)
    stop_group(process)
    raise ServerError(f"{url} did not answer within {START_TIMEOUT_S:.0f} s:\n{log_tail(folder)}")


def stop_group(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the process group, SIGKILL if it does not end. Harmless when repeated."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def log_tail(folder: Path, lines: int = 20) -> str:
    """The last lines of ``folder/log``."""
    log = folder / "log"
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""
