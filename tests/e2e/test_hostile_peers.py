"""A gateway's reaction to peers outside its fleet, and to bytes that are not valid in our protocol."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.chains import chain, with_detour, write
from testbed.drive import Command, find_binary, peak_rss_bytes
from testbed.places import FilePlace, S3Place
from testbed.servers.process import free_port, guarded
from testbed.trees import MIB, file_sha256, write_large
from tradewind.model.program import CONTRACT_VERSION

ANSWER_S = 60.0
HELLO, HEAD, DATA, REPLIES = 1, 3, 4, 6
"""Frame kinds (crates/wire/src/frame.rs)."""
RSS_MAX_BYTES = 128 * MIB
NODES = ["lead", "source", "relay", "sink"]


def frame(kind: int, announced: int, payload: bytes = b"") -> bytes:
    """Return a frame whose header announces `announced` bytes, with a payload of another length."""
    return struct.pack("<BBHI", kind, 0, 0, announced) + payload


HOSTILE = {
    "nothing": b"",
    "zeros": bytes(100_000),
    "random": os.urandom(100_000),
    "an-http-request": b"GET /v1/program HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n",
    "an-oversized-hello": frame(HELLO, 0xFFFF_FFFF, b"x" * 10_000),
    "an-oversized-data-frame": frame(DATA, 0x7FFF_FFFF, b"x" * 10_000),
    "oversized-replies": frame(REPLIES, 512 * MIB, b"x" * 10_000),
    "a-head-without-a-hello": frame(HEAD, 100, b"x" * 100),
    "a-hello-that-does-not-parse": frame(HELLO, 64, bytes(range(64))),
}


class Gateway:
    """A `tradewind-gateway serve` with an identity of a fleet."""

    def __init__(self, identities: Path, node: str) -> None:
        binary = str(find_binary("tradewind-gateway"))
        arguments = ["serve", "--control", "127.0.0.1:0", "--data", "127.0.0.1:0", "--exit-with-stdin"]
        self.process = subprocess.Popen(
            guarded([binary, *arguments, "--identity", str(identities / node)]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline())
        self.control, self.data = (_address(ready[name]) for name in ("control", "data_address"))

    def stop(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.wait(ANSWER_S) == 0
        self.process.stdout.close()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def make_fleet(folder: Path) -> Path:
    command = [str(find_binary("tradewind-gateway")), "identity", "--out", str(folder), "--name", *NODES]
    subprocess.run(command, check=True, timeout=60)
    return folder


def tls_as(identities: Path, node: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(identities / "ca.pem")
    context.load_cert_chain(identities / node / "cert.pem", identities / node / "key.pem")
    return context


def tls_of_nobody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("fleet"))


@pytest.fixture(scope="module")
def other_fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("other-fleet"))


@pytest.fixture
def gateway(fleet: Path) -> Iterator[Gateway]:
    made = Gateway(fleet, "sink")
    yield made
    made.stop()


@pytest.fixture
def working(gateway: Gateway, fleet: Path) -> Gateway:
    """A sink with a program. Without a program a gateway does not answer on its data port."""
    program = {
        "contract": CONTRACT_VERSION,
        "seal_key_hex": "5e" * 32,
        "job_id": "drill",
        "node": "sink",
        "routes": [{"id": 0, "nodes": ["lead", "source", "sink"], "share": 1.0}],
        "sinks": [{"url": "mem:"}],
        "writes": [{"kind": "prefix", "prefix": ""}],
    }
    body = json.dumps(program).encode()
    answer = request(gateway, tls_as(fleet, "lead"), program_head(len(body)) + body)
    assert answer.startswith(b"HTTP/1.1 2"), answer
    return gateway


def send_and_read(connection: socket.socket, content: bytes) -> bytes:
    """Send bytes, close our direction if possible, and read the other direction to its end."""
    answer = b""
    connection.settimeout(ANSWER_S)
    # The connection may be closed already when we close our direction. `ENOTCONN` is not a ConnectionError.
    with contextlib.suppress(OSError, ssl.SSLError):
        connection.sendall(content)
        if not isinstance(connection, ssl.SSLSocket):
            connection.shutdown(socket.SHUT_WR)
        while piece := connection.recv(64 << 10):
            answer += piece
    return answer


def request(gateway: Gateway, context: ssl.SSLContext, text: bytes) -> bytes:
    with socket.create_connection(gateway.control) as plain, context.wrap_socket(plain) as connection:
        return send_and_read(connection, text)


def assert_well(gateway: Gateway, fleet: Path) -> None:
    """Check that the gateway answers its own fleet, and that its memory has not grown."""
    answer = request(
        gateway, tls_as(fleet, "lead"), b"GET /v1/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    assert peak_rss_bytes(gateway.process.pid) < RSS_MAX_BYTES


@pytest.mark.parametrize("port", ["control", "data"])
@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_bytes_that_are_not_tls(working: Gateway, fleet: Path, port: str, content: bytes) -> None:
    with socket.create_connection(getattr(working, port)) as connection:
        answer = send_and_read(connection, content)
    assert len(answer) <= 16, "at most a TLS alert"
    assert_well(working, fleet)


@pytest.mark.parametrize(
    ("content", "port"),
    # In one list, because each port must withstand each frame. A peer that says nothing is one that waits.
    [
        pytest.param(content, port, id=f"{name}-{port}")
        for name, content in HOSTILE.items()
        for port in ("control", "data")
        if content
    ],
)
def test_invalid_frames_from_a_peer_of_the_fleet(working: Gateway, fleet: Path, port: str, content: bytes) -> None:
    context = tls_as(fleet, "relay")
    with socket.create_connection(getattr(working, port)) as plain, context.wrap_socket(plain) as connection:
        answer = send_and_read(connection, content)
    assert b"200 OK" not in answer
    assert_well(working, fleet)


@pytest.mark.parametrize("port", ["control", "data"])
def test_a_peer_of_another_fleet_is_refused(working: Gateway, fleet: Path, other_fleet: Path, port: str) -> None:
    context = tls_as(other_fleet, "lead")
    context.verify_mode = ssl.CERT_NONE
    assert_refused(working, context, port)
    assert_well(working, fleet)


@pytest.mark.parametrize("port", ["control", "data"])
def test_a_peer_without_a_certificate_is_refused(working: Gateway, fleet: Path, port: str) -> None:
    assert_refused(working, tls_of_nobody(), port)
    assert_well(working, fleet)


def assert_refused(working: Gateway, context: ssl.SSLContext, port: str) -> None:
    """Check that the gateway sends no byte. In TLS 1.3 the refusal comes after the handshake, with the first read."""
    with socket.create_connection(getattr(working, port)) as plain:
        try:
            connection = context.wrap_socket(plain)
        except (ssl.SSLError, ConnectionError):
            return
        with connection:
            hello = b"GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\n" if port == "control" else frame(HELLO, 8, bytes(8))
            assert send_and_read(connection, hello) == b""


def program_head(length: int) -> bytes:
    lines = ["PUT /v1/program HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode()


@pytest.mark.parametrize(
    "body",
    [b"", b"not json", b"{}", b'{"contract": 99}', b"[" * 100_000, b'{"contract": 2, "unknown": true}'],
    ids=["empty", "no-json", "no-fields", "other-contract", "deep", "unknown-field"],
)
def test_an_invalid_program_is_refused_in_one_line(gateway: Gateway, fleet: Path, body: bytes) -> None:
    answer = request(gateway, tls_as(fleet, "lead"), program_head(len(body)) + body)
    assert answer.startswith(b"HTTP/1.1 4"), answer
    refusal = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert refusal["error"] and "\n" not in refusal["error"]
    assert_well(gateway, fleet)


def test_an_oversized_program_is_refused_before_it_is_read(gateway: Gateway, fleet: Path) -> None:
    answer = request(gateway, tls_as(fleet, "lead"), program_head(8 << 30) + b"{" * MIB)
    assert answer.startswith(b"HTTP/1.1 4"), answer
    assert_well(gateway, fleet)


def test_strangers_do_not_disturb_a_transfer(command: Command, s3: S3Place, tmp_path: Path) -> None:
    source = FilePlace(tmp_path / "tree")
    digest = write_large(source.folder / "large", 48 * MIB)
    listen = f"127.0.0.1:{free_port()}"
    document = with_detour(chain("relay"), "source", "relay", listen, listen)
    topology = write(document, tmp_path / "topology.json")
    running = command.start(
        "cp", "-r", source.url, s3.url, *s3.flags("dst"), "--topology", topology, "--limit-rate", "20MB/s"
    )
    running.wait_for_bytes(8 * MIB)
    for content in HOSTILE.values():
        with socket.create_connection(_address(listen)) as connection:
            send_and_read(connection, content)
    running.finish().expect(0)
    assert s3.client.sha256(s3.bucket, "large") == digest == file_sha256(source.folder / "large")
