"""Information about other tenants, tokens that are replaced, and an audit log that does not change."""

import sqlite3
import stat
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from tests.service.local import new_database
from tests.service.server import Server, get, submit, until, until_waiting_for_another
from tradewind.service.auth import SCOPES_OF_ROLE
from tradewind.service.jobs import STATES
from tradewind.service.limits import TOKENS_PER_TENANT_MAX
from tradewind.service.problems import ApiProblem
from tradewind.service.quotes import quote_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("tenancy"))
    for number in range(8):
        path = server.data / "source" / f"{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(500_000))
    server.start()
    with server.client() as admin:
        for name in ("mine", "other"):
            admin.post("/v1/tenants", json={"name": name})
    yield server
    server.kill()


def made_token(server: Server, tenant: str, role: str) -> dict[str, Any]:
    with server.client() as admin:
        found: dict[str, Any] = admin.post("/v1/tokens", json={"role": role, "tenant": tenant}).json()
    return found


def test_a_job_that_waits_for_another_tenant_learns_only_that(server: Server) -> None:
    mine, other = (server.client(made_token(server, name, "operator")["token"]) for name in ("mine", "other"))
    slow = {"recursive": True, "limit_bytes_per_s": 200_000}
    with mine, other:
        first = submit(mine, "k", server.data / "source", server.data / "shared" / "deep", **slow).json()["id"]
        until(mine, first, "running")
        second = submit(other, "k", server.data / "source", server.data / "shared", recursive=True)
        assert second.status_code == 201, "the key of another tenant is not compared"
        shown = until_waiting_for_another(other, second.json()["id"])
        assert shown["waiting"] == "Another job writes to the same place first."
        text = other.get("/v1/jobs").text
        assert first not in text
        assert "mine" not in text.replace(str(server.data), "")
        mine.delete(f"/v1/jobs/{first}")
        other.delete(f"/v1/jobs/{shown['id']}")


def test_a_token_may_have_any_one_scope_of_its_role(server: Server) -> None:
    with server.client() as admin:
        for role, scopes in SCOPES_OF_ROLE.items():
            for scope in scopes:
                made = admin.post("/v1/tokens", json={"role": role, "scopes": [scope]})
                assert made.status_code == 201, made.text
                assert made.json()["scopes"] == [scope]
                admin.delete(f"/v1/tokens/{made.json()['id']}")


def test_a_webhook_may_be_told_of_any_state(server: Server) -> None:
    with server.client() as admin:
        made = admin.post("/v1/webhooks", json={"url": "https://example.org/hook", "states": list(STATES)})
        assert made.status_code == 201, made.text
        assert sorted(made.json()["states"]) == sorted(STATES)
        admin.delete(f"/v1/webhooks/{made.json()['id']}")


def test_a_token_is_rotated_with_an_overlap_or_at_once(server: Server) -> None:
    old = made_token(server, "mine", "viewer")
    with server.client(made_token(server, "mine", "tenant_admin")["token"]) as boss:
        overlapping = boss.post(f"/v1/tokens/{old['id']}/rotate", json={"overlap_s": 60}).json()
        assert works(server, old["token"])
        assert works(server, overlapping["token"])
        assert (overlapping["role"], overlapping["scopes"]) == ("viewer", old["scopes"])
        last = boss.post(f"/v1/tokens/{overlapping['id']}/rotate", json={}).json()
        assert not works(server, overlapping["token"])
        assert works(server, last["token"])
        assert boss.post(f"/v1/tokens/{overlapping['id']}/rotate", json={}).status_code == 404


def test_rotation_makes_no_more_tokens_than_a_tenant_may_have(server: Server) -> None:
    """With an overlap, each rotation leaves one more that is valid."""
    with server.client() as admin:
        admin.post("/v1/tenants", json={"name": "full"})
    with server.client(made_token(server, "full", "tenant_admin")["token"]) as boss:
        one = boss.post("/v1/tokens", json={"role": "viewer"}).json()
        with closing(sqlite3.connect(server.state / "service.sqlite", timeout=30)) as database, database:
            names = "tenant, name, role, scopes, created_unix_ms, expires_unix_ms"
            copies = f"SELECT printf('c%d', value), printf('c%d', value), {names} FROM tokens, counted WHERE id = ?"
            many = "WITH RECURSIVE counted(value) AS (SELECT 3 UNION ALL SELECT value + 1 FROM counted WHERE value < ?)"
            statement = f"{many} INSERT INTO tokens (id, digest, {names}) {copies}"
            database.execute(statement, (TOKENS_PER_TENANT_MAX, one["id"]))
        rotation = f"/v1/tokens/{one['id']}/rotate"
        assert boss.post("/v1/tokens", json={"role": "viewer"}).status_code == 409
        assert boss.post(rotation, json={"overlap_s": 60}).status_code == 409
        assert boss.post(rotation, json={}).status_code == 201, "the old one ends at once"


def test_the_admin_token_is_replaced_while_the_server_runs(server: Server) -> None:
    old = (server.state / "admin.token").read_text().strip()
    done = subprocess.run(server.command("--new-admin-token"), capture_output=True, text=True, check=True)
    path = server.state / "admin.token"
    new = path.read_text().strip()
    assert done.stdout == f"new admin token in {path}\n"
    assert (works(server, old), works(server, new)) == (False, True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with server.client() as admin:
        entry = admin.get("/v1/audit", params={"action": "token.rotate"}).json()["entries"][0]
    assert (entry["token"], entry["target"]) == ("service", "admin")
    assert new not in done.stdout + done.stderr + server.log


def works(server: Server, token: str) -> bool:
    return get(f"{server.url}/v1/jobs", headers={"Authorization": f"Bearer {token}"}).status_code == 200


def test_a_refused_path_is_recorded_as_it_was_sent(server: Server) -> None:
    with server.client(made_token(server, "other", "viewer")["token"]) as viewer:
        assert viewer.delete("/v1/tokens/a%00%0Ab").status_code == 403
    with server.client(made_token(server, "other", "tenant_admin")["token"]) as boss:
        found = boss.get("/v1/audit", params={"action": "refused"}).json()["entries"]
    assert "DELETE /v1/tokens/a%00%0Ab" in [entry["target"] for entry in found]


@pytest.mark.parametrize("end", ["revoked_unix_ms = 1", "digest = 'that of another token'"])
def test_requests_that_wait_while_their_token_ends_make_nothing_that_outlives_it(server: Server, end: str) -> None:
    """A thief who sends many requests at once would otherwise keep a token that was made just after the end of his.

    The token of the server gets another digest when it is replaced.
    """
    with server.client() as admin:
        stolen, other = (admin.post("/v1/tokens", json={"role": "tenant_admin"}).json() for _ in range(2))
    secret = {"access_key_id": "key", "secret_access_key": "secret"}
    job = {"source": str(server.data / "a"), "destination": str(server.data / "b")}
    bodies: dict[str, dict[str, Any]] = {
        "/v1/tokens": {"role": "tenant_admin"},
        f"/v1/tokens/{other['id']}/rotate": {},
        "/v1/webhooks": {"url": "https://example.org/hook", "states": ["done"]},
        "/v1/connections": {"name": "thief", "place": "s3://bucket/", "secret": secret},
        "/v1/schedules": {"job": job, "cron": "0 0 1 1 *"},
    }
    with (
        closing(sqlite3.connect(server.state / "service.sqlite", isolation_level=None)) as database,
        server.client(stolen["token"]) as thief,
        ThreadPoolExecutor(len(bodies)) as pool,
    ):
        database.execute("BEGIN IMMEDIATE")
        sent = [pool.submit(thief.post, path, json=body) for path, body in bodies.items()]
        time.sleep(1.0)  # All wait to write by then. One that comes later is refused anyway.
        database.execute(f"UPDATE tokens SET {end} WHERE id = ?", (stolen["id"],))
        database.execute("COMMIT")
        assert [one.result().status_code for one in sent] == [401] * len(bodies)


def test_all_tokens_are_revoked_except_higher_ones(server: Server) -> None:
    with server.client() as admin:
        admin.post("/v1/tenants", json={"name": "third"})
    higher, viewer, boss = (made_token(server, "third", role) for role in ("service_admin", "viewer", "tenant_admin"))
    elsewhere = made_token(server, "mine", "viewer")
    with server.client(boss["token"]) as client:
        for change in (client.delete, lambda url: client.post(f"{url}/rotate", json={})):
            assert change(f"/v1/tokens/{higher['id']}").status_code == 403
        assert client.post("/v1/tokens/revoke-all").json() == {"revoked": 1}
        entries = client.get("/v1/audit").json()["entries"]
        refused = client.get("/v1/audit", params={"action": "refused"}).json()["entries"]
    assert not works(server, viewer["token"])
    assert works(server, boss["token"])
    assert works(server, higher["token"])
    assert works(server, elsewhere["token"])
    assert entries[0]["action"] == "token.revoke-all"
    assert [entry["target"].split(" ")[0] for entry in refused] == ["POST", "DELETE"]
    assert [entry["token"] for entry in entries if entry["action"] == "token.make"] == ["service"] * 3


def test_refusals_are_recorded_but_do_not_fill_the_log(server: Server) -> None:
    viewer = made_token(server, "mine", "viewer")
    with server.client(viewer["token"]) as client:
        for _ in range(40):
            assert client.post("/v1/tenants", json={"name": "x"}).status_code == 403
    with server.client(made_token(server, "mine", "tenant_admin")["token"]) as boss:
        found = boss.get("/v1/audit", params={"action": "refused", "limit": 200}).json()["entries"]
    assert 1 <= len([entry for entry in found if entry["token"] == viewer["id"]]) <= 25


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET action = 'x'",
        "DELETE FROM audit",
        "INSERT OR REPLACE INTO audit SELECT * FROM audit LIMIT 1",
    ],
)
def test_the_audit_log_does_not_change(server: Server, statement: str) -> None:
    with closing(sqlite3.connect(server.state / "service.sqlite")) as database:
        before = database.execute("SELECT * FROM audit WHERE number = 1").fetchall()
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            database.execute(statement)
        assert database.execute("SELECT * FROM audit WHERE number = 1").fetchall() == before


@pytest.mark.slow  # Tokens of streams are checked every 5 s.
def test_a_stream_ends_when_its_token_is_revoked(server: Server) -> None:
    reader, admin_of_mine = made_token(server, "mine", "viewer"), made_token(server, "mine", "tenant_admin")
    with server.client(reader["token"]) as client, server.client(admin_of_mine["token"]) as admin:
        words = {"recursive": True, "limit_bytes_per_s": 1_000}
        job = submit(admin, "stream", server.data / "source", server.data / "streamed", **words).json()["id"]
        until(admin, job, "running")
        with client.stream("GET", f"/v1/jobs/{job}/events", timeout=30) as stream:
            lines = stream.iter_lines()
            next(lines)
            assert admin.delete(f"/v1/tokens/{reader['id']}").status_code == 204
            assert client.get("/v1/me").status_code == 401
            assert list(lines) is not None, "the stream has ended"
        assert admin.get(f"/v1/jobs/{job}").json()["state"] == "running"
        admin.post(f"/v1/jobs/{job}/cancel")


def test_a_quote_of_another_tenant_is_not_even_read(tmp_path: Path) -> None:
    """The time of the answer would show that it exists."""
    database, asked = new_database(tmp_path), []
    with database.read() as connection:
        event.listen(connection, "before_cursor_execute", lambda *found: asked.append(found[3]))
        with pytest.raises(ApiProblem, match="no such quote"):
            quote_of(connection, "quote-1", "mine")
    database.close()
    assert asked[-1:] == [("quote-1", "mine")], asked
