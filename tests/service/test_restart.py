"""A killed server continues its jobs: none is lost, none runs twice, and a key still answers its job."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.service.server import Server, submit, until

SLOW = {"recursive": True, "limit_bytes_per_s": 6_000_000}
FILES = 16
START = "import sys; del sys.path[0]; from tradewind.cli.main import main; sys.exit(main())"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    for number in range(FILES):
        path = server.data / "source" / f"{number:02}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(500_000))
    server.start()
    yield server
    if server.process is not None:
        server.kill(signal.SIGKILL)


def test_a_job_survives_kill_9_and_its_key_answers_it(server: Server) -> None:
    with server.client() as client:
        made = submit(client, "k1", server.data / "source", server.data / "copy", **SLOW)
        assert made.status_code == 201
        job_id = made.json()["id"]
        until(client, job_id, "running")
        while not list(server.data.glob("copy/*")):
            time.sleep(0.02)
    server.kill()
    server.start()
    with server.client() as client:
        again = submit(client, "k1", server.data / "source", server.data / "copy", **SLOW)
        assert (again.status_code, again.json()["id"]) == (200, job_id)
        assert submit(client, "k1", server.data / "source", server.data / "other", **SLOW).status_code == 409
        job = until(client, job_id, "done")
        assert job["counts"]["objects_done"] == FILES
        assert sum(job["proofs"].values()) == FILES
        receipt = client.get(f"/v1/jobs/{job_id}/receipt").json()
        assert receipt["complete"]
        assert len(receipt["runs"]) == 2
        assert len(client.get("/v1/jobs").json()["jobs"]) == 1
    jobs = os.listdir(server.state / "engine" / "jobs")
    assert len(jobs) == 1, "the engine has run one job"
    for path in (server.data / "source").iterdir():
        assert (server.data / "copy" / path.name).read_bytes() == path.read_bytes()


def test_a_stopped_server_drains_its_jobs_and_exits_with_0(server: Server) -> None:
    """The next server also finds a run that was started, but not recorded as started."""
    with server.client() as client:
        job_id = submit(client, "k1", server.data / "source", server.data / "copy", **SLOW).json()["id"]
        until(client, job_id, "running")
    assert server.kill(signal.SIGTERM) == 0
    with closing(sqlite3.connect(server.state / "service.sqlite")) as database, database:
        assert database.execute("UPDATE jobs SET engine_job = NULL").rowcount == 1
    server.start()
    with server.client() as client:
        assert until(client, job_id, "done")["counts"]["objects_done"] == FILES
    assert len(os.listdir(server.state / "engine" / "jobs")) == 1


def test_a_second_server_is_refused(server: Server) -> None:
    done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"error: another server uses {server.state}"


def test_an_address_in_use_is_named_and_the_next_start_tells_where_the_first_token_is(tmp_path: Path) -> None:
    server = Server(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        command = server.command("--listen", address)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"error: --listen {address}: Address already in use",
        "hint: name another address with --listen HOST:PORT",
    ]
    assert not (server.state / "admin.token").exists()


def test_the_server_imports_nothing_from_the_working_directory(tmp_path: Path) -> None:
    server = Server(tmp_path)
    (tmp_path / "uvicorn.py").write_text("raise SystemExit('another uvicorn')")
    with socket.create_server(("127.0.0.1", 0)) as other:
        options = server.command("--listen", f"127.0.0.1:{other.getsockname()[1]}")[3:]
        # Like the script of an installation, and unlike `python -m`, START does not look in the working directory.
        command = [sys.executable, "-c", START, *options]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "Address already in use" in done.stderr


def test_a_server_that_cannot_start_announces_no_address(tmp_path: Path) -> None:
    """Its database works until its first lease is written, as on a disk that is full just then."""
    server = Server(tmp_path)
    server.start()
    server.kill()
    with closing(sqlite3.connect(server.state / "service.sqlite")) as database, database:
        database.execute("DROP TABLE replicas")
    done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["error", "hint"], done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_just_after_the_address_is_printed_stops_the_server(tmp_path: Path, number: signal.Signals) -> None:
    server = Server(tmp_path)
    process = subprocess.Popen(server.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while not (line := process.stdout.readline()).startswith("listening on"):
        assert line, "the server has ended"
    process.send_signal(number)
    _, printed = process.communicate(timeout=60)
    assert (process.returncode, printed) == (0, "")


#: Sends Ctrl-C to the process that imports a module, or to the server while Python starts. Python runs it as it starts.
CTRL_C_AT_IMPORT = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["CTRL_C_AT"]:
            os.kill(os.getpid(), signal.SIGINT)

if os.environ["CTRL_C_AT"] != "the start":
    sys.meta_path.insert(0, Finder())
elif "--state" not in sys.orig_argv:
    os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize("module", ["tradewind.cli.serve", "the start", "tradewind.service.settings", "uvicorn"])
def test_ctrl_c_while_the_server_starts_prints_no_traceback(tmp_path: Path, module: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(CTRL_C_AT_IMPORT)
    server = Server(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "CTRL_C_AT": module}
    done = subprocess.run(server.command(), capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr in ("", "interrupted\n")
    if module == "uvicorn":  # By then it has made its database.
        server.start()
        server.kill()
