"""A private PostgreSQL server on loopback, which can be stopped and started again. Runs as nobody if this is root."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import time
from pathlib import Path

from testbed.debian import debian_program
from testbed.servers.process import ServerError, free_port, log_tail, spawn, stop_group, temporary_folder

__all__ = ["Postgres"]

USER = "tradewind"
NOBODY = 65_534
START_S = 60.0
POLL_S = 0.05


class Postgres:
    """One server with an empty database. Its clients need `environment`, which has the password."""

    def __init__(self) -> None:
        self.folder = temporary_folder("postgres")
        self._port, password = free_port(), secrets.token_hex(16)
        self.url = f"postgresql://{USER}@127.0.0.1:{self._port}/postgres"
        self.environment = {"PGPASSWORD": password}
        self._process: subprocess.Popen[bytes] | None = None
        word = self.folder / "password"
        word.write_text(password)
        if os.geteuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
            os.chown(word, NOBODY, NOBODY)
        command = [debian_program("initdb"), "-D", str(self._data), "-U", USER, "-A", "scram-sha-256", "--no-sync"]
        command += ["--pwfile", str(word), "-E", "UTF8", "--locale", "C.UTF-8"]
        done = subprocess.run(_unprivileged(command), cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServerError(f"initdb failed: {done.stderr}")
        self.start()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        """Start the server unless it runs, and return when it answers. Raises ServerError."""
        if self._process is not None:
            return
        command = [debian_program("postgres"), "-D", str(self._data), "-p", str(self._port), "-h", "127.0.0.1"]
        command += ["-k", str(self.folder), "-c", "fsync=off", "-c", "shared_buffers=16MB"]
        self._process = spawn(_unprivileged(command), self.folder)
        deadline_s = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() >= deadline_s:
                stop_group(self._process)
                self._process = None
                raise ServerError(f"postgres did not start:\n{log_tail(self.folder)}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """End the server's sessions and the server; its data stays."""
        if self._process is not None:
            pid = int((self._data / "postmaster.pid").read_text().split()[0])
            os.kill(pid, signal.SIGINT)  # A fast shutdown: SIGTERM would wait for the clients.
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                stop_group(self._process)
            self._process = None

    def kill(self) -> None:
        """Kill the server as a crash would; its data stays. The sessions' processes notice and end."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Stop the server and delete its data."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url, password=self.environment["PGPASSWORD"], connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


def _unprivileged(command: list[str]) -> list[str]:
    """Return the command as nobody if this is root, because PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return command
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]
