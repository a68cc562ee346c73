"""One request and its answer, with a peer that may send anything."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from tradewind.gateway.exchange import HEAD_LINES_MAX, BadAnswer, Exchange

Ask = Callable[..., Exchange]


@pytest.fixture
def asked() -> list[bytes]:
    return []


@pytest.fixture
def ask(asked: list[bytes]) -> Ask:
    """Sends a request to a peer that reads it completely, sends `answer` and closes."""

    def made(answer: bytes, method: str = "GET", body: bytes | None = None) -> Exchange:
        ours, theirs = socket.socketpair()
        ours.settimeout(10)

        def peer() -> None:
            with theirs:
                received = b""
                while not received.endswith(b"\r\n\r\n" + (body or b"")):
                    received += theirs.recv(1 << 16)
                asked.append(received)
                with suppress(BrokenPipeError):  # The client may close early.
                    theirs.sendall(answer)

        threading.Thread(target=peer, daemon=True).start()
        return Exchange(ours, method, "/v1/x", body)

    return made


def test_a_request_and_its_answer(ask: Ask, asked: list[bytes]) -> None:
    with ask(b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbodyrest", "PUT", b"{}") as answer:
        assert (answer.status, answer.read(100)) == (200, b"body")
    assert asked == [
        b"PUT /v1/x HTTP/1.0\r\nhost: gateway\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    ]


def test_a_body_without_an_announced_length_is_read_to_the_end(ask: Ask) -> None:
    with ask(b"HTTP/1.0 200 OK\r\n\r\none\ntwo\n") as answer:
        assert [answer.readline(100), answer.readline(100), answer.readline(100)] == [b"one\n", b"two\n", b""]


def test_no_more_bytes_are_read_than_requested(ask: Ask) -> None:
    with ask(b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 1000) as answer:
        assert answer.read(10) == b"x" * 10


def test_a_truncated_body_is_refused(ask: Ask) -> None:
    with ask(b"HTTP/1.0 200 OK\r\ncontent-length: 9\r\n\r\nbody") as answer, pytest.raises(BadAnswer, match="4 of 9"):
        answer.read(100)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.0 999 OK\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 4\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-len",
        b"HTTP/1.0 200 OK\r\nlong: " + b"x" * (1 << 20),
        b"HTTP/1.0 200 OK\r\n" + b"a: b\r\n" * (HEAD_LINES_MAX + 1) + b"\r\n",
    ],
    ids=["nothing", "no HTTP", "no status", "half a head", "half a line", "a long line", "many lines"],
)
def test_an_invalid_answer_is_refused(ask: Ask, answer: bytes) -> None:
    with pytest.raises(BadAnswer):
        ask(answer)


@pytest.mark.parametrize("start", [b"", b"HTTP/1.0 200 OK\r\ncontent-length: 1000\r\n\r\n"], ids=["head", "body"])
def test_an_answer_that_arrives_byte_by_byte_has_no_more_time_than_another(start: bytes) -> None:
    """A gateway that lies could keep its client waiting for months."""
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    ended = threading.Event()

    def peer() -> None:
        with theirs, suppress(OSError):  # The client closes early.
            theirs.sendall(start)
            while not ended.wait(0.01):
                theirs.sendall(b"x")

    # Ends so that a client that does wait gets an end, too.
    timer = threading.Timer(5, ended.set)
    thread = threading.Thread(target=peer)
    timer.start()
    thread.start()
    try:
        with pytest.raises(TimeoutError), Exchange(ours, "GET", "/v1/x", None, 0.2) as answer:
            answer.read(1000)
    finally:
        ended.set()
        timer.cancel()
        thread.join()
