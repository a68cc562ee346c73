"""Every endpoint of the schema, for every role of two tenants. An endpoint without an entry fails the test."""

import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.service.server import WAIT_S, Server, get, submit

NOBODY = None
#: Scope of each endpoint; NOBODY needs no token.
SCOPE_OF: dict[tuple[str, str], str | None] = {
    ("GET", "/healthz"): NOBODY,
    ("GET", "/readyz"): NOBODY,
    ("GET", "/metrics"): "metrics:read",
    ("GET", "/v1/jobs"): "jobs:read",
    ("POST", "/v1/jobs"): "jobs:write",
    ("GET", "/v1/jobs/{job_id}"): "jobs:read",
    ("DELETE", "/v1/jobs/{job_id}"): "jobs:write",
    ("POST", "/v1/jobs/{job_id}/pause"): "jobs:write",
    ("POST", "/v1/jobs/{job_id}/resume"): "jobs:write",
    ("POST", "/v1/jobs/{job_id}/cancel"): "jobs:write",
    ("POST", "/v1/jobs/{job_id}/guest"): "jobs:write",
    ("POST", "/v1/jobs/{job_id}/guest/exchange"): "jobs:write",
    ("GET", "/v1/jobs/{job_id}/receipt"): "jobs:read",
    ("GET", "/v1/jobs/{job_id}/objects"): "jobs:read",
    ("GET", "/v1/jobs/{job_id}/objects.jsonl"): "jobs:read",
    ("GET", "/v1/jobs/{job_id}/plan"): "jobs:read",
    ("GET", "/v1/jobs/{job_id}/events"): "jobs:read",
    ("GET", "/v1/keys"): NOBODY,
    ("POST", "/v1/quotes"): "jobs:write",
    ("GET", "/v1/quotes/{quote_id}"): "jobs:read",
    ("GET", "/v1/tariffs"): "jobs:read",
    ("PUT", "/v1/tariffs"): "tenants",
    ("GET", "/v1/tenants/{name}/budget"): "jobs:read",
    ("PUT", "/v1/tenants/{name}/budget"): "tenants",
    ("GET", "/v1/invoices"): "audit:read",
    ("GET", "/v1/invoices/{invoice_id}"): "audit:read",
    ("GET", "/v1/grid"): "jobs:read",
    ("GET", "/v1/frontier"): "jobs:read",
    ("GET", "/v1/plan"): "jobs:read",
    ("GET", "/v1/market"): "jobs:read",
    ("GET", "/v1/market/energy"): "tenants",
    ("GET", "/v1/market/auctions"): "jobs:read",
    ("GET", "/v1/market/lots"): "jobs:read",
    ("GET", "/v1/market/bids"): "jobs:read",
    ("POST", "/v1/market/bids"): "jobs:write",
    ("GET", "/v1/market/bids/{bid_id}"): "jobs:read",
    ("DELETE", "/v1/market/bids/{bid_id}"): "jobs:write",
    ("GET", "/v1/sites"): "jobs:read",
    ("GET", "/v1/links"): "tenants",
    ("GET", "/v1/links/decisions"): "tenants",
    ("GET", "/v1/fleets"): "tenants",
    ("GET", "/v1/bans"): "tenants",
    ("POST", "/v1/bans"): "tenants",
    ("DELETE", "/v1/bans/{ban_id}"): "tenants",
    ("GET", "/v1/maintenance"): "tenants",
    ("POST", "/v1/maintenance"): "tenants",
    ("DELETE", "/v1/maintenance/{ban_id}"): "tenants",
    ("GET", "/v1/limits"): "tenants",
    ("PUT", "/v1/limits"): "tenants",
    ("GET", "/v1/weights"): "tenants",
    ("PUT", "/v1/weights"): "tenants",
    ("POST", "/v1/schedules"): "jobs:write",
    ("GET", "/v1/schedules"): "jobs:read",
    ("GET", "/v1/schedules/{schedule_id}"): "jobs:read",
    ("DELETE", "/v1/schedules/{schedule_id}"): "jobs:write",
    ("POST", "/v1/schedules/{schedule_id}/events"): "jobs:write",
    # Each role has this scope: any token will do.
    ("GET", "/v1/me"): "jobs:read",
    ("POST", "/v1/tenants"): "tenants",
    ("GET", "/v1/tenants"): "tenants",
    ("POST", "/v1/tokens"): "tokens",
    ("GET", "/v1/tokens"): "tokens",
    ("DELETE", "/v1/tokens/{token_id}"): "tokens",
    ("POST", "/v1/tokens/{token_id}/rotate"): "tokens",
    ("POST", "/v1/tokens/revoke-all"): "tokens",
    ("GET", "/v1/members"): "members",
    ("POST", "/v1/members/{member_id}/block"): "members",
    ("POST", "/v1/members/{member_id}/unblock"): "members",
    ("GET", "/v1/audit"): "audit:read",
    ("POST", "/v1/connections"): "connections",
    ("GET", "/v1/connections"): "jobs:read",
    ("GET", "/v1/connections/{connection}"): "jobs:read",
    ("PUT", "/v1/connections/{connection}"): "connections",
    ("DELETE", "/v1/connections/{connection}"): "connections",
    ("POST", "/v1/webhooks"): "webhooks",
    ("GET", "/v1/webhooks"): "webhooks",
    ("DELETE", "/v1/webhooks/{webhook_id}"): "webhooks",
    ("GET", "/v1/webhooks/{webhook_id}/deliveries"): "webhooks",
    ("POST", "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/replay"): "webhooks",
}
VIEWER = {"jobs:read"}
OPERATOR = VIEWER | {"jobs:write"}
TENANT_ADMIN = OPERATOR | {"connections", "webhooks", "tokens", "members", "audit:read"}
MAY = {
    "viewer": VIEWER,
    "operator": OPERATOR,
    "tenant_admin": TENANT_ADMIN,
    "service_admin": TENANT_ADMIN | {"tenants", "metrics:read"},
}
TENANTS = ("mine", "other")
#: Requests without a body are refused with 422 after the check of the scope.
PASSED = {200, 201, 202, 204, 404, 409, 422}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("matrix"))
    (server.data / "source").mkdir()
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def made(server: Server) -> dict[str, Any]:
    """Return a token of each tenant and role, and ids of things that belong to the tenant `mine`."""
    with server.client() as admin:
        tokens = {}
        for tenant in TENANTS:
            assert admin.post("/v1/tenants", json={"name": tenant}).status_code == 201
            for role in MAY:
                answer = admin.post("/v1/tokens", json={"role": role, "tenant": tenant}).json()
                tokens[tenant, role] = answer["token"]
        victim = admin.post("/v1/tokens", json={"role": "viewer", "tenant": "mine"}).json()["id"]
        limit = {"kind": "link", "name": "a:1>a:2", "rate_gbps": 1}
        assert admin.put("/v1/limits", json={"limits": [limit]}).status_code == 200
    with server.client(tokens["mine", "operator"]) as client:
        hour = int(time.time() // 3600) + 24
        offer = {"link": "a:1>a:2", "hour": hour, "rate_gbps": 0.1, "usd_micros": 0}
        bid = client.post("/v1/market/bids", json=offer).json()["id"]
        job = submit(client, "k", server.data / "source", server.data / "copy", recursive=True).json()["id"]
    return {
        "tokens": tokens,
        "job_id": job,
        "token_id": victim,
        "name": "mine",
        "invoice_id": "2026-01.mine",
        "quote_id": "q-" + "0" * 16,
        "bid_id": bid,
        "ban_id": "0" * 16,
        "schedule_id": "0" * 16,
        "member_id": "0" * 32,
        "webhook_id": "0" * 16,
        "connection": "data",
        "delivery_id": "0" * 16,
    }


def operations(server: Server) -> list[tuple[str, str]]:
    paths = get(f"{server.url}/openapi.json").json()["paths"]
    return sorted((method.upper(), path) for path, methods in paths.items() for method in methods)


def test_each_endpoint_has_an_entry(server: Server) -> None:
    assert operations(server) == sorted(SCOPE_OF), "add each new endpoint with its scope"


def answer_to(client: httpx.Client, method: str, path: str, made: dict[str, Any]) -> httpx.Response:
    """Send a request without a body and return its answer, without reading a stream."""
    filled = re.sub(r"{(\w+)}", lambda name: made[name[1]], path)
    with client.stream(method, filled) as answer:
        if answer.status_code != 200 or not path.endswith("/events"):
            answer.read()
        return answer


@pytest.mark.parametrize("role", sorted(MAY))
@pytest.mark.parametrize("tenant", TENANTS)
def test_the_matrix(server: Server, made: dict[str, Any], tenant: str, role: str) -> None:
    with server.client(made["tokens"][tenant, role]) as client:
        for (method, path), scope in SCOPE_OF.items():
            if path == "/v1/tokens/revoke-all" and scope in MAY[role]:
                continue  # It would end the other rows of the matrix; test_tenancy covers it.
            answer = answer_to(client, method, path, made)
            if scope is not NOBODY and scope not in MAY[role]:
                assert answer.status_code == 403, (role, method, path)
            elif tenant == "other" and "{" in path:
                assert answer.status_code in (404, 422), (role, method, path, answer.status_code)
                assert made["job_id"] not in answer.text
            else:
                assert answer.status_code in PASSED, (role, method, path, answer.text)


def test_nothing_without_a_token(server: Server, made: dict[str, Any]) -> None:
    """The first refusals are answered 401; the address then gets 429."""
    with httpx.Client(base_url=server.url, timeout=WAIT_S) as client:
        for method, path in operations(server):
            found = answer_to(client, method, path, made).status_code
            assert (found in (401, 429)) == (SCOPE_OF[method, path] is not NOBODY), (method, path)
