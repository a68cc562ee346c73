"""Bodies of requests do not use up the memory of a server: not without a token, and not all of one tenant together."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import httpx
import pytest

from tests.service.server import WAIT_S, Server, eventually
from tradewind.service.limits import BODIES_BYTES_PER_TENANT_MAX, BODY_BYTES_MAX, BODY_BYTES_UNKNOWN_MAX

LARGE = b" " * (BODY_BYTES_MAX - 1_000)
#: Requests with large bodies that one tenant may have at a time.
AT_ONCE = BODIES_BYTES_PER_TENANT_MAX // len(LARGE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("bodies"))
    server.start()
    yield server
    server.kill()


def begun(server: Server, token: str, size: int = len(LARGE)) -> socket.socket:
    """Send a request without the last byte of its body, and return its connection."""
    address = httpx.URL(server.url)
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: {size + 1}\r\n\r\n"
    connection = socket.create_connection((address.host, address.port or 80), timeout=30)
    connection.sendall(head.encode())
    with suppress(OSError):  # It may have been answered before.
        connection.sendall(LARGE[:size])
    return connection


def status(connection: socket.socket) -> int:
    """Return the status of the answer, which is there before the body is complete."""
    return int(connection.recv(65_536).split()[1])


def status_of_large(client: httpx.Client) -> int:
    return client.post("/v1/jobs", content=LARGE, headers={"Idempotency-Key": "k"}).status_code


def test_a_large_body_is_not_read_without_a_token(server: Server) -> None:
    with begun(server, "tw1_" + "x" * 43, BODY_BYTES_UNKNOWN_MAX + 1) as connection:
        assert status(connection) == 401
    with begun(server, "tw1_" + "x" * 43, BODY_BYTES_UNKNOWN_MAX - 1) as connection:
        connection.sendall(b" ")
        assert status(connection) == 422, "a smaller one is read, and its content is the first error"


def test_the_large_bodies_of_one_tenant_leave_room_for_others(server: Server) -> None:
    with server.client() as admin, ExitStack() as stack:
        admin.post("/v1/tenants", json={"name": "other"})
        token = admin.post("/v1/tokens", json={"role": "operator", "tenant": "other"}).json()["token"]
        waiting = [stack.enter_context(begun(server, server.admin_token())) for _ in range(AT_ONCE + 1)]
        answered, _, _ = select.select(waiting, [], [], WAIT_S)
        assert [status(one) for one in answered] == [503], "one does not fit"
        assert admin.get("/v1/jobs").status_code == 200
        assert admin.post("/v1/jobs", json={}, headers={"Idempotency-Key": "k"}).status_code == 422
        with server.client(token) as other:
            assert status_of_large(other) == 422
        stack.close()
        eventually(lambda: status_of_large(admin) == 422)
