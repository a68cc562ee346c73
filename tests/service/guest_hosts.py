"""Hosts that send to and receive from a service of their own, for tests: the commands, and claims of their jobs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.service.server import WAIT_S, Server, eventually


@contextmanager
def with_dublin(folder: Path, *options: str) -> Iterator[Server]:
    """Run a service with the site `dublin`, whose files are in `data/dublin`."""
    server = Server(folder, "--site", f"dublin={folder / 'data' / 'dublin'}", *options)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def some_files(folder: Path) -> Path:
    """Make a folder with three files of 100,000 bytes."""
    for name in ("one", "below/two", "a name with * and ?"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(100_000))
    return folder


#: A rate at which the large file of `slow` takes long enough to be interrupted.
SLOW = "8MB/s"


def command(server: Server, *words: str) -> list[str]:
    return [sys.executable, "-m", "tradewind.cli.main", words[0], "--service", server.url, *words[1:]]


def surroundings(server: Server, home: Path, token: str | None = None) -> dict[str, str]:
    own = {"TRADEWIND_SERVICE_TOKEN": token or server.admin_token(), "TRADEWIND_STATE_DIR": str(home / "state")}
    return {**os.environ, **own}


def tradewind(server: Server, home: Path, *words: str, token: str | None = None) -> subprocess.CompletedProcess[str]:
    around = surroundings(server, home, token)
    return subprocess.run(command(server, *words), capture_output=True, text=True, timeout=90, env=around, check=False)


def begin(server: Server, home: Path, *words: str) -> tuple[subprocess.Popen[str], str]:
    """Start a command, and return it with its job."""
    started = subprocess.Popen(
        command(server, *words), stderr=subprocess.PIPE, text=True, env=surroundings(server, home)
    )
    assert started.stderr is not None
    return started, started.stderr.readline().split()[-1]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def until_moved(client: httpx.Client, job_id: str, bytes_min: int) -> None:
    eventually(lambda: (client.get(f"/v1/jobs/{job_id}").json()["counts"] or {}).get("bytes_done", 0) >= bytes_min)


def submitted(client: httpx.Client, **places: Any) -> str:
    job_id: str = client.post("/v1/jobs", json=places, headers={"Idempotency-Key": os.urandom(8).hex()}).json()["id"]
    return job_id


def claimed(client: httpx.Client, job_id: str) -> dict[str, Any]:
    """Return the join document of a job, once its run waits for the guest."""
    deadline_s = time.monotonic() + WAIT_S
    while (answer := client.post(f"/v1/jobs/{job_id}/guest", json={})).status_code != 201:
        assert answer.status_code == 410 and time.monotonic() < deadline_s, answer.text
        time.sleep(0.05)
    found: dict[str, Any] = answer.json()
    return found
