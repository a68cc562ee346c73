"""Every endpoint of the schema, for every role of two tenants which both have all that there is.

An endpoint without an entry fails the test.
"""

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from tests.service.server import WAIT_S, Server, eventually, get, submit, until

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
#: Answers to requests for one's own things. One without a body is refused with 422 after the check of the scope; a
#: thing that another request has ended or removed is answered 404 or 409.
PASSED = {200, 201, 202, 204, 404, 409, 422}
#: A service admin reads and sets these for all tenants. Bans and maintenance windows belong to no tenant.
OF_SERVICE_ADMIN = {"name", "invoice_id", "ban_id"}
#: Bodies of requests, without which the endpoint would not look at the things that its path names.
BODIES: dict[tuple[str, str], Any] = {
    ("PUT", "/v1/connections/{connection}"): {"access_key_id": "k", "secret_access_key": "s"},
    ("POST", "/v1/tokens/{token_id}/rotate"): {"overlap_s": 60},
    ("POST", "/v1/jobs/{job_id}/guest"): {},
    ("POST", "/v1/jobs/{job_id}/guest/exchange"): {"session": "x"},
    ("PUT", "/v1/tenants/{name}/budget"): {"limit_usd_micros": 10**9},
}
WEBHOOK = "http://127.0.0.1:9/hook"
HOUR = int(time.time() // 3600) + 24
LINK = "a:1>a:2"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("matrix"), "--allow-webhook-network", "127.0.0.0/8")
    server.allowed = [str(server.data / "{tenant}")]
    for tenant in TENANTS:
        (server.data / tenant / "source").mkdir(parents=True)
        (server.data / tenant / "source" / "one").write_bytes(b"1")
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def tokens(server: Server) -> dict[tuple[str, str], str]:
    """Return a token of each tenant and role."""
    found = {}
    with server.client() as admin:
        for tenant in TENANTS:
            assert admin.post("/v1/tenants", json={"name": tenant}).status_code == 201
            for role in MAY:
                answer = admin.post("/v1/tokens", json={"role": role, "tenant": tenant}).json()
                found[tenant, role] = answer["token"]
        limit = {"kind": "link", "name": LINK, "rate_gbps": 1}
        assert admin.put("/v1/limits", json={"limits": [limit]}).status_code == 200
    return found


@pytest.fixture(scope="module")
def things(server: Server, tokens: dict[tuple[str, str], str]) -> dict[str, dict[str, str]]:
    """Return the ids of things of each tenant, by the names that paths have for them. All of them exist."""
    found = {}
    for tenant in TENANTS:
        with server.client(tokens[tenant, "tenant_admin"]) as client:
            found[tenant] = things_of(server, client, tenant)
    with server.client() as admin:
        for tenant in TENANTS:
            assert admin.put(f"/v1/tenants/{tenant}/budget", json={"limit_usd_micros": 10**9}).status_code == 200
        closed = admin.post("/v1/bans", json={"kind": "link", "name": "b:1>b:2", "reason": "a cut cable"})
    return {tenant: {**ids, "ban_id": closed.json()["id"]} for tenant, ids in found.items()}


def things_of(server: Server, client: httpx.Client, tenant: str) -> dict[str, str]:
    """Make one of each thing for a tenant, and return their ids."""
    folder = server.data / tenant

    def made(path: str, body: Any) -> str:
        answer = client.post(path, json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json().get("id"))

    webhook = made("/v1/webhooks", {"url": f"{WEBHOOK}/{tenant}", "states": ["done"]})
    ids = {"webhook_id": webhook, "name": tenant, "connection": f"data-of-{tenant}"}
    secret = {"access_key_id": "key", "secret_access_key": "secret"}
    made("/v1/connections", {"name": ids["connection"], "place": f"s3://bucket-of-{tenant}/", "secret": secret})
    job = {"source": str(folder / "source"), "destination": str(folder / "copy"), "recursive": True}
    ids["job_id"] = submit(client, "k", folder / "source", folder / "copy", recursive=True).json()["id"]
    until(client, ids["job_id"], "done")
    ids["quote_id"] = made("/v1/quotes", job)
    ids["schedule_id"] = made("/v1/schedules", {"job": job})
    ids["token_id"] = made("/v1/tokens", {"role": "viewer"})
    ids["bid_id"] = made("/v1/market/bids", {"link": LINK, "hour": HOUR, "rate_gbps": 0.1, "usd_micros": 0})
    ids["member_id"] = member_of(server, tenant)
    sent = eventually(lambda: client.get(f"/v1/webhooks/{webhook}/deliveries").json()["deliveries"])
    ids["delivery_id"] = sent[0]["id"]
    ids["invoice_id"] = eventually(lambda: client.get("/v1/invoices").json()["invoices"])[0]["id"]
    return ids


def member_of(server: Server, tenant: str) -> str:
    """Record a member, which a token of an OIDC issuer would make, and return its id."""
    member = ("a" if tenant == "mine" else "b") * 32
    row = (tenant, member, "https://issuer.example", f"subject-of-{tenant}", "viewer", 0, 0)
    with closing(sqlite3.connect(server.state / "service.sqlite", timeout=WAIT_S)) as database, database:
        names = "tenant, id, issuer, subject, role, first_unix_ms, last_unix_ms"
        database.execute(f"INSERT INTO members ({names}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    return member


def operations(server: Server) -> list[tuple[str, str]]:
    paths = get(f"{server.url}/openapi.json").json()["paths"]
    return sorted((method.upper(), path) for path, methods in paths.items() for method in methods)


def test_each_endpoint_has_an_entry(server: Server) -> None:
    assert operations(server) == sorted(SCOPE_OF), "add each new endpoint with its scope"


def answer_to(client: httpx.Client, method: str, path: str, ids: dict[str, str]) -> httpx.Response:
    """Send a request and return its answer, without reading a stream."""
    filled = re.sub(r"{(\w+)}", lambda name: ids[name[1]], path)
    headers = {"Idempotency-Key": "matrix"} if path.endswith("/events") and method == "POST" else {}
    with client.stream(method, filled, json=BODIES.get((method, path)), headers=headers) as answer:
        if answer.status_code != 200 or not path.endswith("/events"):
            answer.read()
        return answer


def named_in(path: str) -> set[str]:
    return set(re.findall(r"{(\w+)}", path))


@pytest.mark.parametrize("role", sorted(MAY))
@pytest.mark.parametrize(("tenant", "other"), [TENANTS, TENANTS[::-1]])
def test_a_tenant_reaches_nothing_of_another(
    server: Server, tokens: dict[tuple[str, str], str], things: dict[str, Any], tenant: str, other: str, role: str
) -> None:
    """All that the path names is of the other tenant; or only the last of several, in one's own."""
    with server.client(tokens[tenant, role]) as client:
        for (method, path), scope in SCOPE_OF.items():
            names = named_in(path)
            if not names or (role == "service_admin" and names & OF_SERVICE_ADMIN):
                continue
            mixed = {**things[tenant], "delivery_id": things[other]["delivery_id"]}
            for ids in [things[other], *([mixed] if "delivery_id" in names else [])]:
                answer = answer_to(client, method, path, ids)
                expected = {403, 404} if "ban_id" in names else {404 if scope in MAY[role] else 403}
                assert answer.status_code in expected, (role, method, path, answer.status_code, answer.text)


def test_nothing_of_a_tenant_was_changed_by_the_other(
    server: Server, tokens: dict[tuple[str, str], str], things: dict[str, Any]
) -> None:
    for tenant in TENANTS:
        with server.client(tokens[tenant, "tenant_admin"]) as client:
            for path in [path for method, path in SCOPE_OF if method == "GET" and named_in(path)]:
                answer = answer_to(client, "GET", path, things[tenant])
                assert answer.status_code == (403 if "ban_id" in named_in(path) else 200), (path, answer.status_code)
            assert client.get(f"/v1/schedules/{things[tenant]['schedule_id']}").json()["submitted"] == 0
            (member,) = client.get("/v1/members").json()["members"]
            assert member["blocked_unix_ms"] is None
            changed = client.get("/v1/audit", params={"limit": 200}).json()["entries"]
            assert not [one for one in changed if one["action"].startswith(("token.ro", "token.revoke", "job.ca"))]


def changes(answer: httpx.Response) -> str:
    """Return the entries of the audit log but those of refused requests, which have the path that the tenant named."""
    return json.dumps([one for one in answer.json().get("entries", []) if one["action"] != "refused"])


@pytest.mark.parametrize("role", sorted(MAY))
@pytest.mark.parametrize(("tenant", "other"), [TENANTS, TENANTS[::-1]])
def test_lists_have_no_rows_of_another_tenant(
    server: Server, tokens: dict[tuple[str, str], str], things: dict[str, Any], tenant: str, other: str, role: str
) -> None:
    foreign = {value for name, value in things[other].items() if name not in ("ban_id", "name")}
    foreign |= {f"bucket-of-{other}", f"subject-of-{other}", f"{WEBHOOK}/{other}", f"/{other}/copy"}
    shown = set()
    with server.client(tokens[tenant, role]) as client:
        for path in [path for method, path in SCOPE_OF if method == "GET" and not named_in(path)]:
            answer = client.get(path, params={"limit": 200} if path not in ("/healthz", "/readyz", "/metrics") else {})
            text = answer.text if path != "/v1/audit" else changes(answer)
            if role == "service_admin" and path in ("/v1/links/decisions", "/v1/fleets"):
                continue  # Those of all tenants.
            assert not [value for value in foreign if value in text], path
            shown |= {name for name, value in things[tenant].items() if value in text}
    own = {"job_id", "schedule_id", "bid_id", "connection"}
    if role in ("tenant_admin", "service_admin"):
        own |= {"webhook_id", "token_id", "member_id", "invoice_id", "quote_id"}
    assert own <= shown, "the lists have the tenant's own rows"


@pytest.mark.parametrize("role", sorted(MAY))
@pytest.mark.parametrize("tenant", TENANTS)
def test_the_matrix(
    server: Server, tokens: dict[tuple[str, str], str], things: dict[str, Any], tenant: str, role: str
) -> None:
    with server.client(tokens[tenant, role]) as client:
        for (method, path), scope in SCOPE_OF.items():
            if path == "/v1/tokens/revoke-all" and scope in MAY[role]:
                continue  # It would end the other rows of the matrix; test_tenancy covers it.
            answer = answer_to(client, method, path, things[tenant])
            if scope is not NOBODY and scope not in MAY[role]:
                assert answer.status_code == 403, (role, method, path)
            else:
                assert answer.status_code in PASSED, (role, method, path, answer.text)


def test_nothing_without_a_token(server: Server, things: dict[str, Any]) -> None:
    """The first refusals are answered 401; the address then gets 429."""
    with httpx.Client(base_url=server.url, timeout=WAIT_S) as client:
        for method, path in operations(server):
            found = answer_to(client, method, path, things["mine"]).status_code
            assert (found in (401, 429)) == (SCOPE_OF[method, path] is not NOBODY), (method, path)
