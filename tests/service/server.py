"""A real server for tests: the command on a loopback port, and a client."""

from __future__ import annotations

import itertools
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

WAIT_S = 60.0
#: Trusts nobody: these servers speak HTTP without TLS, and to load the usual authorities takes 30 ms for each client.
NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Server:
    """One server; `start` after `kill` serves the same state folder."""

    def __init__(self, folder: Path, *options: str, log: str = "server.log", **environment: str) -> None:
        self.state, self.data = folder / "state", folder / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        self._options = options
        #: Folders that jobs may use.
        self.allowed = [str(self.data)]
        self._log = folder / log
        self.environment = environment
        self.process: subprocess.Popen[str] | None = None
        self.url = ""

    def command(self, *options: str) -> list[str]:
        base = [sys.executable, "-m", "tradewind.cli.main", "serve", "--state", str(self.state)]
        allowed = [f"--allow-path={path}" for path in self.allowed]
        return [*base, "--listen", "127.0.0.1:0", *allowed, *self._options, *options]

    def start(self) -> None:
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **self.environment},
            )
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if line.startswith("listening on "):
                self.url = line.split()[-1]
                return
        raise AssertionError(f"the server did not start: {lines} {self.log}")

    @property
    def log(self) -> str:
        return self._log.read_text()

    def prepare(self, *options: str) -> None:
        """Run the command with further options, such as --migrate, to its end."""
        around = {**os.environ, **self.environment}
        subprocess.run(self.command(*options), check=True, env=around, stdout=subprocess.DEVNULL)

    def kill(self, number: int = signal.SIGKILL) -> int:
        """End the server by a signal, and return its exit code."""
        assert self.process is not None
        os.kill(self.process.pid, number)
        code = self.process.wait(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None
        return code

    def admin_token(self) -> str:
        return (self.state / "admin.token").read_text().strip()

    def client(self, token: str | None = None) -> httpx.Client:
        token = token or self.admin_token()
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=WAIT_S, verify=NO_AUTHORITIES)


def get(url: str, **others: Any) -> httpx.Response:
    """Send a request without a client's token. A busy machine may need longer than the five seconds of httpx."""
    return httpx.get(url, **{"timeout": WAIT_S, "verify": NO_AUTHORITIES, **others})


def submit(client: httpx.Client, key: str, source: Path, destination: Path, **others: Any) -> httpx.Response:
    body = {"source": str(source), "destination": str(destination), **others}
    return client.post("/v1/jobs", json=body, headers={"Idempotency-Key": key})


def until(client: httpx.Client, job_id: str, *states: str) -> dict[str, Any]:
    """Return the job once it is in one of the states."""
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        found: dict[str, Any] = client.get(f"/v1/jobs/{job_id}").json()
        if found["state"] in states:
            return found
        assert found["state"] not in ("done", "failed", "cancelled"), found
        time.sleep(0.05)
    raise AssertionError(f"job {job_id} is {found}, not {states}")


def eventually(found: Callable[[], Any]) -> Any:
    """Return the first answer that is true, or not empty."""
    deadline_s = time.monotonic() + WAIT_S
    while not (value := found()):
        assert time.monotonic() < deadline_s, "it never came"
        time.sleep(0.05)
    return value


def until_waiting_for_another(client: httpx.Client, job_id: str, state: str = "waiting") -> dict[str, Any]:
    """Return the job once it says why it waits."""
    deadline_s = time.monotonic() + WAIT_S
    while (found := until(client, job_id, state))["waiting"] is None:
        assert time.monotonic() < deadline_s, found
        time.sleep(0.05)
    return found


def do_not_overlap(receipts: list[dict[str, Any]]) -> bool:
    """Return whether each run began after the one before had ended. A killed run has no end."""
    runs = sorted((run for one in receipts for run in one["runs"]), key=lambda run: run["started_unix_ms"])
    pairs = itertools.pairwise(runs)
    return all(one["ended_unix_ms"] is None or one["ended_unix_ms"] <= two["started_unix_ms"] for one, two in pairs)
