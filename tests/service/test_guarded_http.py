"""Hostile clients: slow heads, slow bodies, answers that nobody reads, and too many connections."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import uvicorn

from tradewind.service import guarded_http as guard
from tradewind.service.guarded_http import guarded_http

WAIT_S = 30.0
LARGE = 64 << 20
MOST = 5


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Read the body, and answer with as many bytes as the path says."""
    assert scope["type"] == "http"
    while (await receive()).get("more_body", False):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    left = int(scope["path"].strip("/") or "1")
    while left > 0:
        part = min(left, 1 << 20)
        await send({"type": "http.response.body", "body": b"x" * part, "more_body": left > part})
        left -= part


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEAD_S_MAX", "BODY_S_MAX", "UNREAD_S_MAX"):
        monkeypatch.setattr(guard, name, 0.5)
    monkeypatch.setattr(guard, "CONNECTIONS_PER_ADDRESS_MAX", MOST)


@pytest.fixture
def server(limits: None) -> Iterator[uvicorn.Server]:
    yield from served(is_behind_proxy=False)


def served(*, is_behind_proxy: bool) -> Iterator[uvicorn.Server]:
    config = uvicorn.Config(
        app,
        http=guarded_http(is_behind_proxy=is_behind_proxy),
        lifespan="off",
        log_level="critical",
        timeout_keep_alive=1,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config.port = listening.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        until(lambda: server.started)
        yield server
        server.should_exit = True
        thread.join(WAIT_S)


def until(found: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not found():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def connect(server: uvicorn.Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.config.port), timeout=WAIT_S)


def trickle(connection: socket.socket, text: bytes) -> bytes:
    """Send a byte at a time until the server closes the connection; return its answer."""
    answer = b""
    try:
        for at in range(len(text)):
            connection.sendall(text[at : at + 1])
            connection.settimeout(0.05)
            try:
                part = connection.recv(65_536)
            except TimeoutError:
                continue
            if not part:
                return answer
            answer += part
    except ConnectionError:
        return answer
    raise AssertionError(f"the server has waited for {len(text)} bytes: {answer!r}")


@pytest.mark.parametrize(
    "text",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 1_000,
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"a" * 999,
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 200,
    ],
    ids=["head", "body", "chunks"],
)
def test_a_slow_request_ends(server: uvicorn.Server, text: bytes) -> None:
    with connect(server) as connection:
        assert trickle(connection, text) == b""


def test_a_slow_second_request_ends(server: uvicorn.Server) -> None:
    with connect(server) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        trickle(connection, b"GET / HTTP/1.1\r\nX: " + b"a" * 1_000)


def test_what_is_no_http_is_refused_and_not_logged(
    server: uvicorn.Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in (b"\x00\x01\r\n\r\n", b"GET /a b c HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"X" * 100_000):
        with connect(server) as connection:
            connection.sendall(text)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 400")
    assert caplog.text == ""


def test_a_silent_connection_ends(server: uvicorn.Server) -> None:
    with connect(server) as connection:
        assert connection.recv(1) == b""


def test_an_answer_that_nobody_reads_ends(server: uvicorn.Server) -> None:
    with connect(server) as connection:
        connection.sendall(f"GET /{LARGE} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        until(lambda: len(server.server_state.connections) == 1)
        until(lambda: not server.server_state.connections)
        until(lambda: not server.server_state.tasks)


def test_an_address_has_few_connections(server: uvicorn.Server) -> None:
    """Others are served after some of them have ended."""
    held = [connect(server) for _ in range(3 * MOST)]
    until(lambda: len(server.server_state.connections) <= MOST)
    for one in held:
        one.close()
    until(lambda: not server.server_state.connections)
    assert httpx.get(f"http://127.0.0.1:{server.config.port}/").text == "x"


def test_a_proxy_may_have_many(limits: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # Silent connections must stay until the last one is open, also on a busy host.
    monkeypatch.setattr(guard, "HEAD_S_MAX", WAIT_S)
    for server in served(is_behind_proxy=True):
        with httpx.Client() as client:
            streams = [connect(server) for _ in range(3 * MOST)]
            until(lambda server=server: len(server.server_state.connections) == 3 * MOST)  # type: ignore[misc]
            assert client.get(f"http://127.0.0.1:{server.config.port}/").text == "x"
            for one in streams:
                one.close()


def test_honest_requests_on_one_connection(server: uvicorn.Server) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.config.port}") as client:
        for _ in range(20):
            assert client.post("/1000000", content=b"y" * 500_000).content == b"x" * 1_000_000
            time.sleep(0.05)
