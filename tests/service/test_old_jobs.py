"""A server that was updated continues the jobs that an earlier version has left in each state."""

import json
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from sqlalchemy import insert

from tests.service.old_databases import old_database, reflected
from tests.service.server import Server, eventually, submit
from tradewind.engine.jobs import new_job_id
from tradewind.service.auth import ADMIN_ID, FIRST_TENANT, SCOPES_OF_ROLE, new_token, token_digest

#: States of the jobs that an earlier version has left, and those that they come to.
STATES = {
    "waiting": "done",
    "running": "done",
    "pausing": "paused",
    "cancelling": "cancelled",
    "paused": "paused",
    "failed": "failed",
    "cancelled": "cancelled",
}
RESUMED = ("pausing", "paused", "failed")
#: Versions before jobs had owners, before they were scheduled, and before they had routes.
OLD = ["0001", pytest.param("0004", marks=pytest.mark.slow), "0016"]


@pytest.mark.parametrize("version", OLD)
def test_jobs_of_earlier_versions(tmp_path: Path, url: str | None, version: str) -> None:
    server = Server(tmp_path, *(() if url is None else ("--database", url)))
    ids = left_by(server, url, version)
    server.prepare("--migrate")
    server.start()
    try:
        with server.client() as client:
            for name, state in STATES.items():
                become(client, ids[name], state)
            for name in RESUMED:
                assert client.post(f"/v1/jobs/{ids[name]}/resume").status_code == 202
                become(client, ids[name], "done")
            again = submit(client, "waiting", server.data / "file", server.data / "waiting")
            assert (again.status_code, again.json()["id"]) == (200, ids["waiting"])
    finally:
        server.kill()
    for name in ("waiting", "running", *RESUMED):
        assert (server.data / name).read_bytes() == (server.data / "file").read_bytes()


def left_by(server: Server, url: str | None, version: str) -> dict[str, str]:
    """Write the database of a server of a version that was killed, and return the ids of its jobs by their states."""
    server.state.mkdir(mode=0o700)
    (server.data / "file").write_bytes(b"x" * 100_000)
    token = new_token()
    (server.state / "admin.token").write_text(token)
    database, ids = old_database(server.state, url, version), {name: new_job_id() for name in STATES}
    scopes = json.dumps(sorted(SCOPES_OF_ROLE["service_admin"]))
    with database.write() as connection:
        tables = reflected(connection)
        connection.execute(insert(tables["tenants"]).values(name=FIRST_TENANT, created_unix_ms=1))
        admin = {"id": ADMIN_ID, "tenant": FIRST_TENANT, "name": "admin.token", "role": "service_admin"}
        known = {"digest": token_digest(token), "scopes": scopes, "created_unix_ms": 1}
        connection.execute(insert(tables["tokens"]).values(**admin, **known))
        for state, job_id in ids.items():
            connection.execute(insert(tables["jobs"]).values(job(server.data, job_id, state, version)))
    database.close()
    return ids


def job(data: Path, job_id: str, state: str, version: str) -> dict[str, object]:
    """Return the row of a job as the first version wrote it."""
    body = {"source": str(data / "file"), "destination": str(data / state), "verb": "cp", "recursive": False}
    body |= {"delete": False, "verify": "auto", "limit_bytes_per_s": None, "stall_s": 60}
    request = {**body, "destination": [body["destination"]]}
    row = {"id": job_id, "tenant": FIRST_TENANT, "idempotency_key": state, "state": state}
    row |= {"request": json.dumps(request), "owned": json.dumps(request["destination"])}
    row |= {"request_digest": sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()}
    times = dict.fromkeys(("not_before_unix_ms", "attempts", "created_unix_ms", "updated_unix_ms"), 0)
    owners = {} if version < "0002" else {"owner": "killed-1-x", "epoch": 1, "lease_unix_ms": 1}
    return {**row, **times, **owners}


def become(client: httpx.Client, job_id: str, state: str) -> None:
    """Wait until a job is in a state."""
    eventually(lambda: client.get(f"/v1/jobs/{job_id}").json()["state"] == state)
