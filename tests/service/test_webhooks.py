"""Webhooks of a real server: signed, retried, replayed, and never sent where the operator does not allow it."""

import socket
import ssl
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import insert

from testbed.loopback import Answer, LoopbackServer, Received
from testbed.servers.tls import make_certificates
from tests.service.server import Server, eventually, submit, until
from tradewind.errors import StateError, UsageError
from tradewind.service.courier import Courier, signature
from tradewind.service.database import ServiceDatabase
from tradewind.service.faults import Faults
from tradewind.service.limits import DELIVERIES_AT_ONCE
from tradewind.service.receivers import ReceiverError, is_allowed, post, require_webhook_url
from tradewind.service.sealing import Sealer
from tradewind.service.settings import ServiceSettings
from tradewind.service.tables import deliveries, tenants, webhooks


class Receiver:
    """Records requests. It answers with `statuses` in turn, then 200."""

    def __init__(self) -> None:
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        self._server = LoopbackServer(self._answer)
        self.url = f"{self._server.url}/hook"

    def close(self) -> None:
        self._server.close()

    def _answer(self, received: Received) -> Answer:
        self.received.append((dict(received.headers), received.body))
        return Answer(self.statuses.pop(0) if self.statuses else 200, headers={"Location": "/elsewhere"})


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("webhooks"), "--allow-webhook-network", "127.0.0.0/8")
    (server.data / "source").mkdir()
    (server.data / "source" / "one").write_bytes(b"1")
    server.start()
    yield server
    server.kill()


@pytest.mark.parametrize("statuses", [[], pytest.param([503], marks=pytest.mark.slow)], ids=["at once", "retried"])
def test_an_event_is_signed_retried_and_replayed(server: Server, receiver: Receiver, statuses: list[int]) -> None:
    receiver.received, receiver.statuses, attempts = [], statuses.copy(), len(statuses) + 1
    name = f"copy-{attempts}"
    with server.client() as admin:
        made = admin.post("/v1/webhooks", json={"url": receiver.url, "states": ["done"]})
        assert made.status_code == 201, made.text
        webhook, secret = made.json()["id"], made.json()["secret"]
        job_id = submit(admin, name, server.data / "source", server.data / name, recursive=True).json()["id"]
        until(admin, job_id, "done")
        eventually(lambda: len(receiver.received) == attempts)
        first = receiver.received[0]
        assert {body for _, body in receiver.received} == {first[1]}
        for headers, body in receiver.received:
            at_s = int(headers["Tradewind-Signature"].split(",")[0].removeprefix("t="))
            assert headers["Tradewind-Signature"] == signature(secret, at_s, body)
        url = f"/v1/webhooks/{webhook}/deliveries"
        shown = eventually(lambda: [one for one in admin.get(url).json()["deliveries"] if one["state"] == "delivered"])
        assert (shown[0]["attempts"], shown[0]["body"]["job_id"], shown[0]["body"]["state"]) == (
            attempts,
            job_id,
            "done",
        )
        assert admin.post(f"{url}/{shown[0]['id']}/replay").status_code == 202
        eventually(lambda: len(receiver.received) == attempts + 1)
        assert receiver.received[-1][1] == first[1]
        assert secret not in admin.get("/v1/webhooks").text + admin.get("/v1/audit").text
        assert secret.encode() not in (server.state / "service.sqlite").read_bytes()
        assert stat.S_IMODE((server.state / "service.key").stat().st_mode) == 0o600
        admin.post("/v1/tenants", json={"name": "other"})
        token = admin.post("/v1/tokens", json={"role": "tenant_admin", "tenant": "other"}).json()["token"]
        with server.client(token) as other:
            assert other.get("/v1/webhooks").json()["webhooks"] == []
            answers = [
                other.get(url),
                other.post(f"{url}/{shown[0]['id']}/replay"),
                other.delete(f"/v1/webhooks/{webhook}"),
            ]
            assert [answer.status_code for answer in answers] == [404, 404, 404]
        assert admin.delete(f"/v1/webhooks/{webhook}").status_code == 204
        assert admin.get(url).status_code == 404


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "::ffff:169.254.169.254",
        "::169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "::ffff:0:a9fe:a9fe",
        "fec0::1",
        "5f00::1",
        "168.63.129.16",
        "192.0.0.192",
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_allowed(address, ())


def test_public_addresses_and_those_of_the_operator() -> None:
    assert is_allowed("8.8.8.8", ())
    assert is_allowed("2606:4700::1111", ())
    assert is_allowed("10.1.2.3", ("10.0.0.0/8",))
    assert is_allowed("::ffff:10.1.2.3", ("10.0.0.0/8",))
    assert not is_allowed("127.0.0.1", ("10.0.0.0/8",))


@pytest.mark.parametrize(
    "url",
    ["http://example.com/", "https://user@example.com/", "https://127.0.0.1/", "https://[::1]/", "ftp://x", "https://"],
)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(UsageError):
        require_webhook_url(url, ())


def test_the_address_is_checked_when_the_event_is_sent(receiver: Receiver) -> None:
    before = len(receiver.received)
    for url in (receiver.url, receiver.url.replace("127.0.0.1", "localhost")):
        with pytest.raises(ReceiverError, match="not allowed"):
            post(url, b"{}", {}, ())
    assert len(receiver.received) == before


def test_a_redirect_is_a_failure(receiver: Receiver) -> None:
    before, receiver.statuses = len(receiver.received), [307]
    with pytest.raises(ReceiverError, match="answered 307"):
        post(receiver.url, b"{}", {}, ("127.0.0.0/8",))
    assert len(receiver.received) == before + 1


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_receiver_that_sends_a_byte_now_and_then_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_tls: bool
) -> None:
    made = make_certificates(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.ca))
    monkeypatch.setattr("tradewind.service.receivers.DELIVERY_TIMEOUT_S", 1.0)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    left = threading.Event()

    def serve() -> None:
        plain = listening.accept()[0]
        with suppress(OSError), context.wrap_socket(plain, server_side=True) if is_tls else plain as client:
            client.recv(65_536)
            client.sendall(b"HTTP/1.1 ")
            for _ in range(300):
                client.sendall(b" ")
                time.sleep(0.05)
            return
        left.set()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http{'s' if is_tls else ''}://127.0.0.1:{listening.getsockname()[1]}/"
        with pytest.raises(ReceiverError, match="no answer"):
            post(url, b"{}", {}, ("127.0.0.0/8",))
        thread.join()
    assert left.is_set(), "the connection was kept"


def test_the_time_to_connect_counts_towards_that_of_the_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.service.receivers.DELIVERY_TIMEOUT_S", 3.0)
    connect = socket.create_connection

    def slowly(address: tuple[str, int], timeout: float) -> socket.socket:
        time.sleep(2.5)
        return connect(address, timeout)

    monkeypatch.setattr(socket, "create_connection", slowly)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun_s = time.monotonic()
        with pytest.raises(ReceiverError, match="no answer"):
            post(f"http://127.0.0.1:{silent.getsockname()[1]}/", b"{}", {}, ("127.0.0.0/8",))
    assert time.monotonic() - begun_s < 5.0


def test_tenants_whose_receivers_hang_leave_turns_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many tenants hang as there are deliveries at once, each with more events than can be sent in the test."""
    settings, hang, delivered = ServiceSettings(tmp_path), threading.Semaphore(0), threading.Event()
    database = ServiceDatabase(tmp_path)
    database.migrate()
    courier = Courier(database, Sealer.of(settings), (), Faults())

    def slow(row: Any) -> None:
        if row.tenant == "waits":
            delivered.set()
        else:
            assert hang.acquire(timeout=60)

    monkeypatch.setattr(courier, "_sent", slow)
    tenants_of_test = [f"slow{number}" for number in range(DELIVERIES_AT_ONCE)] + ["waits"]
    with database.write() as connection:
        connection.execute(insert(tenants), [{"name": name, "created_unix_ms": 1} for name in tenants_of_test])
        hooks = [queued_webhook(name) for name in tenants_of_test]
        connection.execute(insert(webhooks), hooks)
        for number in range(50):
            rows = [queued_delivery(name, number) for name in tenants_of_test[:-1]]
            connection.execute(insert(deliveries), rows)
        connection.execute(insert(deliveries).values(**queued_delivery("waits", 1_000)))
    courier.start()
    try:
        for _ in range(2 * DELIVERIES_AT_ONCE):
            hang.release()
            if delivered.wait(0.7):
                break
        assert delivered.is_set()
    finally:
        hang.release(1_000)
        courier.close()
        database.close()


def queued_webhook(tenant: str) -> dict[str, Any]:
    base = {"url": "https://example.org/", "states": "[]", "sealed": "", "dropped": 0, "created_unix_ms": 1}
    return {"id": tenant, "tenant": tenant, **base}


def queued_delivery(tenant: str, number: int) -> dict[str, Any]:
    times = {"next_unix_ms": number + 1, "created_unix_ms": number + 1}
    base = {"webhook": tenant, "body": "{}", "state": "pending", "attempts": 0}
    return {"id": f"{tenant}-{number}", "tenant": tenant, **base, **times}


def test_secrets_open_only_in_their_own_row(tmp_path: Path) -> None:
    sealer = Sealer.of(ServiceSettings(tmp_path))
    sealed = sealer.seal("secret", "mine", "a")
    assert Sealer.of(ServiceSettings(tmp_path)).open(sealed, "mine", "a") == "secret"
    for tenant, name in (("other", "a"), ("mine", "b")):
        with pytest.raises(StateError):
            sealer.open(sealed, tenant, name)
    (tmp_path / "service.key").chmod(0o644)
    with pytest.raises(UsageError, match="other users may read"):
        Sealer.of(ServiceSettings(tmp_path))


def test_a_server_without_permission_refuses_loopback(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.start()
    try:
        with server.client() as admin:
            refused: httpx.Response = admin.post("/v1/webhooks", json={"url": "https://127.0.0.1/hook"})
            assert (refused.status_code, "not a public address" in refused.text) == (422, True)
    finally:
        server.kill()
