"""A tenant that guesses names and keys of another one learns from no answer whether they exist."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import event

from tests.service.server import Server
from tests.service.test_matrix import (
    LINK,
    MAY,
    OF_SERVICE_ADMIN,
    SCOPE_OF,
    TENANTS,
    answer_to,
    named_in,
    server,
    things,
    tokens,
)
from tests.service.test_tenant_views import admin, member, service, submit
from tradewind.service.app import Service

__all__ = ["admin", "server", "service", "things", "tokens"]

Tokens = dict[tuple[str, str], str]
Things = dict[str, dict[str, str]]
#: A tenant that does not exist, whose name is as long as that of the other one.
NOBODY = "nobod"
SHIFTED = str.maketrans("0123456789abcdefghijklmnopqrstuvwxyz", "1234567890bcdefabcdefghijklmnopqrstu")
#: Headers that differ between any two answers.
CHANGING = {"date"}


def like(value: str) -> str:
    """Return the id of a thing that does not exist, of the same form as another one."""
    if TENANTS[1] in value:
        return value.replace(TENANTS[1], NOBODY)
    prefix = "" if value[1:2] != "-" else value[:2]
    return prefix + value.removeprefix(prefix).translate(SHIFTED)


def said(answer: httpx.Response, *names: str) -> tuple[int, str, dict[str, str]]:
    """Return an answer without the names that the request had."""
    text = answer.text
    for name in names:
        text = re.sub(rf"\b{re.escape(name)}\b", "NAME", text)
    headers = {name: value for name, value in answer.headers.items() if name not in CHANGING}
    return answer.status_code, text, headers


@pytest.mark.parametrize("role", sorted(MAY))
def test_a_thing_of_another_tenant_is_answered_like_one_that_does_not_exist(
    server: Server, tokens: Tokens, things: Things, role: str
) -> None:
    mine, other = TENANTS
    nobodys = {name: like(value) for name, value in things[other].items()}
    with server.client(tokens[mine, role]) as client:
        for method, path in SCOPE_OF:
            names = named_in(path)
            if not names or "ban_id" in names or (role == "service_admin" and names & OF_SERVICE_ADMIN):
                continue
            answers = [
                said(answer_to(client, method, path, ids), *(ids[name] for name in names))
                for ids in (things[other], nobodys)
            ]
            assert answers[0] == answers[1], (role, method, path)


def bodies(server: Server, others: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield requests whose bodies name things, with the path of each."""
    tenant, own = others["name"], str(server.data / TENANTS[0])
    places = (
        f"connection:{others['connection']}/x/",
        f"s3://bucket-of-{tenant}/x/",
        f"{server.data / tenant}/source",
        f"{own}/../{tenant}/source",
    )
    for path in ("/v1/jobs", "/v1/quotes", "/v1/schedules"):
        for place in places:
            for ends in ((place, f"{own}/copy"), (f"{own}/source", place)):
                job = {"source": ends[0], "destination": ends[1], "recursive": True}
                yield path, {"job": job} if path == "/v1/schedules" else job
    yield "/v1/jobs", {"quote": others["quote_id"]}
    yield "/v1/tokens", {"role": "viewer", "tenant": tenant}
    yield "/v1/market/bids", {"link": f"s3://bucket-of-{tenant}>a:1", "hour": 10**6, "rate_gbps": 0.1, "usd_micros": 0}


@pytest.mark.parametrize("role", ["operator", "tenant_admin"])
def test_a_body_that_names_what_another_tenant_has_is_answered_as_if_nobody_had_it(
    server: Server, tokens: Tokens, things: Things, role: str
) -> None:
    mine, other = TENANTS
    nobodys = {name: like(value) for name, value in things[other].items()}
    with server.client() as admin:
        links = (LINK, f"s3://bucket-of-{other}>a:1")
        limits = [{"kind": "link", "name": link, "rate_gbps": 1} for link in links]
        assert admin.put("/v1/limits", json={"limits": limits}).status_code == 200
    with server.client(tokens[mine, role]) as client:
        pairs = zip(bodies(server, things[other]), bodies(server, nobodys), strict=True)
        for number, ((path, foreign), (_, missing)) in enumerate(pairs):
            answers = []
            for body, ids in ((foreign, things[other]), (missing, nobodys)):
                headers = {"Idempotency-Key": f"{role}-{number}-{ids['name']}"}
                answer = client.post(path, json=body, headers=headers)
                assert answer.status_code >= 400, (path, body, answer.text)
                answers.append(said(answer, ids["name"], ids["quote_id"]))
            assert answers[0] == answers[1], (path, foreign)


def test_names_and_keys_that_another_tenant_has_are_free(server: Server, tokens: Tokens, things: Things) -> None:
    mine, other = TENANTS
    secret = {"access_key_id": "key", "secret_access_key": "secret"}
    connection = {"name": things[other]["connection"], "place": f"s3://bucket-of-{other}/", "secret": secret}
    webhook = {"url": f"http://127.0.0.1:9/hook/{other}", "states": ["done"]}
    ids = []
    with server.client(tokens[mine, "tenant_admin"]) as client, server.client(tokens[other, "operator"]) as others:
        assert client.post("/v1/connections", json=connection).status_code == 201
        assert client.post("/v1/webhooks", json=webhook).status_code == 201
        for tenant, sender in ((other, others), (mine, client)):
            folder = server.data / tenant
            job = {"source": str(folder / "source"), "destination": str(folder / "again"), "recursive": True}
            quote = sender.post("/v1/quotes", json=job).json()["id"]
            made = sender.post("/v1/jobs", json={"quote": quote}, headers={"Idempotency-Key": "both"})
            assert made.status_code == 201, made.text
            ids.append(made.json()["id"])
    assert len(set(ids)) == 2


@contextmanager
def statements(service: Service) -> Iterator[list[str]]:
    """Record what the database is asked."""
    found: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        found.append(re.sub(r"\s+", " ", statement))

    engine = service.database._engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)


def asked(service: Service, ask: Callable[[], httpx.Response]) -> list[str]:
    """Return what the database is asked for a request."""
    with statements(service) as found:
        assert ask().status_code < 500
    return found


def test_a_key_or_job_of_another_tenant_costs_the_same_time_as_a_free_one(
    service: Service, admin: httpx.Client, tmp_path: Path
) -> None:
    """The same statements are sent to the database, so no time shows which exist."""
    lab, other = member(admin, "lab"), member(admin, "other")
    for number in range(3):
        submit(admin, other, tmp_path, f"key-{number}")
    job_id = admin.get("/v1/jobs", headers=other).json()["jobs"][0]["id"]

    def send(key: str, to: str) -> list[str]:
        body = {"source": str(tmp_path / "source"), "destination": str(tmp_path / to)}
        return asked(service, lambda: admin.post("/v1/jobs", json=body, headers={**lab, "Idempotency-Key": key}))

    send("first", "x0")
    assert send("key-1", "x1") == send("key-of-nobody", "x2")

    def show(job: str, rest: str) -> list[str]:
        return asked(service, lambda: admin.get(f"/v1/jobs/{job}{rest}", headers=lab))

    for rest in ("", "/receipt", "/objects", "/plan", "/events"):
        assert show(job_id, rest) == show(like(job_id), rest), rest
