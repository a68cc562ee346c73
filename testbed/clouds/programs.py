"""An HTTP server for the gateway program, from which booted machines download it."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testbed.servers.process import guarded
from tradewind.fleet.boot.user_data import ProgramSource

__all__ = ["program_server", "program_source"]

PORT = 7480
START_S = 20.0


@contextmanager
def program_server(address: str, binary: str, folder: Path, enter: Sequence[str] = ()) -> Iterator[str]:
    """Serve a program at this address of this host, or of the machine that `enter` enters; yield its URL.

    Ends with this process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    served = folder / "tradewind-gateway"
    if not served.exists():
        os.link(binary, served) if os.stat(binary).st_dev == os.stat(folder).st_dev else served.write_bytes(
            Path(binary).read_bytes()
        )
    words = [*enter, sys.executable, "-m", "http.server", str(PORT), "--bind", address, "--directory", str(folder)]
    process = subprocess.Popen(guarded(words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://{address}:{PORT}/{served.name}"
    try:
        if not enter:
            _wait(url)
        yield url
    finally:
        process.kill()
        process.wait()


def program_source(url: str, binary: str) -> ProgramSource:
    """Return the source of a program that this host's processor runs."""
    digest = hashlib.sha256(Path(binary).read_bytes()).hexdigest()
    return ProgramSource(platform.machine(), url, digest)


def _wait(url: str) -> None:
    deadline_s = time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=5).close()
            return
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)
