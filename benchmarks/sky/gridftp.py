"""Run GridFTP between two machines of a sky, memory to memory, in clear text (Debian's `globus-*` packages)."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from testbed.debian import debian_program
from testbed.servers.process import guarded
from tradewind.sky.running import Sky, SkyMachine

PORT = 50000
START_S = 20.0
POLL_S = 0.05


def fetch_s(
    sky: Sky,
    source: SkyMachine,
    sink: SkyMachine,
    *,
    streams: int,
    size_bytes: int,
    patience_s: float,
    beside: Callable[[int, threading.Event], None] | None = None,
) -> float:
    """Return the seconds from the client's start to its end. The client runs in the sink, the server in the source.

    `beside` runs in a thread meanwhile. It gets the server's process id, and an event that is set at the client's end.
    Raises RuntimeError if the server does not start, and the errors of `subprocess` if the client fails or takes longer
    than `patience_s`.
    """
    server = [
        debian_program("globus-gridftp-server"), "-aa", "-anonymous-user", "nobody", "-anonymous-group", "nogroup",
        "-p", str(PORT), "-control-interface", source.address, "-data-interface", source.address,
        "-c", "/dev/null", "-no-detach",
    ]  # fmt: skip
    client = [
        debian_program("globus-url-copy"), "-p", str(streams), "-len", str(size_bytes),
        f"ftp://anonymous:x@{source.address}:{PORT}/dev/zero", "file:///dev/null",
    ]  # fmt: skip
    quiet = subprocess.DEVNULL
    with tempfile.NamedTemporaryFile("w", suffix=".hosts") as hosts:
        # GridFTP looks up the names of addresses, but a sky has no name server.
        hosts.write(f"127.0.0.1 localhost\n{source.address} {source.name}\n{sink.address} {sink.name}\n")
        hosts.flush()
        named = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', hosts.name]
        serve = guarded([*named, *server])
        with sky.popen(source.name, serve, env=_environment(source), stdout=quiet, stderr=quiet) as process:
            ended = threading.Event()
            watcher = threading.Thread(target=beside, args=(process.pid, ended)) if beside else None
            try:
                _wait_listening(source.name, process)
                began_s = time.monotonic()
                if watcher is not None:
                    watcher.start()
                sky.run(
                    sink.name,
                    [*named, *client],
                    env=_environment(sink),
                    check=True,
                    capture_output=True,
                    timeout=patience_s,
                )
                return time.monotonic() - began_s
            finally:
                process.terminate()
                ended.set()
                if watcher is not None and watcher.ident is not None:
                    watcher.join()


def _environment(machine: SkyMachine) -> dict[str, str]:
    return {**os.environ, "GLOBUS_HOSTNAME": machine.address}


def _wait_listening(machine: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server's port is open, as /proc shows it for any process of its namespace."""
    deadline_s = time.monotonic() + START_S
    wanted = f":{PORT:04X}"
    while time.monotonic() < deadline_s and process.poll() is None:
        listing = Path(f"/proc/{process.pid}/net/tcp").read_text().splitlines()[1:]
        if any(line.split()[1].endswith(wanted) and line.split()[3] == "0A" for line in listing):
            return
        time.sleep(POLL_S)
    raise RuntimeError(f"globus-gridftp-server did not listen in {machine}")
