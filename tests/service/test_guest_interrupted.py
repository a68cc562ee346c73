"""A host that sends, and its service, are killed, interrupted or cut off, and the job continues."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.servers.process import free_port
from tests.service.guest_hosts import (
    SLOW,
    begin,
    command,
    some_files,
    surroundings,
    tradewind,
    until_moved,
    with_dublin,
)
from tests.service.server import WAIT_S, Server, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with with_dublin(tmp_path_factory.mktemp("guests")) as server:
        yield server


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """A folder beyond what the service may read."""
    return some_files(tmp_path / "sent")


def test_a_killed_client_resumes_where_it_was(server: Server, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(48 << 20))
    words = "send", "--limit-rate", SLOW, "--chunk-size", "5MiB", str(large), "dublin:killed"
    with server.client() as client:
        first, job_id = begin(server, tmp_path, *words)
        until_moved(client, job_id, 10 << 20)
        first.kill()
        first.communicate()
        done = tradewind(server, tmp_path, *words)
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith(f"job {job_id}\n")
        job = client.get(f"/v1/jobs/{job_id}").json()
    assert job["counts"]["bytes_earlier"] >= 5 << 20
    assert (server.data / "dublin" / "default" / "killed").read_bytes() == large.read_bytes()


@pytest.mark.slow
def test_ctrl_c_pauses_the_job_and_the_same_command_resumes_it(server: Server, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(32 << 20))
    words = "send", "--limit-rate", SLOW, "--chunk-size", "5MiB", str(large), "dublin:paused"
    with server.client() as client:
        first, job_id = begin(server, tmp_path, *words)
        until_moved(client, job_id, 5 << 20)
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=WAIT_S)
        assert first.returncode == 130
        until(client, job_id, "paused")
        done = tradewind(server, tmp_path, *words)
        assert done.returncode == 0, done.stderr
        assert client.get(f"/v1/jobs/{job_id}").json()["counts"]["bytes_earlier"] > 0
    assert (server.data / "dublin" / "default" / "paused").read_bytes() == large.read_bytes()


@pytest.mark.slow
def test_ctrl_c_pauses_a_job_that_waits(server: Server, sent: Path, tmp_path: Path) -> None:
    with server.client() as client:
        limit = {"kind": "tenant", "name": "default", "active": 0}
        assert client.put("/v1/limits", json={"limits": [limit]}).status_code == 200
        waiting, job_id = begin(server, tmp_path, "send", str(sent), "dublin:later")
        assert waiting.stderr is not None and waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        waiting.communicate(timeout=WAIT_S)
        assert waiting.returncode == 130
        assert client.get(f"/v1/jobs/{job_id}").json()["state"] == "paused"
        assert client.put("/v1/limits", json={"limits": []}).status_code == 200
    done = tradewind(server, tmp_path, "send", str(sent), "dublin:later")
    assert done.returncode == 0 and f"job {job_id}" in done.stderr, done.stderr


def unfinished(server: Server) -> list[str]:
    return [path.name for path in (server.data / "dublin" / "default").glob(".*.tradewind-*")]


@pytest.mark.slow
def test_a_cancelled_job_leaves_no_unfinished_upload_although_its_client_was_killed(
    server: Server, tmp_path: Path
) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(48 << 20))
    (server.data / "dublin" / "default").mkdir(parents=True, exist_ok=True)
    foreign = server.data / "dublin" / "default" / ".other.tradewind-0123456789abcdef"
    foreign.write_bytes(b"of another job")
    words = "send", "--limit-rate", SLOW, "--chunk-size", "5MiB", str(large), "dublin:gone"
    started, job_id = begin(server, tmp_path, *words)
    with server.client() as client:
        until_moved(client, job_id, 10 << 20)
        assert len(unfinished(server)) == 2
        started.kill()
        started.communicate()
        assert client.post(f"/v1/jobs/{job_id}/cancel").status_code == 202
        until(client, job_id, "cancelled")
    assert unfinished(server) == [foreign.name]
    foreign.unlink()


def on_another_host(job_id: str, home: Path, other: Path) -> None:
    """Let the commands of another home know the job, but not its journal, as on another host with the same data."""
    (folder,) = (home / "state" / "guests").iterdir()
    there = other / "state" / "guests" / folder.name
    there.mkdir(parents=True, mode=0o700)
    (there / "job").write_text(job_id)


@pytest.mark.slow
def test_a_host_that_finishes_the_job_of_another_one_leaves_no_upload(server: Server, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(48 << 20))
    words = "send", "--limit-rate", SLOW, "--chunk-size", "5MiB", str(large), "dublin:moved"
    started, job_id = begin(server, tmp_path, *words)
    with server.client() as client:
        until_moved(client, job_id, 10 << 20)
        started.kill()
        started.communicate()
        assert unfinished(server)
        assert client.post(f"/v1/jobs/{job_id}/pause").status_code == 202
        until(client, job_id, "paused")
        on_another_host(job_id, tmp_path, tmp_path / "other")
        done = tradewind(server, tmp_path / "other", *words)
        assert done.returncode == 0 and done.stderr.startswith(f"job {job_id}\n"), done.stderr
        job = client.get(f"/v1/jobs/{job_id}").json()
        assert (job["state"], job["error"]) == ("done", None)
    assert (server.data / "dublin" / "default" / "moved").read_bytes() == large.read_bytes()
    assert not unfinished(server)


@pytest.mark.slow
def test_a_cancelled_job_ends_its_client_and_keeps_its_counts(server: Server, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(32 << 20))
    started, job_id = begin(
        server, tmp_path, "send", "--limit-rate", SLOW, "--chunk-size", "5MiB", str(large), "dublin:c"
    )
    with server.client() as client:
        until_moved(client, job_id, 5 << 20)
        client.post(f"/v1/jobs/{job_id}/cancel")
        said = started.communicate(timeout=WAIT_S)[1]
        assert started.returncode == 1 and "the job was cancelled" in said, said
        job = client.get(f"/v1/jobs/{job_id}").json()
        assert job["state"] == "cancelled" and job["counts"]["bytes_done"] >= 5 << 20
        assert client.get(f"/v1/jobs/{job_id}/objects").status_code == 410
    assert not unfinished(server)
    assert [path.name for path in (tmp_path / "state" / "guests").glob("*/*")] == ["lock"]


@pytest.mark.slow
def test_a_killed_service_continues_with_the_same_client(tmp_path: Path) -> None:
    port = free_port()
    folder = tmp_path / "service"
    server = Server(folder, "--site", f"dublin={folder / 'data'}", "--listen", f"127.0.0.1:{port}")
    large = tmp_path / "large"
    large.write_bytes(os.urandom(32 << 20))
    server.start()
    try:
        words = "send", "--limit-rate", SLOW, "--chunk-size", "5MiB", str(large), "dublin:large"
        client, job_id = begin(server, tmp_path, *words)
        with server.client() as admin:
            until_moved(admin, job_id, 10 << 20)
        server.kill()
        server.start()
        said = client.communicate(timeout=90)[1]
        assert client.returncode == 0, said
        with server.client() as admin:
            assert admin.get(f"/v1/jobs/{job_id}").json()["counts"]["bytes_earlier"] >= 5 << 20
    finally:
        server.kill()
    assert (server.data / "default" / "large").read_bytes() == large.read_bytes()


@pytest.mark.slow
def test_a_job_whose_client_stays_away_fails_with_one_line(server: Server, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(48 << 20))
    words = "send", "--limit-rate", SLOW, "--chunk-size", "5MiB", str(large), "dublin:away"
    with server.client() as client:
        first, job_id = begin(server, tmp_path, *words)
        until_moved(client, job_id, 10 << 20)
        first.kill()
        first.communicate()
        deadline_s = time.monotonic() + 3 * WAIT_S
        while (job := client.get(f"/v1/jobs/{job_id}").json())["state"] != "failed":
            assert time.monotonic() < deadline_s, job
            time.sleep(1)
        assert job["error"] == "the host that sends or receives is missing: it did not join within 60 s"
        assert job["hint"] == "run the same command there again"
        done = tradewind(server, tmp_path, *words)
        assert done.returncode == 0 and f"job {job_id}" in done.stderr
    assert (server.data / "dublin" / "default" / "away").read_bytes() == large.read_bytes()


#: Forwards connections from the first address to the second, until it is killed.
FORWARDER = """
import socket, sys, threading
def pump(one, other):
    try:
        while data := one.recv(65536):
            other.sendall(data)
    except OSError:
        pass
    for each in (one, other):
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
start, end = [(text.rpartition(":")[0], int(text.rpartition(":")[2])) for text in sys.argv[1:]]
with socket.create_server(start) as server:
    while True:
        one = server.accept()[0]
        try:
            other = socket.create_connection(end, 5)
        except OSError:
            one.close()
            continue
        other.settimeout(None)
        for pair in ((one, other), (other, one)):
            threading.Thread(target=pump, args=pair, daemon=True).start()
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and ip")
def test_a_host_in_another_network_sends_although_it_is_cut_off(tmp_path: Path) -> None:
    """The host can dial out, and nobody can dial it. For longer than the service is patient it reaches nobody."""
    space, outer, inner = f"twg{os.getpid()}", f"twg{os.getpid()}o", f"twg{os.getpid()}i"
    here, there, port = "10.231.77.1", "10.231.77.2", 18_231
    inside = ["ip", "netns", "exec", space]

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    folder = tmp_path / "service"
    server = Server(folder, "--site", f"dublin={folder / 'data'}", "--guest-address", here)
    large = tmp_path / "large"
    large.write_bytes(os.urandom(48 << 20))
    forwarders: list[subprocess.Popen[bytes]] = []
    ip("netns", "add", space)
    try:
        ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", space)
        ip("addr", "add", f"{here}/30", "dev", outer)
        ip("link", "set", outer, "up")
        for setting in (
            ("addr", "add", f"{there}/30", "dev", inner),
            ("link", "set", inner, "up"),
            ("link", "set", "lo", "up"),
        ):
            subprocess.run([*inside, "ip", *setting], check=True)
        server.start()
        # The client sends its token to a loopback address only.
        for enter, start, end in (
            ([], f"{here}:{port}", server.url[7:]),
            (inside, f"127.0.0.1:{port}", f"{here}:{port}"),
        ):
            forwarders.append(subprocess.Popen([*enter, sys.executable, "-c", FORWARDER, start, end]))
        words = "send", "--limit-rate", SLOW, "--chunk-size", "5MiB", str(large), "dublin:far"
        around = surroundings(server, tmp_path)
        url, server.url = server.url, f"http://127.0.0.1:{port}"
        client = subprocess.Popen([*inside, *command(server, *words)], stderr=subprocess.PIPE, text=True, env=around)
        server.url = url
        assert client.stderr is not None
        job_id = client.stderr.readline().split()[-1]
        with server.client() as admin:
            until_moved(admin, job_id, 10 << 20)
            ip("link", "set", outer, "down")
            time.sleep(20)
            ip("link", "set", outer, "up")
            said = client.communicate(timeout=120)[1]
            assert client.returncode == 0, said
            assert admin.get(f"/v1/jobs/{job_id}").json()["counts"]["bytes_earlier"] > 0
    finally:
        for forwarder in forwarders:
            forwarder.kill()
            forwarder.wait()
        if server.process is not None:
            server.kill()
        ip("netns", "delete", space)
    assert (server.data / "default" / "far").read_bytes() == large.read_bytes()
