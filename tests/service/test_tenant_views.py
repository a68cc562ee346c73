"""Tenants learn coarse figures of the market, and no numbers that count all tenants."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.service.local import new_database
from tradewind.service.app import Service, create_app
from tradewind.service.claims import ClaimTable
from tradewind.service.settings import ServiceSettings

LEASE_MS = 60_000


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """Return one of two servers, each for 8 jobs. Neither runs any."""
    with closing(new_database(tmp_path)) as database:
        service = Service(ServiceSettings(tmp_path / "state", allow_paths=(str(tmp_path),)), database)
        for name in (service.replica_id, "another"):
            ClaimTable(database, name, 8, LEASE_MS).renew()
        yield service


@pytest.fixture
def admin(service: Service) -> Iterator[httpx.Client]:
    token = service.settings.admin_token.read_text().strip()
    with TestClient(create_app(service), headers={"Authorization": f"Bearer {token}"}) as client:
        for name in ("lab", "other"):
            assert client.post("/v1/tenants", json={"name": name}).status_code == 201
        yield client


def member(admin: httpx.Client, tenant: str, role: str = "tenant_admin") -> dict[str, str]:
    made = admin.post("/v1/tokens", json={"tenant": tenant, "role": role}).json()
    return {"Authorization": f"Bearer {made['token']}"}


def submit(admin: httpx.Client, who: dict[str, str], folder: Path, name: str) -> None:
    body = {"source": str(folder / "source"), "destination": str(folder / name)}
    answer = admin.post("/v1/jobs", json=body, headers={**who, "Idempotency-Key": name})
    assert answer.status_code == 201, answer.text


def test_the_market_counts_the_places_of_all_servers(admin: httpx.Client, tmp_path: Path) -> None:
    who = member(admin, "other")
    for number in range(6):
        submit(admin, who, tmp_path, f"c{number}")
    now = admin.get("/v1/market").json()["now"]
    assert now["service_nodes"] == 16
    assert now["utilisation"] == 6 / 16
    assert admin.get("/v1/market/energy").json()["service_nodes"] == 16


def test_a_tenant_sees_a_coarse_utilisation_and_no_jobs_of_others(admin: httpx.Client, tmp_path: Path) -> None:
    others, viewer = member(admin, "other"), member(admin, "lab", "viewer")
    shown = []
    for number in range(20):
        submit(admin, others, tmp_path, f"c{number}")
        shown.append(admin.get("/v1/market", headers=viewer).json()["now"])
    assert {one["utilisation"] for one in shown} == {0, 0.25, 0.5, 0.75, 1}
    assert len({one["usd_per_hour"] for one in shown}) == 4, "the price is that of the class"
    assert {(one["running_jobs"], one["energy_ratio"], one["service_nodes"]) for one in shown} == {(None, None, None)}


def pages(admin: httpx.Client, path: str, kind: str, who: dict[str, str]) -> list[dict[str, Any]]:
    """Return all entries, read one by one."""
    entries: list[dict[str, Any]] = []
    query: dict[str, Any] = {"limit": 1}
    while True:
        page = admin.get(path, params=query, headers=who).json()
        entries += page[kind]
        if page["next"] is None:
            return entries
        assert isinstance(page["next"], str)
        query["cursor"] = page["next"]


def test_the_audit_log_has_no_numbers_of_all_tenants(admin: httpx.Client) -> None:
    lab, other = member(admin, "lab"), member(admin, "other")
    for who in (lab, other, other, lab):
        assert admin.post("/v1/tokens", json={"role": "viewer"}, headers=who).status_code == 201
    found = pages(admin, "/v1/audit", "entries", lab)
    assert [entry["action"] for entry in found] == ["token.make"] * 3
    assert len({entry["id"] for entry in found}) == 3
    assert not any(isinstance(value, int) and name != "at_unix_ms" for entry in found for name, value in entry.items())
    cursor = admin.get("/v1/audit", params={"limit": 1}, headers=lab).json()["next"]
    refused = admin.get("/v1/audit", params={"cursor": cursor}, headers=other)
    assert refused.status_code == 422, "a cursor is of one tenant"
    assert refused.json()["fields"][0]["field"] == "query.cursor"


def test_bids_have_an_opaque_cursor(admin: httpx.Client) -> None:
    limits = [{"kind": "link", "name": f"a:1>b:{number}", "rate_gbps": 1} for number in range(4)]
    assert admin.put("/v1/limits", json={"limits": limits}).status_code == 200
    lab, other = member(admin, "lab"), member(admin, "other")
    hour = admin.get("/v1/market/lots").json()["lots"][0]["last_hour"]
    for who, number in ((lab, 0), (other, 0), (lab, 1), (other, 1), (lab, 2)):
        offer = {"link": f"a:1>b:{number}", "hour": hour, "rate_gbps": 0.1, "usd_micros": 0}
        assert admin.post("/v1/market/bids", json=offer, headers=who).status_code == 201
    assert [bid["link"] for bid in pages(admin, "/v1/market/bids", "bids", lab)] == ["a:1>b:2", "a:1>b:1", "a:1>b:0"]
    assert admin.get("/v1/market/bids", params={"cursor": "7"}, headers=lab).status_code == 422
