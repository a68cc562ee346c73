"""Answers about a split proxy from a gateway that lies, or whose memory is damaged: they are refused as a whole."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tradewind.errors import GatewayError
from tradewind.gateway.client import GatewayClient
from tradewind.model.document import to_document
from tradewind.model.split import SplitHop, SplitStatus, SplitTraffic

HONEST = to_document(
    SplitStatus(
        "running",
        ("127.0.0.1:1",),
        1,
        2,
        1,
        0,
        0,
        {"limit": 3},
        5_000_000_000_000,
        7,
        (SplitTraffic(("a",), 1, 2, 3),),
        {"a": SplitHop(1, 0.5, 0.25)},
    )
)

Answer = Callable[[bytes], GatewayClient]


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Answer]:
    """Start a gateway that gives one answer to each request, whatever it is."""
    servers: list[socket.socket] = []

    def start(body: bytes) -> GatewayClient:
        path = tmp_path / "gateway"
        path.unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen()
        servers.append(server)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(1 << 16)
                        connection.sendall(b"HTTP/1.0 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

        threading.Thread(target=serve, daemon=True).start()
        return GatewayClient(f"unix:{path}")

    yield start
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def changed(path: str, value: Any) -> bytes:
    document = json.loads(json.dumps(HONEST))
    *folders, last = path.split(".")
    inner = document
    for folder in folders:
        inner = inner[int(folder)] if isinstance(inner, list) else inner[folder]
    inner[last] = value
    return json.dumps(document).encode()


def test_an_honest_answer_is_read(answering: Answer) -> None:
    assert answering(json.dumps(HONEST).encode()).split_status() == SplitStatus.from_document(HONEST)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("bytes_up", -1),
        ("bytes_down", 10**400),
        ("bytes_up", float("nan")),
        ("open", 2**63),
        ("refused.limit", -3),
        ("traffic.0.bytes_down", -1),
        ("hops.a.connect_ms_last", float("inf")),
        ("hops.a.failures", -(10**30)),
        ("send_buffer_bytes_max", -1),
        ("state", 1),
        ("traffic", {}),
    ],
)
def test_an_impossible_answer_is_refused(answering: Answer, path: str, value: Any) -> None:
    with pytest.raises(GatewayError, match="sent a bad status of its split proxy"):
        answering(changed(path, value)).split_status()


@pytest.mark.parametrize("body", [b"", b"[]", b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b"null"])
def test_an_answer_that_is_no_status_is_refused(answering: Answer, body: bytes) -> None:
    with pytest.raises(GatewayError, match="sent a bad status of its split proxy"):
        answering(body).split_status()
