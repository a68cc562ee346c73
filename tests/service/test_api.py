"""The API of a real server: jobs, their events, tokens, tenants, and what is refused."""

import json
import os
import socket
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.server import Server, get, submit, until, until_waiting_for_another
from tradewind.engine.jobs import OBJECTS_FILE
from tradewind.service.limits import STREAM_EVENTS_AT_ONCE


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("service"), "--jobs", "3")
    for number in range(3):
        path = server.data / "source" / f"{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(100_000))
    for number in range(16):
        path = server.data / "large" / f"{number:02}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(500_000))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def token_of(admin: httpx.Client, role: str, **others: Any) -> str:
    made = admin.post("/v1/tokens", json={"role": role, **others})
    assert made.status_code == 201, made.text
    token: str = made.json()["token"]
    return token


def test_a_job_from_submission_to_receipt(server: Server, admin: httpx.Client) -> None:
    body = json.dumps({"source": str(server.data / "source"), "destination": str(server.data / "b"), "recursive": True})
    form = {"Idempotency-Key": "first", "Content-Type": "application/x-www-form-urlencoded"}  # As `curl -d` sends it.
    made = admin.post("/v1/jobs", content=body, headers=form)
    assert made.status_code == 201
    job_id = made.json()["id"]
    job = until(admin, job_id, "done")
    assert job["counts"]["objects_done"] == 3
    assert job["counts"]["bytes_done"] == 300_000
    assert sum(job["proofs"].values()) == 3
    assert job["ledger"]["metered_usd"] == 0
    shown = admin.get(f"/v1/jobs/{job_id}")
    unchanged = admin.get(f"/v1/jobs/{job_id}", headers={"If-None-Match": shown.headers["ETag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    receipt = admin.get(f"/v1/jobs/{job_id}/receipt").json()
    assert (receipt["job_id"], receipt["complete"]) == (job_id, True)
    assert str(server.state) not in json.dumps(receipt)
    assert receipt["runs"] and not any("left" in run for run in receipt["runs"]), "they name fleets of the operator"
    first = admin.get(f"/v1/jobs/{job_id}/objects", params={"limit": 2}).json()
    rest = admin.get(f"/v1/jobs/{job_id}/objects", params={"limit": 2, "cursor": first["next"]}).json()
    assert len(first["objects"]) + len(rest["objects"]) == 3
    assert admin.get(f"/v1/jobs/{job_id}/objects", params={"cursor": "7"}).status_code == 422


def test_a_list_of_objects_is_gone_only_if_it_was_removed(server: Server, admin: httpx.Client) -> None:
    """A job that is cancelled before its lead runs has no file of objects, and none was removed."""
    (server.data / "huge").mkdir()
    with (server.data / "huge" / "0").open("wb") as file:
        file.truncate(100_000_000)
    known = set(lists_of_objects(server))
    done = submit(admin, "listed", server.data / "source", server.data / "listed", recursive=True).json()["id"]
    until(admin, done, "done")
    never = submit(admin, "never", server.data / "huge", server.data / "never", recursive=True, limit_bytes_per_s=1)
    until(admin, never.json()["id"], "running")
    admin.post(f"/v1/jobs/{never.json()['id']}/cancel")
    until(admin, never.json()["id"], "cancelled")
    for path in set(lists_of_objects(server)) - known:
        path.unlink()
    gone, empty = (admin.get(f"/v1/jobs/{job}/objects") for job in (done, never.json()["id"]))
    assert (gone.status_code, gone.json()["detail"]) == (410, "the list of objects was removed")
    assert (empty.status_code, empty.json()) == (200, {"objects": [], "next": None})


def lists_of_objects(server: Server) -> Iterator[Path]:
    return (server.state / "engine" / "jobs").glob(f"*/{OBJECTS_FILE}")


def test_events_are_replayed_after_an_id(server: Server, admin: httpx.Client) -> None:
    job_id = submit(admin, "events", server.data / "source", server.data / "e", recursive=True).json()["id"]
    events = read_events(admin, job_id)
    states = [data["state"] for _, kind, data in events if kind == "state"]
    assert states == ["waiting", "running", "done"]
    assert [kind for _, kind, _ in events if kind == "done"] == ["done"]
    number = next(number for number, _, data in events if data.get("state") == "running")
    later = read_events(admin, job_id, number)
    assert [data["state"] for _, kind, data in later if kind == "state"] == ["done"]
    assert read_events(admin, job_id, events[-1][0]) == []
    wrong = admin.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": "x"})
    assert wrong.status_code == 422


@pytest.mark.parametrize("path", ["/v1/jobs/", "/healthz/", "/v1/jobs/x/"])
def test_no_request_is_redirected(server: Server, admin: httpx.Client, path: str) -> None:
    """Behind a proxy with TLS, the address would be one without TLS, to which a client sends its token again."""
    answer = admin.get(path, headers={"Host": "transfers.example.org"})
    assert (answer.status_code, answer.headers.get("location")) == (404, None)


def test_many_events_are_all_replayed(server: Server, admin: httpx.Client) -> None:
    """They are read in parts, and one with an event that is not shown is not the last one."""
    for number in range(STREAM_EVENTS_AT_ONCE + 100):
        (server.data / "many" / f"{number}").parent.mkdir(exist_ok=True)
        (server.data / "many" / f"{number}").write_bytes(b"x")
        (server.data / "folders" / f"{number}").mkdir(parents=True)
    job_id = submit(admin, "many", server.data / "many", server.data / "folders", recursive=True).json()["id"]
    until(admin, job_id, "failed")
    events = read_events(admin, job_id)
    assert [kind for _, kind, _ in events].count("object_failed") == STREAM_EVENTS_AT_ONCE + 100
    running = next(number for number, _, data in events if data.get("state") == "running")
    assert read_events(admin, job_id, running) == events[2:]


def test_the_events_of_a_resumed_job_are_replayed_in_their_order(server: Server, admin: httpx.Client) -> None:
    (server.data / "twice").mkdir()
    (server.data / "twice" / "one").write_bytes(b"1")
    (server.data / "blocked" / "one").mkdir(parents=True)
    job_id = submit(admin, "twice", server.data / "twice", server.data / "blocked", recursive=True).json()["id"]
    until(admin, job_id, "failed")
    (server.data / "blocked" / "one").rmdir()
    assert admin.post(f"/v1/jobs/{job_id}/resume").status_code == 202
    until(admin, job_id, "done")
    events = read_events(admin, job_id)
    states = [data["state"] for _, kind, data in events if kind == "state"]
    assert states == ["waiting", "running", "failed", "waiting", "running", "done"]
    numbers = [tuple(map(int, number.split("."))) for number, _, _ in events]
    assert numbers == sorted(numbers)
    failed = next(number for number, _, data in events if data.get("state") == "failed")
    later = read_events(admin, job_id, failed)
    assert [data["state"] for _, kind, data in later if kind == "state"] == ["waiting", "running", "done"]


def test_many_changes_of_a_job_are_read_in_parts(server: Server, admin: httpx.Client) -> None:
    job_id = submit(admin, "changes", server.data / "source", server.data / "changes", recursive=True).json()["id"]
    until(admin, job_id, "done")
    before = read_events(admin, job_id)
    more = 2 * STREAM_EVENTS_AT_ONCE
    with closing(sqlite3.connect(server.state / "service.sqlite", timeout=30)) as database, database:
        shift = "UPDATE job_events SET number = number + ? WHERE job = ? AND state = 'done'"
        database.execute(shift, (more, job_id))
        rows = ((job_id, 3 + number, 0, "paused") for number in range(more))
        database.executemany("INSERT INTO job_events (job, number, at_unix_ms, state) VALUES (?, ?, ?, ?)", rows)
    events = read_events(admin, job_id)
    assert [data["state"] for _, kind, data in events if kind == "state"].count("paused") == more
    assert events[-1][2] == before[-1][2] and len(events) == len(before) + more


def read_events(client: httpx.Client, job_id: str, after: str | None = None) -> list[tuple[str, str, dict[str, Any]]]:
    headers = {} if after is None else {"Last-Event-ID": after}
    text = client.get(f"/v1/jobs/{job_id}/events", headers=headers).text
    found = []
    for block in filter(None, text.split("\n\n")):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        found.append((fields.get("id", ""), fields["event"], json.loads(fields["data"])))
    return found


def test_pause_resume_and_cancel(server: Server, admin: httpx.Client) -> None:
    slow = {"recursive": True, "limit_bytes_per_s": 500_000}
    job_id = submit(admin, "pause", server.data / "large", server.data / "paused", **slow).json()["id"]
    until(admin, job_id, "running")
    assert admin.post(f"/v1/jobs/{job_id}/pause").json()["state"] in ("pausing", "paused")
    until(admin, job_id, "paused")
    assert admin.post(f"/v1/jobs/{job_id}/resume").status_code == 202
    until(admin, job_id, "running")
    assert admin.delete(f"/v1/jobs/{job_id}").status_code == 202
    until(admin, job_id, "cancelled")
    refused = admin.post(f"/v1/jobs/{job_id}/resume")
    assert (refused.status_code, refused.json()["detail"]) == (409, "the job is cancelled")
    actions = [entry["action"] for entry in admin.get("/v1/audit").json()["entries"]]
    assert {"job.submit", "job.pausing", "job.waiting", "job.cancelling"} <= set(actions)


def test_a_paused_job_whose_source_has_become_a_link_is_not_resumed(server: Server, admin: httpx.Client) -> None:
    outside, source = server.data.parent / "outside", server.data / "replaced"
    outside.mkdir()
    source.mkdir()
    for number in range(8):
        (source / f"{number}").write_bytes(bytes(500_000))
    made = submit(admin, "replaced", source, server.data / "elsewhere", recursive=True, limit_bytes_per_s=500_000)
    job = f"/v1/jobs/{made.json()['id']}"
    until(admin, made.json()["id"], "running")
    admin.post(f"{job}/pause")
    until(admin, made.json()["id"], "paused")
    source.rename(server.data / "moved")
    source.symlink_to(outside)
    refused = admin.post(f"{job}/resume")
    assert (refused.status_code, "not below an allowed folder" in refused.text) == (422, True)
    source.unlink()
    source.symlink_to(server.data / "moved")
    refused = admin.post(f"{job}/resume")
    assert (refused.status_code, "has become a link" in refused.text) == (422, True)
    assert admin.delete(job).status_code == 202


def test_jobs_with_the_same_destination_wait_for_each_other(server: Server, admin: httpx.Client) -> None:
    slow = {"recursive": True, "limit_bytes_per_s": 500_000}
    first = submit(admin, "own1", server.data / "large", server.data / "own" / "x", **slow).json()["id"]
    until(admin, first, "running")
    second = submit(admin, "own2", server.data / "source", server.data / "own", recursive=True).json()["id"]
    shown = until_waiting_for_another(admin, second)
    assert shown["waiting"] == f"Job {first} writes to the same place first."
    assert admin.delete(f"/v1/jobs/{first}").status_code == 202
    until(admin, second, "done")
    assert admin.get(f"/v1/jobs/{first}").json()["state"] == "cancelled"


def test_a_deleting_sync_waits_for_the_job_that_writes_its_source(server: Server, admin: httpx.Client) -> None:
    for name in [f"{number:02}" for number in range(16)]:
        (server.data / "mirror").mkdir(exist_ok=True)
        (server.data / "mirror" / name).write_bytes((server.data / "large" / name).read_bytes())
    (server.data / "mirror" / "old").write_bytes(b"")
    slow = {"recursive": True, "limit_bytes_per_s": 6_000_000}
    first = submit(admin, "writes", server.data / "large", server.data / "between", **slow).json()["id"]
    until(admin, first, "running")
    places = server.data / "between", server.data / "mirror"
    second = submit(admin, "deletes", *places, verb="sync", delete=True).json()["id"]
    until(admin, second, "done")
    assert admin.get(f"/v1/jobs/{first}").json()["state"] == "done"
    assert len(list((server.data / "mirror").iterdir())) == 16


def test_a_tenant_sees_nothing_of_another(server: Server, admin: httpx.Client) -> None:
    assert admin.post("/v1/tenants", json={"name": "other"}).status_code == 201
    mine = submit(admin, "shared-key", server.data / "source", server.data / "mine", recursive=True).json()["id"]
    with server.client(token_of(admin, "tenant_admin", tenant="other")) as other:
        for path in ("", "/receipt", "/objects", "/events"):
            assert other.get(f"/v1/jobs/{mine}{path}").status_code == 404
        for change in ("pause", "resume", "cancel"):
            assert other.post(f"/v1/jobs/{mine}/{change}").status_code == 404
        assert other.get("/v1/jobs").json()["jobs"] == []
        assert all(entry["target"] != mine for entry in other.get("/v1/audit").json()["entries"])
        theirs = submit(other, "shared-key", server.data / "source", server.data / "theirs", recursive=True)
        assert theirs.status_code == 201
        assert theirs.json()["id"] != mine
        assert other.get("/metrics").status_code == 403
        assert other.post("/v1/tokens", json={"role": "viewer", "tenant": "default"}).status_code == 403


@pytest.mark.parametrize("role", ["viewer", "operator", "tenant_admin", "service_admin"])
def test_each_role_may_do_what_it_is_for(server: Server, admin: httpx.Client, role: str) -> None:
    with server.client(token_of(admin, role)) as client:
        allowed = {
            "read": client.get("/v1/jobs").status_code == 200,
            "write": client.post("/v1/jobs/none/pause").status_code == 404,
            "tokens": client.get("/v1/tokens").status_code == 200,
            "audit": client.get("/v1/audit").status_code == 200,
            "tenants": client.get("/v1/tenants").status_code == 200,
            "metrics": client.get("/metrics").status_code == 200,
        }
    expected = {"viewer": 1, "operator": 2, "tenant_admin": 4, "service_admin": 6}[role]
    assert list(allowed.values()) == [True] * expected + [False] * (6 - expected)


def test_tokens_expire_are_revoked_and_cannot_grow(server: Server, admin: httpx.Client) -> None:
    made = admin.post("/v1/tokens", json={"role": "tenant_admin", "scopes": ["jobs:read", "tokens"]}).json()
    with server.client(made["token"]) as client:
        assert client.get("/v1/jobs").status_code == 200
        assert client.get("/v1/audit").status_code == 403
        assert client.post("/v1/tokens", json={"role": "service_admin"}).status_code == 403
        assert client.post("/v1/tokens", json={"role": "operator"}).status_code == 403
        assert admin.delete(f"/v1/tokens/{made['id']}").status_code == 204
        assert client.get("/v1/jobs").status_code == 401
    assert "token" not in admin.get("/v1/tokens").json()["tokens"][0]
    assert made["token"].encode() not in (server.state / "service.sqlite").read_bytes()
    assert stat.S_IMODE(os.stat(server.state / "admin.token").st_mode) == 0o600


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("/etc/passwd", "not below an allowed folder"),
        ("{data}/../state", "not below an allowed folder"),
        ("{data}/link/passwd", "not below an allowed folder"),
        ("relative", "neither a URL nor an absolute path"),
        ("mem:", "neither a URL nor an absolute path"),
        ("s3://bucket/key", "the operator has not allowed this store"),
        ("file:///etc/passwd", "not below an allowed folder"),
    ],
)
def test_places_that_the_operator_has_not_allowed(server: Server, admin: httpx.Client, place: str, reason: str) -> None:
    link = server.data / "link"
    if not link.is_symlink():
        link.symlink_to("/etc")
    text = place.format(data=server.data)
    for source, destination in ((text, str(server.data / "x")), (str(server.data / "source"), text)):
        body = {"source": source, "destination": destination, "recursive": True}
        refused = admin.post("/v1/jobs", json=body, headers={"Idempotency-Key": f"bad {place}".replace(" ", "-")})
        assert refused.status_code == 422
        assert refused.headers["Content-Type"] == "application/problem+json"
        assert reason in refused.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/jobs", b"{", 422),
        ("POST", "/v1/jobs", b"\xff\xfe", 422),
        ("POST", "/v1/jobs", b"[" * 100_000, 400),
        ("POST", "/v1/jobs", b'{"source": "/a\\ud800", "destination": "/b"}', 422),
        ("POST", "/v1/jobs", b'{"source": "/a\\u0000", "destination": "/b"}', 422),
        ("POST", "/v1/jobs", b" " * 1_100_000, 413),
        ("GET", "/v1/jobs?limit=0", b"", 422),
        ("GET", "/v1/jobs?cursor=%00", b"", 422),
        ("GET", "/v1/nothing", b"", 404),
        ("PUT", "/v1/jobs", b"", 405),
    ],
)
def test_bad_requests_are_problems(admin: httpx.Client, method: str, path: str, body: bytes, status: int) -> None:
    refused = admin.request(method, path, content=body, headers={"Idempotency-Key": "bad"})
    assert refused.status_code == status, refused.text
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert refused.json()["status"] == status


def test_a_body_of_two_lengths_is_refused(server: Server) -> None:
    address = httpx.URL(server.url)
    hidden = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: {5 + len(hidden)}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with socket.create_connection((address.host, address.port or 80), timeout=30) as connection:
        connection.sendall(head.encode() + b"0\r\n\r\n" + hidden)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


def test_two_tokens_are_none(server: Server, admin: httpx.Client) -> None:
    """A proxy in front may judge a request by the other one."""
    token = f"Bearer {server.admin_token()}"
    assert get(f"{server.url}/v1/me", headers=[("Authorization", token)]).status_code == 200
    for other in (token, "Bearer tw1_x", ""):
        for both in ([token, other], [other, token]):
            answer = get(f"{server.url}/v1/me", headers=[("Authorization", one) for one in both])
            assert answer.status_code == 401, answer.text


def test_what_needs_no_token(server: Server) -> None:
    assert get(f"{server.url}/healthz").json() == {"status": "ok", "faults": []}
    assert get(f"{server.url}/readyz").json() == {"status": "ready"}
    assert "/v1/jobs/{job_id}/events" in get(f"{server.url}/openapi.json").json()["paths"]
    for path in ("/v1/jobs", "/metrics", "/v1/tokens", "/v1/tenants", "/v1/audit"):
        refused = get(server.url + path)
        assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")


def test_the_server_logged_no_error(server: Server) -> None:
    assert "Traceback" not in server.log
    assert "ERROR" not in server.log


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "with a space"}])
def test_a_missing_or_unfit_key_is_explained(server: Server, headers: dict[str, str]) -> None:
    body = {"source": str(server.data), "destination": str(server.data / "copy"), "recursive": True}
    with server.client() as admin:
        refused = admin.post("/v1/jobs", json=body, headers=headers)
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("header.Idempotency-Key: ")
    assert refused.json()["hint"].startswith("send 1 to 255 ASCII characters")
