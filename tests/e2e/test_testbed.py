"""The testbed itself: servers end when they must, and proxies inject the faults that tests rely on."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.client import IncompleteRead
from pathlib import Path

import pytest

from testbed.faults import Answer, Call, Cut, FlipRequest, FlipResponse, Hang, HttpProxy, Rule, TcpProxy, Truncate
from testbed.s3 import S3, S3Error
from testbed.servers import Server, versitygw
from testbed.sockets import SO_MAX_PACING_RATE, connections_to, cut, pace
from testbed.trees import MIB, payload

ROOT = Path(__file__).resolve().parents[2]
BODY = payload("body", 3 * MIB)


@pytest.fixture
def bucket(client: S3) -> str:
    name = f"testbed-{os.urandom(6).hex()}"
    client.create_bucket(name)
    return name


@pytest.fixture
def through(proxy: HttpProxy, s3_server: Server) -> S3:
    return S3(proxy.endpoint, s3_server.access_key, s3_server.secret_key)


def test_a_server_dies_and_leaves_nothing_when_its_parent_is_killed(s3_server: Server) -> None:
    script = "from testbed.servers import versitygw as v; s = v(); print(s.pid, s.folder, flush=True); input()"
    parent = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdin is not None and parent.stdout is not None
    pid, folder = parent.stdout.readline().split()
    descriptor = os.pidfd_open(int(pid))
    parent.kill()
    parent.wait()
    parent.stdin.close()
    assert select.select([descriptor], [], [], 30)[0], "the server outlives its parent"
    os.close(descriptor)
    # The janitor must not keep the parent's stdout open. Its work ends with the folder.
    parent.stdout.close()
    wait_until_gone(Path(folder))


def wait_until_gone(folder: Path) -> None:
    """Poll until a folder of another process is gone: no event reports that."""
    deadline = 600
    while folder.exists() and deadline > 0:
        select.select([], [], [], 0.05)
        deadline -= 1
    assert not folder.exists()


def test_up_prints_exports_for_a_shell_and_ends_with_its_stdin() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "testbed.servers", "up"], cwd=ROOT, input="", capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "export AWS_ENDPOINT_URL_S3=http://127.0.0.1:" in done.stdout


def test_tls_with_a_private_ca(tmp_path: Path) -> None:
    with versitygw(tls=True, data_parent=tmp_path) as server:
        assert server.endpoint.startswith("https://")
        client = S3(server.endpoint, server.access_key, server.secret_key, server.ca_file)
        client.create_bucket("over-tls")
        client.put("over-tls", "key", b"content")
        assert client.get("over-tls", "key") == b"content"
    assert list(tmp_path.iterdir()) == []


def test_the_proxy_forwards_and_records_everything(through: S3, client: S3, bucket: str, proxy: HttpProxy) -> None:
    through.put(bucket, "a b/ü+%", BODY)
    assert client.get(bucket, "a b/ü+%") == BODY == through.get(bucket, "a b/ü+%")
    # The client may receive the last bytes before the proxy has counted them.
    proxy.wait_for(lambda exchanges: [each.status for each in exchanges] == [200, 200])
    put, get = proxy.exchanges
    assert (put.request.method, put.request.path, put.status) == ("PUT", f"/{bucket}/a b/ü+%", 200)
    assert (put.request_bytes, get.response_bytes) == (len(BODY), len(BODY))


def test_a_rule_with_a_count_ends(through: S3, bucket: str, proxy: HttpProxy) -> None:
    rule = proxy.add(Rule(Answer(503, "SlowDown"), when=lambda request: request.is_write, skip=1, count=1))
    through.put(bucket, "first", b"")
    with pytest.raises(S3Error, match=r"503.*SlowDown"):
        through.put(bucket, "second", b"")
    through.put(bucket, "third", b"")
    assert rule.strikes == 1
    assert rule.expired.is_set()


def test_seeded_shares_repeat(proxy: HttpProxy, through: S3, bucket: str) -> None:
    def pattern() -> list[bool]:
        proxy.clear()
        proxy.add(Rule(Answer(500, "InternalError"), share=0.5, seed=3))
        for _ in range(20):
            try:
                through.sizes(bucket)
            except S3Error:
                pass
        return [exchange.fault is not None for exchange in proxy.exchanges]

    first = pattern()
    assert 0 < sum(first) < 20
    assert pattern() == first


def test_flipped_bytes(through: S3, client: S3, bucket: str, proxy: HttpProxy) -> None:
    through.put(bucket, "key", BODY)
    proxy.add(Rule(FlipResponse(2 * MIB), count=1))
    assert differences(through.get(bucket, "key"), BODY) == [2 * MIB]
    assert through.get(bucket, "key") == BODY
    proxy.add(Rule(FlipRequest(17), count=1))
    through.put(bucket, "key", BODY)
    assert differences(client.get(bucket, "key"), BODY) == [17]


def differences(one: bytes, other: bytes) -> list[int]:
    return [index for index in range(len(other)) if one[index] != other[index]]


@pytest.mark.parametrize("action", [Truncate(MIB), Cut(), Truncate(0)])
def test_truncated_bodies_and_connections(
    through: S3, client: S3, bucket: str, proxy: HttpProxy, action: Truncate | Cut
) -> None:
    client.put(bucket, "key", BODY)
    proxy.add(Rule(action, count=1))
    with pytest.raises((ConnectionError, IncompleteRead)):
        through.get(bucket, "key")


def test_a_hang_lasts_until_the_client_closes(client: S3, s3_server: Server, bucket: str, proxy: HttpProxy) -> None:
    client.put(bucket, "key", BODY)
    proxy.add(Rule(Hang(after_bytes=MIB), count=1))
    impatient = S3(proxy.endpoint, s3_server.access_key, s3_server.secret_key, timeout_s=0.5)
    with pytest.raises(TimeoutError):
        impatient.get(bucket, "key")
    assert proxy.exchanges[-1].response_bytes == MIB
    assert proxy.exchanges[-1].status is None


def test_a_call_is_made_before_the_request_is_forwarded(through: S3, client: S3, bucket: str, proxy: HttpProxy) -> None:
    client.put(bucket, "key", b"old")
    proxy.add(Rule(Call(lambda: client.put(bucket, "key", b"new")), count=1))
    assert through.get(bucket, "key") == b"new"


@pytest.fixture
def echo() -> Iterator[str]:
    """Yield the address of a server that sends everything back."""
    listener = socket.create_server(("127.0.0.1", 0))
    script = (
        "import socket,threading,sys\n"
        "listener=socket.socket(fileno=int(sys.argv[1]))\n"
        "def serve(c):\n"
        "    while data:=c.recv(65536): c.sendall(data)\n"
        "while True: threading.Thread(target=serve,args=(listener.accept()[0],),daemon=True).start()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(listener.fileno())], pass_fds=[listener.fileno()], stderr=subprocess.DEVNULL
    )
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    process.send_signal(signal.SIGKILL)
    process.wait()
    listener.close()


def test_the_tcp_proxy_forwards_flips_freezes_and_cuts(echo: str) -> None:
    with TcpProxy(echo) as between:
        host, _, port = between.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(b"hello")
            assert connection.recv(100) == b"hello"
            between.flip_forward(1)
            connection.sendall(b"hello")
            assert connection.recv(100) == b"hdllo"
            assert not between.flip_pending
            between.freeze()
            connection.sendall(b"later")
            connection.settimeout(0.3)
            with pytest.raises(TimeoutError):
                connection.recv(100)
            connection.settimeout(30)
            between.thaw()
            assert connection.recv(100) == b"later"
            assert between.cut() == 1
            with pytest.raises(ConnectionError):
                while connection.recv(100):
                    pass
                raise ConnectionResetError("closed in order")
        between.refuse()
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            assert connection.recv(100) == b""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="sockets are borrowed by pidfd_getfd, which only Linux has")
def test_a_connection_of_a_process_is_found_paced_and_cut_from_outside() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            port = int(client.getsockname()[1])
            pairs = connections_to([os.getpid()], "127.0.0.1")
            assert {(os.getpid(), client.fileno()), (os.getpid(), accepted.fileno())} <= set(pairs)
            others = connections_to([os.getpid()], "127.0.0.1", but_port=port)
            assert (os.getpid(), client.fileno()) not in others
            pace(os.getpid(), client.fileno(), 8.0)
            assert client.getsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE) == 1_000_000
            cut(os.getpid(), client.fileno())
            assert accepted.recv(1) == b""
