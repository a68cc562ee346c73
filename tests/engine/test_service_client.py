"""Answers of a transfer service that is killed while it answers, or is no transfer service."""

from __future__ import annotations

import socket
import threading

import pytest

from testbed.loopback import Answer, LoopbackServer, Received
from tradewind.engine.service_client import ServiceClient, SitePath
from tradewind.errors import GatewayLost

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 2",
        b"SSH-2.0-x\r\n",
        OK + b"Content-Length: 100\r\n\r\n{",
        OK + b"Transfer-Encoding: chunked\r\n\r\nff\r\n{",
        OK + b"Content-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",
    ],
)
def test_an_answer_that_breaks_off_counts_as_none(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    monkeypatch.setenv("TRADEWIND_SERVICE_TOKEN", "token")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

        server = threading.Thread(target=serve)
        server.start()
        client = ServiceClient(f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(GatewayLost):
            client.place_of(SitePath("site", "name"))
        server.join()


def test_the_token_for_a_service_on_this_host_passes_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_SERVICE_TOKEN", "token")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    received: list[Received] = []

    def overhear(request: Received) -> Answer:
        received.append(request)
        return Answer(200, b"{}")

    proxy = LoopbackServer(overhear)
    service = LoopbackServer(lambda _: Answer(200, b'{"id": "j1"}'))
    monkeypatch.setenv("http_proxy", proxy.url)
    try:
        assert ServiceClient(service.url).job("j1") == {"id": "j1"}
    finally:
        proxy.close()
        service.close()
    assert received == []
