"""Limits of tokens and tenants: requests, event streams and open jobs. Other tenants do not notice."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from testbed.loopback import Answer, LoopbackServer, Received
from tests.service.local import new_database
from tests.service.server import WAIT_S, eventually
from tradewind.service import jobs as jobs_of_service
from tradewind.service.app import Service, create_app
from tradewind.service.limits import STREAMS_PER_TENANT_MAX, TENANT_REQUESTS_PER_S
from tradewind.service.rates import Rates
from tradewind.service.settings import ServiceSettings

#: Requests at once, and further ones in a second: none within a test.
BURST, SLOW = 12, 0.001


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with closing(new_database(tmp_path)) as database:
        yield Service(ServiceSettings(tmp_path / "state", allow_paths=(str(tmp_path),)), database)


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with TestClient(create_app(service)) as client:
        yield client


@pytest.fixture
def tokens(service: Service, client: httpx.Client) -> dict[str, list[dict[str, str]]]:
    """Return the headers of three operators of each of two tenants."""
    admin = {"Authorization": f"Bearer {service.settings.admin_token.read_text().strip()}"}
    found: dict[str, list[dict[str, str]]] = {}
    for tenant in ("lab", "other"):
        assert client.post("/v1/tenants", json={"name": tenant}, headers=admin).status_code == 201
        body = {"tenant": tenant, "role": "operator"}
        made = [client.post("/v1/tokens", json=body, headers=admin).json()["token"] for _ in range(3)]
        found[tenant] = [{"Authorization": f"Bearer {token}"} for token in made]
    return found


def statuses(client: httpx.Client, who: dict[str, str], count: int) -> list[int]:
    return [client.get("/v1/me", headers=who).status_code for _ in range(count)]


def test_the_requests_of_one_token_are_limited(
    service: Service, client: httpx.Client, tokens: dict[str, list[dict[str, str]]]
) -> None:
    service.rates = Rates(SLOW, BURST)
    first, second, _ = tokens["lab"]
    assert statuses(client, first, BURST + 1) == [*[200] * BURST, 429]
    refused = client.get("/v1/me", headers=first)
    assert int(refused.headers["Retry-After"]) > 0 and refused.json()["detail"] == "too many requests"
    assert statuses(client, second, 1) == statuses(client, tokens["other"][0], 1) == [200]


def test_the_requests_of_all_tokens_of_a_tenant_are_limited_together(
    service: Service, client: httpx.Client, tokens: dict[str, list[dict[str, str]]]
) -> None:
    service.tenant_rates = Rates(SLOW, BURST)
    share = BURST // 3
    assert [status for who in tokens["lab"] for status in statuses(client, who, share)] == [200] * BURST
    assert [statuses(client, who, 1) for who in tokens["lab"]] == [[429]] * 3
    assert statuses(client, tokens["other"][0], 1) == [200]


def test_a_service_has_both_limits_of_requests(service: Service) -> None:
    assert service.rates.wait_s("token", 0.0) == service.tenant_rates.wait_s("tenant", 0.0) == 0
    waits = [service.tenant_rates.wait_s("busy", 0.0) for _ in range(2_000)]
    assert max(waits) <= 1 / TENANT_REQUESTS_PER_S and waits.count(0.0) == 1_200


def submit(client: httpx.Client, who: dict[str, str], folder: Path, name: str) -> httpx.Response:
    body = {"source": str(folder / "source"), "destination": str(folder / name)}
    return client.post("/v1/jobs", json=body, headers={**who, "Idempotency-Key": name})


def test_the_event_streams_of_a_tenant_are_limited(
    service: Service, client: httpx.Client, tokens: dict[str, list[dict[str, str]]], tmp_path: Path
) -> None:
    who = tokens["lab"][0]
    job = submit(client, who, tmp_path, "one").json()["id"]
    for _ in range(STREAMS_PER_TENANT_MAX):
        leave = service.streams.enter("lab")
    refused = client.get(f"/v1/jobs/{job}/events", headers=who)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "5")
    service.streams.enter("other")
    leave()
    service.streams.enter("lab")


def test_the_open_jobs_of_a_tenant_are_limited(
    service: Service,
    client: httpx.Client,
    tokens: dict[str, list[dict[str, str]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs_of_service, "OPEN_JOBS_PER_TENANT_MAX", 3)
    lab, other = tokens["lab"][0], tokens["other"][0]
    answers = [submit(client, lab, tmp_path, f"lab-{number}") for number in range(4)]
    assert [answer.status_code for answer in answers] == [201, 201, 201, 429]
    assert answers[-1].headers["Retry-After"] == "60"
    assert submit(client, other, tmp_path, "other").status_code == 201
    assert submit(client, lab, tmp_path, "lab-0").status_code == 200, "the same job is not a further one"
    assert service.queue.move(answers[0].json()["id"], ("waiting",), "cancelled")
    assert submit(client, lab, tmp_path, "lab-3").status_code == 201


def test_slow_quotes_of_one_tenant_leave_room_for_others(tmp_path: Path) -> None:
    """The store of a tenant answers no listing, so its quotes are being counted for a long time."""
    listed, is_over = [], threading.Event()

    def unanswered(received: Received) -> Answer:
        listed.append(received.path)
        is_over.wait(WAIT_S)
        return Answer(503)

    (tmp_path / "source").write_bytes(b"x")
    with closing(LoopbackServer(unanswered)) as slow, closing(new_database(tmp_path)) as database:
        settings = ServiceSettings(tmp_path / "state", allow_paths=(str(tmp_path),), allow_endpoints=(slow.url,))
        service = Service(settings, database)
        with TestClient(create_app(service)) as client, ThreadPoolExecutor() as pool:
            try:
                token = settings.admin_token.read_text().strip()
                client.headers["Authorization"] = f"Bearer {token}"
                secret = {"access_key_id": "a", "secret_access_key": "b"}
                place = {"name": "slow", "place": "s3://slow/", "endpoint": slow.url, "secret": secret}
                assert client.post("/v1/connections", json=place).status_code == 201
                body = {"source": "connection:slow/x/", "destination": str(tmp_path / "to"), "recursive": True}
                asked = [pool.submit(client.post, "/v1/quotes", json=body) for _ in range(4)]
                eventually(lambda: len(listed) + sum(one.done() for one in asked) >= len(asked))
                assert client.post("/v1/tenants", json={"name": "other"}).status_code == 201
                other = client.post("/v1/tokens", json={"tenant": "other", "role": "operator"}).json()["token"]
                local = {"source": str(tmp_path / "source"), "destination": str(tmp_path / "copy")}
                quoted = client.post("/v1/quotes", json=local, headers={"Authorization": f"Bearer {other}"})
                assert quoted.status_code == 201, quoted.text
                refused = [one.result() for one in asked if one.done()]
                assert [one.status_code for one in refused] == [429, 429]
                assert refused[0].json()["detail"] == "other quotes are being made"
            finally:
                is_over.set()
