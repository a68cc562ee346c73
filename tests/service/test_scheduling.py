"""The scheduler decides in a real server: limits, bans, weights, schedules, retry classes, and stores that are down."""

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from testbed.s3 import S3
from testbed.servers import InstallError, versitygw
from testbed.servers.process import spawn, stop_group
from tests.service.server import WAIT_S, Server, eventually, submit, until

KEYS = {"ROOT_ACCESS_KEY": "testbed"}
SLOW = {"recursive": True, "limit_bytes_per_s": 1_000_000}


def serve(folder: Path, *options: str, **environment: str) -> Server:
    server = Server(folder, "--jobs", "8", *options, **environment)
    for number in range(8):
        path = server.data / "source" / f"{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(100_000))
    server.start()
    return server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = serve(tmp_path_factory.mktemp("scheduling"))
    yield server
    server.kill()


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client
        client.put("/v1/limits", json={"limits": []})


def waits(client: httpx.Client, job_id: str, words: str) -> dict[str, Any]:
    """Return the job once its reason has these words."""
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        found: dict[str, Any] = client.get(f"/v1/jobs/{job_id}").json()
        if found["state"] == "waiting" and words in (found["waiting"] or ""):
            return found
        time.sleep(0.05)
    raise AssertionError(f"{found} does not wait with {words!r}")


def begin(client: httpx.Client, server: Server, name: str, **others: Any) -> str:
    made = submit(client, name, server.data / "source", server.data / name, **{**SLOW, **others})
    assert made.status_code == 201, made.text
    job_id: str = made.json()["id"]
    return job_id


def limit(client: httpx.Client, kind: str, name: str, **limits: Any) -> None:
    done = client.put("/v1/limits", json={"limits": [{"kind": kind, "name": name, **limits}]})
    assert done.status_code == 200, done.text


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("store-in", "local"),
        ("store-out", "local"),
        ("link", "site:local>site:local"),
        ("site", "servers"),
        ("tenant", "default"),
    ],
)
def test_a_limit_of_each_kind_keeps_the_second_job_waiting(
    server: Server, admin: httpx.Client, kind: str, name: str
) -> None:
    limit(admin, kind, name, active=1)
    first, second = (begin(admin, server, f"{kind}-{number}") for number in range(2))
    until(admin, first, "running")
    words = {"store-in": "writes to store", "store-out": "reads from store"}.get(kind, kind)
    found = waits(admin, second, f"The limit of {words} {name} is reached: active jobs.")
    assert found["eta"]["earliest_unix_ms"] < found["eta"]["latest_unix_ms"]
    admin.put("/v1/limits", json={"limits": []})
    until(admin, second, "running", "done")
    for job_id in (first, second):
        admin.delete(f"/v1/jobs/{job_id}")


@pytest.mark.parametrize(
    ("method", "path", "field", "body"),
    [
        ("PUT", "limits", "body.limits.0.name", {"limits": [{"kind": "tenant", "name": "nobody", "active": 1}]}),
        ("PUT", "weights", "body.weights.0.tenant", {"weights": [{"tenant": "nobody", "weight": 2}]}),
        ("POST", "bans", "body.name", {"kind": "tenant", "name": "nobody", "reason": "none"}),
        (
            "POST",
            "maintenance",
            "body.name",
            {"kind": "tenant", "name": "nobody", "reason": "none", "start_unix_ms": 1, "end_unix_ms": 10**14},
        ),
    ],
)
def test_a_tenant_that_does_not_exist_is_refused(
    admin: httpx.Client, method: str, path: str, field: str, body: dict[str, Any]
) -> None:
    before = admin.get(f"/v1/{path}").json()
    refused = admin.request(method, f"/v1/{path}", json=body)
    assert (refused.status_code, refused.json()["detail"]) == (422, "no tenant nobody"), refused.text
    assert [one["field"] for one in refused.json()["fields"]] == [field]
    assert admin.get(f"/v1/{path}").json() == before


def test_a_limited_rate_slows_the_job(server: Server, admin: httpx.Client) -> None:
    limit(admin, "store-in", "local", rate_gbps=0.004)
    begin_s = time.monotonic()
    job_id = begin(admin, server, "rate", limit_bytes_per_s=None)
    until(admin, job_id, "running")
    second = begin(admin, server, "slow", limit_bytes_per_s=None)
    waits(admin, second, "The limit of writes to store local is reached: rate.")
    until(admin, job_id, "done")
    assert time.monotonic() - begin_s > 1, "800 kB at 500 kB/s"
    admin.delete(f"/v1/jobs/{second}")


def test_the_end_of_a_running_job_follows_its_progress(server: Server, admin: httpx.Client) -> None:
    """Before the source is listed, its size is assumed to be 1 GB, which takes hours at this rate."""
    job_id = begin(admin, server, "progress", limit_bytes_per_s=20_000)
    ends = until(admin, job_id, "running")["eta"]
    deadline_s = time.monotonic() + WAIT_S
    while ends is None or ends["latest_unix_ms"] - time.time() * 1000 > 600_000:
        assert time.monotonic() < deadline_s, ends
        time.sleep(0.1)
        ends = until(admin, job_id, "running")["eta"]
    admin.post(f"/v1/jobs/{job_id}/cancel")


def test_a_job_without_an_end_in_sight_holds_up_no_other(server: Server, admin: httpx.Client) -> None:
    """No database keeps the time at which 2^62 bytes at one byte per second end."""
    places = {"source": "guest://endless", "destination": str(server.data / "endless")}
    body = {**places, "source_bytes": 1 << 62, "limit_bytes_per_s": 1}
    endless = admin.post("/v1/jobs", json=body, headers={"Idempotency-Key": "endless"})
    assert endless.status_code == 201, endless.text
    until(admin, endless.json()["id"], "running")
    slow = submit(admin, "beside", server.data / "source", server.data / "beside", **SLOW).json()["id"]

    def known_end() -> int | None:
        with closing(sqlite3.connect(server.state / "service.sqlite", timeout=30)) as database:
            query = "SELECT latest_unix_ms FROM jobs WHERE id = ?"
            found: int | None = database.execute(query, (slow,)).fetchone()[0]
            return found

    eventually(known_end)
    assert admin.get(f"/v1/jobs/{endless.json()['id']}").json()["eta"] is None
    assert admin.get("/healthz").json()["faults"] == []
    for job_id in (slow, endless.json()["id"]):
        admin.delete(f"/v1/jobs/{job_id}")
        until(admin, job_id, "cancelled")


def test_a_ban_drains_stops_or_refuses(server: Server, admin: httpx.Client) -> None:
    running = begin(admin, server, "drained", limit_bytes_per_s=300_000)
    until(admin, running, "running")
    resource = {"kind": "store-in", "name": "local", "reason": "new disks"}
    ban = admin.post("/v1/bans", json=resource).json()
    second = begin(admin, server, "banned")
    waits(admin, second, f"Ban {ban['id']} closes writes to store local.")
    assert admin.get(f"/v1/jobs/{running}").json()["state"] == "running"
    assert [one["id"] for one in admin.get("/v1/bans").json()["bans"]] == [ban["id"]]
    stops = admin.post("/v1/bans", json={**resource, "stops_jobs": True, "refuses_jobs": True}).json()
    found = waits(admin, running, "closes writes to store local")
    assert (found["attempts"], found["eta"]) == (0, None)
    refused = submit(admin, "refused", server.data / "source", server.data / "refused", **SLOW)
    assert (refused.status_code, refused.json()["detail"]) == (409, f"ban {stops['id']} refuses new jobs: new disks")
    for one in (ban, stops):
        assert admin.delete(f"/v1/bans/{one['id']}").status_code == 204
    for job_id in (running, second):
        until(admin, job_id, "done")


def test_a_maintenance_window_ends_by_itself(server: Server, admin: httpx.Client) -> None:
    now = round(time.time() * 1000)
    window = {"kind": "store", "name": "local", "reason": "move", "start_unix_ms": now - 1, "end_unix_ms": now + 1500}
    made = admin.post("/v1/maintenance", json=window).json()
    job_id = begin(admin, server, "window")
    waits(admin, job_id, f"Ban {made['id']}")
    until(admin, job_id, "running", "done")
    assert admin.get("/v1/maintenance").json() == {"windows": []}
    wrong = admin.post("/v1/maintenance", json={**window, "end_unix_ms": now - 2})
    assert wrong.status_code == 422


def test_priorities_and_weights_decide_the_order(server: Server, admin: httpx.Client) -> None:
    weights = [{"tenant": "default", "activity": "nightly", "weight": 0.5}]
    assert admin.put("/v1/weights", json={"weights": weights}).status_code == 200
    assert admin.get("/v1/weights").json()["weights"] == weights
    limit(admin, "tenant", "default", active=0)
    low = begin(admin, server, "low", activity="nightly")
    high = begin(admin, server, "high", activity="nightly", priority=5)
    for job_id in (low, high):
        waits(admin, job_id, "The limit of tenant default is reached")
    limit(admin, "tenant", "default", active=1)
    until(admin, high, "running")
    waits(admin, low, "is reached: active jobs.")
    for job_id in (low, high):
        admin.delete(f"/v1/jobs/{job_id}")


def test_a_schedule_submits_each_time_once(server: Server, admin: httpx.Client) -> None:
    job = {"source": str(server.data / "source"), "destination": str(server.data / "daily"), "recursive": True}
    made = admin.post("/v1/schedules", json={"job": job, "cron": "0 3 * * *", "count": 1})
    assert made.status_code == 201, made.text
    name, next_ms = made.json()["id"], made.json()["next_unix_ms"]
    with closing(sqlite3.connect(server.state / "service.sqlite", timeout=10)) as database, database:
        # The time has come: the schedule was made a day earlier.
        earlier = (
            "UPDATE schedules SET last_unix_ms = last_unix_ms - 86400000, next_unix_ms = ?",
            (next_ms - 86_400_000,),
        )
        assert database.execute(*earlier).rowcount == 1
    deadline_s = time.monotonic() + WAIT_S
    while (found := admin.get(f"/v1/schedules/{name}").json())["submitted"] < 1:
        assert time.monotonic() < deadline_s, found
        time.sleep(0.05)
    assert found["next_unix_ms"] is None, "its one job was submitted"
    with closing(sqlite3.connect(server.state / "service.sqlite", timeout=10)) as database:
        rows = database.execute("SELECT id, idempotency_key FROM jobs WHERE schedule = ?", (name,)).fetchall()
    assert [key for _, key in rows] == [f"schedule-{name}-{next_ms // 1000 - 86_400}"]
    until(admin, rows[0][0], "done")
    assert admin.delete(f"/v1/schedules/{name}").status_code == 204
    assert admin.get("/v1/schedules").json() == {"schedules": []}
    wrong = admin.post("/v1/schedules", json={"job": job, "cron": "61 * * * *"})
    assert wrong.status_code == 422


def submitted_jobs(server: Server, name: str) -> list[str]:
    with closing(sqlite3.connect(server.state / "service.sqlite", timeout=10)) as database:
        return [row[0] for row in database.execute("SELECT id FROM jobs WHERE schedule = ? ORDER BY id", (name,))]


def test_events_submit_the_jobs_of_a_schedule(server: Server, admin: httpx.Client) -> None:
    job = {"source": str(server.data / "source"), "destination": str(server.data / "event"), "recursive": True, **SLOW}
    made = admin.post("/v1/schedules", json={"job": job, "overlap": "queue", "count": 2}).json()
    assert (made["cron"], made["next_unix_ms"]) == (None, None)
    name = made["id"]

    def happen(key: str) -> httpx.Response:
        return admin.post(f"/v1/schedules/{name}/events", headers={"Idempotency-Key": key})

    first = happen("object-1")
    assert first.status_code == 202 and first.json()["open"], first.text
    eventually(lambda: not happen("object-1").json()["open"] and submitted_jobs(server, name))
    assert happen("object-1").json()["at_unix_ms"] == first.json()["at_unix_ms"]
    for key in ("object-2", "object-3"):
        happen(key)
    eventually(lambda: not happen("object-3").json()["open"])
    assert admin.get(f"/v1/schedules/{name}").json()["queued"], "the first job has not ended"
    (job_id,) = submitted_jobs(server, name)
    admin.post(f"/v1/jobs/{job_id}/cancel")
    eventually(lambda: len(submitted_jobs(server, name)) == 2)
    admin.post(f"/v1/jobs/{submitted_jobs(server, name)[1]}/cancel")
    happen("object-4")
    eventually(lambda: "the schedule has ended" in (admin.get(f"/v1/schedules/{name}").json()["skipped"] or ""))
    assert len(submitted_jobs(server, name)) == 2, "it may submit no more"
    assert admin.delete(f"/v1/schedules/{name}").status_code == 204
    assert happen("object-5").status_code == 404


def test_a_missing_source_uses_no_further_attempts(server: Server, admin: httpx.Client) -> None:
    job_id = submit(admin, "none", server.data / "none", server.data / "x", recursive=True).json()["id"]
    deadline_s = time.monotonic() + WAIT_S
    while (found := admin.get(f"/v1/jobs/{job_id}").json())["state"] != "failed":
        assert time.monotonic() < deadline_s, found
        time.sleep(0.05)
    assert (found["attempts"], found["eta"]) == (0, None)


def test_a_restart_keeps_the_limits_and_what_runs(tmp_path: Path) -> None:
    server = serve(tmp_path)
    with server.client() as client:
        limit(client, "tenant", "default", active=1)
        first, second = (begin(client, server, f"{number}", limit_bytes_per_s=200_000) for number in range(2))
        until(client, first, "running")
        waits(client, second, "The limit of tenant default")
    server.kill()
    server.start()
    try:
        with server.client() as client:
            waits(client, second, "The limit of tenant default")
            assert client.get(f"/v1/jobs/{first}").json()["state"] == "running"
            client.delete(f"/v1/jobs/{first}")
            until(client, second, "running", "done")
    finally:
        server.kill()


def test_a_store_that_is_down_pauses_its_jobs(tmp_path: Path) -> None:
    try:
        store = versitygw()
    except InstallError as error:
        pytest.skip(str(error))
    assert store.process is not None
    S3(store.endpoint, store.access_key, store.secret_key, store.ca_file).create_bucket("bucket")
    server = serve(tmp_path, "--allow-store", "s3://bucket", **store.environment)
    try:
        with server.client() as client:
            stop(store.process)
            body = {"source": str(server.data / "source"), "destination": "s3://bucket/copy", "recursive": True}
            made = client.post("/v1/jobs", json={**body, "stall_s": 1}, headers={"Idempotency-Key": "down"})
            job_id = made.json()["id"]
            waits(client, job_id, "Store s3://bucket does not answer.")
            later = client.post(
                "/v1/jobs", json={**body, "destination": "s3://bucket/other"}, headers={"Idempotency-Key": "later"}
            )
            waits(client, later.json()["id"], "Store s3://bucket does not answer.")
            again = spawn(store.process.args, store.folder, KEYS | {"ROOT_SECRET_KEY": store.secret_key})  # type: ignore[arg-type]
            try:
                for one in (job_id, later.json()["id"]):
                    assert until(client, one, "done")["attempts"] == 0
            finally:
                stop_group(again)
    finally:
        server.kill()
        store.stop()


@pytest.mark.slow
def test_a_store_of_a_connection_that_is_down_pauses_the_jobs_of_its_tenant(tmp_path: Path) -> None:
    try:
        store = versitygw()
    except InstallError as error:
        pytest.skip(str(error))
    assert store.process is not None
    S3(store.endpoint, store.access_key, store.secret_key, store.ca_file).create_bucket("bucket")
    server = serve(tmp_path, "--allow-endpoint", store.endpoint)
    secret = {"access_key_id": store.access_key, "secret_access_key": store.secret_key}
    place = {"place": "s3://bucket/in/", "endpoint": store.endpoint, "region": "us-east-1", "secret": secret}
    jobs: dict[str, str] = {}
    clients: dict[str, httpx.Client] = {}

    def send(tenant: str, key: str, name: str) -> str:
        body = {"source": str(server.data / "source"), "destination": f"connection:{name}/{key}/", "recursive": True}
        made = clients[tenant].post("/v1/jobs", json={**body, "stall_s": 1}, headers={"Idempotency-Key": key})
        assert made.status_code == 201, made.text
        return str(made.json()["id"])

    try:
        with server.client() as admin:
            for tenant in ("lab", "other"):
                assert admin.post("/v1/tenants", json={"name": tenant}).status_code == 201
                token = admin.post("/v1/tokens", json={"tenant": tenant, "role": "tenant_admin"}).json()["token"]
                clients[tenant] = server.client(token)
                assert clients[tenant].post("/v1/connections", json={"name": "data", **place}).status_code == 201
        stop(store.process)
        for tenant in ("lab", "other"):
            jobs[tenant] = send(tenant, tenant, "data")
            waits(clients[tenant], jobs[tenant], "/bucket does not answer at http")
        with closing(sqlite3.connect(server.state / "service.sqlite")) as database:
            rows = database.execute("SELECT tenant, store FROM down_stores ORDER BY tenant").fetchall()
        assert [tenant for tenant, _ in rows] == ["lab", "other"]
        again = spawn(store.process.args, store.folder, KEYS | {"ROOT_SECRET_KEY": store.secret_key})  # type: ignore[arg-type]
        try:
            for tenant, job_id in jobs.items():
                assert until(clients[tenant], job_id, "done")["attempts"] == 0
            with closing(sqlite3.connect(server.state / "service.sqlite")) as database:
                assert database.execute("SELECT count(*) FROM down_stores").fetchone() == (0,)
        finally:
            stop_group(again)
    finally:
        for client in clients.values():
            client.close()
        server.kill()
        store.stop()


def stop(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(WAIT_S)
