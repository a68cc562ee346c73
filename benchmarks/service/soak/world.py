"""The world of the soak: PostgreSQL, an S3 server, three replicas behind a balancer, and a small disk.

Everything lives below one folder. Processes of the service inherit the variable `MARK`, so that one which outlives the
service is found, whatever its name.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import httpx

from benchmarks.service.soak.machines import StandInProvider
from benchmarks.service.soak.receiver import Receiver
from testbed.balancer import start_balancer
from testbed.postgres import Postgres
from testbed.s3 import S3, S3Error
from testbed.servers.install import go_program
from testbed.servers.process import ServerError, free_port, spawn, stop_group, temporary_folder, wait_until_answering
from testbed.servers.versitygw import MODULE, REGION, VERSION

__all__ = ["BUCKET", "LEASE_S", "MARK", "OWN_BUCKET", "Replica", "SoakWorld", "StoreServer", "stepped_clock"]

MARK = "SOAK_FOLDER"
REPLICAS, LEASE_S, JOBS_AT_ONCE = 3, 3, 4
BUCKET, OWN_BUCKET = "soak", "soak-own"
"""The bucket that jobs use with the credentials of the servers, and that of a tenant's connection."""
SMALL_BYTES, STATE_BYTES = 48 << 20, 512 << 20
"""Sizes of the file systems that are filled: a destination, and the state folder of all replicas."""
START_S = 300.0
LOOK_S = 0.2
CLONE_NEWNS = 0x0002_0000


class StoreServer:
    """An S3 server (versitygw) that can be killed and started again with its data."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder / "store", free_port()
        (self._folder / "data").mkdir(parents=True)
        self.access_key, self.secret_key = "soak", secrets.token_hex(16)
        self.endpoint = f"http://127.0.0.1:{self._port}"
        self._program = str(go_program("versitygw", MODULE, VERSION))
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def client(self) -> S3:
        """A client that is independent of Tradewind."""
        return S3(self.endpoint, self.access_key, self.secret_key, timeout_s=20)

    @property
    def environment(self) -> dict[str, str]:
        """Variables with the server's address and credentials."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
        }

    def start(self) -> None:
        """Start it unless it runs. Raises ServerError."""
        if self.process is not None and self.process.poll() is None:
            return
        command = [self._program, "--port", f"127.0.0.1:{self._port}", "--quiet", "--region", REGION, "posix"]
        environment = {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        self.process = spawn([*command, str(self._folder / "data")], self._folder, environment)
        wait_until_answering(self.process, self.endpoint, self._folder)

    def kill(self) -> None:
        """Kill it; its data stays."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


class Replica:
    """One server of the service, which is started again whenever it has ended, as a service manager would."""

    def __init__(self, name: str, port: int, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.name, self.port, self._command, self._folder = name, port, command, folder
        self._clock = folder / f"clock-{name}"
        self._environment = {**environment, **stepped_clock(self._clock)}
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.set_clock(0)

    def set_clock(self, ahead_s: int) -> None:
        """Step the wall clock that the replica reads, also while it runs."""
        new = self._clock.with_suffix(".new")
        new.write_text(f"{ahead_s:+d}\n")
        new.replace(self._clock)

    def start(self) -> None:
        """Start it, without waiting for it."""
        with (self._folder / f"replica-{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )
        self.starts += 1

    def log(self) -> str:
        """Return the end of its log."""
        return (self._folder / f"replica-{self.name}.log").read_text()[-2000:]

    def signal(self, number: int) -> None:
        """Send a signal to it if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


class SoakWorld:
    """All servers of the soak, until the block ends. Raises InstallError or ServerError if one cannot run."""

    def __init__(self, lease_s: int = LEASE_S) -> None:
        self.lease_s, self.folder = lease_s, temporary_folder("soak")
        self.data, self.state, self.small = (self.folder / name for name in ("data", "state", "data/small"))
        self.can_fill = _private_mounts()
        self.exits: Counter[str] = Counter()
        self._undo = contextlib.ExitStack()
        self._is_over = threading.Event()

    def __enter__(self) -> SoakWorld:
        try:
            self._start()
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _start(self) -> None:
        self.small.mkdir(parents=True)
        self.state.mkdir(mode=0o700)
        for place, size in ((self.small, SMALL_BYTES), (self.state, STATE_BYTES)) if self.can_fill else ():
            options = f"size={size},mode=0700"
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
            self._undo.callback(subprocess.run, ["umount", "-l", str(place)], check=False)
        self.postgres = Postgres()
        self._undo.callback(self.postgres.close)
        self.store = StoreServer(self.folder)
        self._undo.callback(self.store.kill)
        self.receiver = Receiver()
        self._undo.callback(self.receiver.close)
        for bucket in (BUCKET, OWN_BUCKET):
            self.store.client.create_bucket(bucket)
        self.provider = StandInProvider(self.folder)
        self._undo.callback(self.provider.close)
        self._start_service()

    def _start_service(self) -> None:
        port, ports = free_port(), [free_port() for _ in range(REPLICAS)]
        environment = {**os.environ, **self.postgres.environment, **self.store.environment, MARK: str(self.folder)}
        environment["XDG_CONFIG_HOME"] = str(self.provider.configuration_folder)
        base = [sys.executable, "-m", "tradewind.cli.main", "serve", "--state", str(self.state)]
        base += ["--database", self.postgres.url]
        subprocess.run([*base, "--migrate"], check=True, env=environment, stdout=subprocess.DEVNULL)
        base += ["--lease", str(self.lease_s), "--jobs", str(JOBS_AT_ONCE), "--allow-path", str(self.data)]
        base += ["--allow-store", f"s3://{BUCKET}/", "--allow-endpoint", self.store.endpoint]
        base += ["--allow-webhook-network", "127.0.0.0/8"]
        base += ["--via", "auto", "--max-cost", "1USD", "--max-vms", "1", "--share-keys"]
        self.replicas = [
            Replica(name, one, [*base, "--listen", f"127.0.0.1:{one}"], self.folder, environment)
            for name, one in zip("abc", ports, strict=True)
        ]
        balancer = start_balancer(port, ports, self.folder, probe="/readyz", idle_s=20, interval_ms=300, fall=2)
        self._undo.callback(stop_group, balancer)
        self.url = f"http://127.0.0.1:{port}"
        self.first_url = f"http://127.0.0.1:{ports[0]}"
        self._undo.callback(self.stop_service, kill_after_s=20.0)
        self.replicas[0].start()  # Alone, because it makes the admin token.
        self._wait_ready(self.replicas[0])
        for replica in self.replicas[1:]:
            replica.start()
        for replica in self.replicas[1:]:
            self._wait_ready(replica)
        self.admin_token = (self.state / "admin.token").read_text().strip()
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self._keeper.start()

    def stop_service(self, kill_after_s: float = 60.0) -> bool:
        """Stop the replicas with SIGTERM; return whether all ended in time. Those that did not are killed."""
        self._is_over.set()
        if hasattr(self, "_keeper"):
            self._keeper.join()
        for replica in self.replicas:
            replica.signal(signal.SIGCONT)
            replica.signal(signal.SIGTERM)
        end_s, in_time = time.monotonic() + kill_after_s, True
        for process in (one.process for one in self.replicas if one.process is not None):
            try:
                process.wait(max(0.1, end_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                in_time = False
                process.kill()
                process.wait()
        return in_time

    def fill(self, place: Path) -> Path:
        """Fill a file system, and return the file that fills it."""
        filler = place / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        with contextlib.suppress(OSError), filler.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        return filler

    def repair(self) -> None:
        """End all faults: start what is down, continue what is frozen, set the clocks right, free the disks."""
        for place in (self.small, self.state):
            (place / "filler").unlink(missing_ok=True)
        for replica in self.replicas:
            replica.set_clock(0)
            replica.signal(signal.SIGCONT)
        self.start_database()
        if self.store.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.store.process.pid, signal.SIGCONT)
        self.store.start()
        self.receiver.is_down = False

    def start_database(self) -> None:
        """Start PostgreSQL unless it runs. After a kill, its old children may still end."""
        for attempt in range(5):
            try:
                self.postgres.start()
                return
            except ServerError:
                if attempt == 4:
                    raise
                time.sleep(0.5)

    def has_uploads(self) -> list[str]:
        """Return the keys of unfinished multipart uploads."""
        found = []
        for bucket in (BUCKET, OWN_BUCKET):
            with contextlib.suppress(S3Error):
                found += [f"{bucket}/{one.key}" for one in self.store.client.uploads(bucket)]
        return found

    def _keep(self) -> None:
        """Start each replica again that has ended, and count how it ended."""
        while not self._is_over.wait(LOOK_S):
            for replica in self.replicas:
                if replica.process is not None and (code := replica.process.poll()) is not None:
                    self.exits[f"signal {-code}" if code < 0 else f"exit code {code}"] += 1
                    replica.start()

    def _wait_ready(self, replica: Replica) -> None:
        end_s = time.monotonic() + START_S
        while time.monotonic() < end_s:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{replica.port}/readyz").status_code == 200:
                    return
            time.sleep(LOOK_S)
        ended = "" if replica.process is None else f", exit code {replica.process.poll()}"
        raise ServerError(f"replica {replica.name} did not start{ended}:\n{replica.log()}")


def _private_mounts() -> bool:
    """Give this process mounts of its own, which end with it; return whether it may mount a file system."""
    if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        return False
    done = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, check=False)
    return done.returncode == 0


def stepped_clock(file: Path) -> dict[str, str]:
    """Return variables with which Python reads a wall clock that the file steps while it runs."""
    folder = file.with_suffix(".python")
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("stepped_clock.py"), folder / "sitecustomize.py")
    return {"PYTHONPATH": str(folder), "SOAK_CLOCK": str(file)}
