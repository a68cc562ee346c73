"""Servers, stores and the command under test, for end-to-end tests with the real binaries."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.drive import Command
from testbed.faults import HttpProxy
from testbed.odd_stores import KINDS, OddStore
from testbed.places import AzurePlace, FilePlace, GcsPlace, Place, S3Place
from testbed.s3 import S3
from testbed.servers import Server, azurite, ceph, gcs, minio, moto, rclone, s3rver, seaweedfs, shared, versitygw

PROCESS_END_S = 20.0
"""Maximum time until the gateways of a killed client have ended, on a busy machine."""

#: The fixtures of the S3 servers.
S3_FIXTURES = {
    "versitygw": "s3_server",
    "moto": "moto_server",
    "rclone": "rclone_server",
    "s3rver": "s3rver_server",
    "seaweedfs": "seaweedfs_server",
    "minio": "minio_server",
    "ceph": "ceph_server",
}


def started(start: Callable[[], Server], needs: str, folder: Path) -> Iterator[Server]:
    """Yield a server for all workers. Outside of CI, skip if the program that installs it is missing."""
    if shutil.which(needs) is None and "CI" not in os.environ:
        pytest.skip(f"{needs} is not on PATH, and {start.__name__} is installed with it")
    with shared(start, folder) as server:
        yield server


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def _server(start: Callable[[], Server], needs: str) -> Any:
    """Return a fixture: a server for all workers."""

    @pytest.fixture(scope="session")
    def server(run_folder: Path) -> Iterator[Server]:
        yield from started(start, needs, run_folder / "servers")

    return server


s3_server = _server(versitygw, "go")
moto_server = _server(moto, "python3")
gcs_server = _server(gcs, "python3")
azure_server = _server(azurite, "npm")
rclone_server = _server(rclone, "python3")
s3rver_server = _server(s3rver, "npm")
seaweedfs_server = _server(seaweedfs, "python3")
minio_server = _server(minio, "go")
ceph_server = _server(ceph, "apt-get")


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """The command without any configuration. At the end none of its processes may live."""
    made = Command(tmp_path / "home")
    yield made
    end = time.monotonic() + PROCESS_END_S
    while (left := made.processes()) and time.monotonic() < end:
        time.sleep(0.05)
    names = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in left]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, f"processes left behind: {names}"


@pytest.fixture
def s3(s3_server: Server, command: Command) -> S3Place:
    """A new bucket of versitygw. `command` gets the credentials for it."""
    return S3Place(s3_server, command)


@pytest.fixture
def client(s3_server: Server) -> S3:
    """An independent client of versitygw."""
    return S3(s3_server.endpoint, s3_server.access_key, s3_server.secret_key)


@pytest.fixture
def proxy(s3_server: Server) -> Iterator[HttpProxy]:
    """A proxy in front of versitygw that can inject faults."""
    with HttpProxy(s3_server.endpoint) as made:
        yield made


@pytest.fixture
def place(request: pytest.FixtureRequest, command: Command, tmp_path: Path) -> Callable[[str], Place]:
    """Makes an empty place of a kind: `file`, one of `S3_FIXTURES`, `gcs` or `azure`."""

    def make(kind: str) -> Place:
        if kind == "file":
            return FilePlace(tmp_path / f"files-{os.urandom(4).hex()}")
        if kind == "azure":
            return AzurePlace(request.getfixturevalue("azure_server"), command)
        if kind == "gcs":
            return GcsPlace(request.getfixturevalue("gcs_server"), command)
        return S3Place(request.getfixturevalue(S3_FIXTURES[kind]), command)

    return make


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest) -> Iterator[OddStore]:
    """An empty store of each kind that can be given bad habits and faults."""
    with OddStore(request.param) as made:
        yield made


@pytest.fixture
def s3_store() -> Iterator[OddStore]:
    with OddStore("s3") as made:
        yield made


@pytest.fixture
def azure_store() -> Iterator[OddStore]:
    with OddStore("azure") as made:
        yield made


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB, which only root can mount."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system to fill")
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"this machine lets nobody mount a tmpfs: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
