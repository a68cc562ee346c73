"""Each request that changes something is in the audit log, for all endpoints of the OpenAPI document."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, insert, select

from tests.service.local import new_database
from tradewind.service.app import Service, create_app
from tradewind.service.settings import ServiceSettings
from tradewind.service.tables import audit, deliveries, members

MUTATING = ("POST", "PUT", "PATCH", "DELETE")
#: Requests of the host of a running job; joining is audited, see test_guests. What is exchanged changes nothing here.
BY_GUESTS = {("POST", "/v1/jobs/{job_id}/guest"), ("POST", "/v1/jobs/{job_id}/guest/exchange")}
MEMBER, DELIVERY = "a" * 32, "b" * 16
TARIFF = {"name": "base", "unit": "GB", "tiers": [{"from_quantity": 0, "usd_micros_per_unit": 1}]}
LIMIT = {"kind": "link", "name": "a:1>a:2", "rate_gbps": 1}
BAN = {"kind": "link", "name": "b:1>b:2", "reason": "a cut cable"}
SECRET = {"access_key_id": "key", "secret_access_key": "secret"}
HOUR = int(time.time() // 3600) + 24
WINDOW = {**BAN, "start_unix_ms": HOUR * 3_600_000, "end_unix_ms": (HOUR + 1) * 3_600_000}
BID = {"link": "a:1>a:2", "hour": HOUR, "rate_gbps": 0.1, "usd_micros": 0}


def steps(folder: Path) -> list[tuple[str, str, Any, str]]:
    """Return a request for each endpoint that changes something: with its body, and the name of what it makes."""
    job = {"source": str(folder / "source"), "destination": str(folder / "copy")}
    return [
        ("POST", "/v1/tenants", {"name": "lab"}, ""),
        ("PUT", "/v1/limits", {"limits": [LIMIT]}, ""),
        ("PUT", "/v1/weights", {"weights": [{"tenant": "lab", "weight": 2}]}, ""),
        ("PUT", "/v1/tariffs", {"tariffs": [TARIFF]}, ""),
        ("PUT", "/v1/tenants/lab/budget", {"limit_usd_micros": 5}, "/v1/tenants/{name}/budget"),
        ("POST", "/v1/bans", BAN, "ban_id"),
        ("DELETE", "/v1/bans/{ban_id}", None, ""),
        ("POST", "/v1/maintenance", WINDOW, "ban_id"),
        ("DELETE", "/v1/maintenance/{ban_id}", None, ""),
        ("POST", "/v1/market/bids", BID, "bid_id"),
        ("DELETE", "/v1/market/bids/{bid_id}", None, ""),
        ("POST", "/v1/quotes", job, ""),
        ("POST", "/v1/jobs", job, "job_id"),
        ("POST", "/v1/jobs/{job_id}/pause", None, ""),
        ("POST", "/v1/jobs/{job_id}/resume", None, ""),
        ("POST", "/v1/jobs/{job_id}/cancel", None, ""),
        ("POST", "/v1/jobs", {**job, "destination": str(folder / "other")}, "job_id"),
        ("DELETE", "/v1/jobs/{job_id}", None, ""),
        ("POST", "/v1/schedules", {"job": job}, "schedule_id"),
        ("POST", "/v1/schedules/{schedule_id}/events", None, ""),
        ("DELETE", "/v1/schedules/{schedule_id}", None, ""),
        ("POST", "/v1/connections", {"name": "data", "place": "s3://bucket/in/", "secret": SECRET}, ""),
        ("PUT", "/v1/connections/{connection}", SECRET, ""),
        ("DELETE", "/v1/connections/{connection}", None, ""),
        ("POST", "/v1/webhooks", {"url": "https://hooks.example.org/x", "states": ["done"]}, "webhook_id"),
        ("POST", "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/replay", None, ""),
        ("DELETE", "/v1/webhooks/{webhook_id}", None, ""),
        ("POST", "/v1/members/{member_id}/block", None, ""),
        ("POST", "/v1/members/{member_id}/unblock", None, ""),
        ("POST", "/v1/tokens", {"role": "viewer"}, "token_id"),
        ("POST", "/v1/tokens/{token_id}/rotate", {}, "token_id"),
        ("DELETE", "/v1/tokens/{token_id}", None, ""),
        ("POST", "/v1/tokens/revoke-all", None, ""),
    ]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    (tmp_path / "source").write_bytes(b"1")
    with closing(new_database(tmp_path)) as database:
        yield Service(ServiceSettings(tmp_path / "state", allow_paths=(str(tmp_path),)), database)


@pytest.fixture
def admin(service: Service) -> Iterator[httpx.Client]:
    token = service.settings.admin_token.read_text().strip()
    with TestClient(create_app(service), headers={"Authorization": f"Bearer {token}"}) as client:
        yield client


def add_rows(service: Service, webhook: str) -> None:
    """Add a member, which OIDC tokens make, and a delivery, which the courier has given up."""
    seen = {"first_unix_ms": 0, "last_unix_ms": 0}
    who = {"tenant": "default", "id": MEMBER, "issuer": "https://issuer", "subject": "ann", "role": "viewer"}
    sent = {"id": DELIVERY, "tenant": "default", "webhook": webhook, "body": "{}", "state": "failed", "attempts": 8}
    with service.database.write() as connection:
        connection.execute(insert(members).values(**who, **seen))
        connection.execute(insert(deliveries).values(**sent, next_unix_ms=0, created_unix_ms=0))


def test_each_change_is_audited(service: Service, admin: httpx.Client, tmp_path: Path) -> None:
    made = {"connection": "data", "member_id": MEMBER, "delivery_id": DELIVERY}
    done = set()
    for number, (method, path, body, kind) in enumerate(steps(tmp_path)):
        before = count(service)
        answer = admin.request(method, path.format(**made), json=body, headers={"Idempotency-Key": f"k{number}"})
        assert answer.status_code in (200, 201, 202, 204), (method, path, answer.text)
        assert count(service) > before, (method, path)
        if kind.endswith("_id"):
            made[kind] = answer.json()["id"]
        if kind == "webhook_id":
            add_rows(service, made[kind])
        done.add((method, kind if kind.startswith("/") else path))
    assert done | BY_GUESTS == mutating(admin), "add each new endpoint that changes something"


def count(service: Service) -> int:
    query = select(func.count()).select_from(audit).where(audit.c.action != "refused")
    with service.database.read() as connection:
        return int(connection.execute(query).scalar_one())


def mutating(admin: httpx.Client) -> set[tuple[str, str]]:
    paths = admin.get("/openapi.json").json()["paths"]
    operations = ((method.upper(), path) for path, methods in paths.items() for method in methods)
    return {(method, path) for method, path in operations if method in MUTATING}
