"""Jobs through connections: with the tenant's own keys and no others, and no secret anywhere in clear."""

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import insert, select

from testbed.s3 import S3, S3Error
from testbed.servers import InstallError, versitygw
from testbed.servers import Server as Store
from tests.service.local import new_database
from tests.service.server import Server, eventually, until
from tradewind.service.connections import ConnectionBook, proven_connections
from tradewind.service.sealing import Sealer
from tradewind.service.settings import ServiceSettings
from tradewind.service.tables import connections, tenants

#: Keys of the server itself. No job of a connection may use them.
SERVER_KEYS = {"AWS_ACCESS_KEY_ID": "the-server", "AWS_SECRET_ACCESS_KEY": "the-servers-own-secret"}
GOOGLE_SECRET = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0LW9mLWdvb2dsZQ==\n-----END PRIVATE KEY-----\n"
AZURE_KEY = "c2VjcmV0LW9mLWF6dXJl"


class World:
    """A service, two stores with different keys, and tokens of two tenants."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        try:
            self.stores = [stack.enter_context(closing(_Stopped(versitygw(secret=f"secret-{n}" * 4)))) for n in "ab"]
        except InstallError as error:
            pytest.skip(str(error))
        for store in self.clients:
            store.create_bucket("bucket")
        endpoints = [word for store in self.stores for word in ("--allow-endpoint", store.server.endpoint)]
        wrong = self.stores[1].server.endpoint
        self.server = Server(
            folder,
            *endpoints,
            *("--allow-store", "s3://servers-own"),
            **SERVER_KEYS,
            AWS_ENDPOINT_URL_S3=wrong,
            AWS_PROFILE="",
        )
        self.server.start()
        stack.callback(self.server.kill)
        self.tokens: dict[tuple[str, str], str] = {}
        with self.server.client() as admin:
            for tenant in ("mine", "other"):
                admin.post("/v1/tenants", json={"name": tenant})
                for role in ("viewer", "operator", "tenant_admin"):
                    made = admin.post("/v1/tokens", json={"tenant": tenant, "role": role}).json()
                    self.tokens[tenant, role] = made["token"]

    @property
    def clients(self) -> list[S3]:
        return [S3(s.server.endpoint, s.server.access_key, s.server.secret_key) for s in self.stores]

    def client(self, tenant: str = "mine", role: str = "tenant_admin") -> httpx.Client:
        return self.server.client(self.tokens[tenant, role])

    def body(self, name: str, number: int, /, **others: Any) -> dict[str, Any]:
        store = self.stores[number].server
        secret = {"access_key_id": store.access_key, "secret_access_key": store.secret_key}
        place = {"place": "s3://bucket/in/", "endpoint": store.endpoint, "region": "us-east-1"}
        return {"name": name, **place, "secret": secret} | others


class _Stopped:
    def __init__(self, server: Store) -> None:
        self.server = server

    def close(self) -> None:
        self.server.stop()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        world = World(tmp_path_factory.mktemp("connections"), stack)
        (world.server.data / "source").mkdir()
        for number in range(3):
            (world.server.data / "source" / f"{number}").write_bytes(bytes([number]) * 1000)
        with world.client() as admin:
            for name, number in (("first", 0), ("second", 1)):
                made = admin.post("/v1/connections", json=world.body(name, number))
                assert made.status_code == 201, made.text
        yield world


def send(client: httpx.Client, key: str, source: Any, destination: Any, **others: Any) -> httpx.Response:
    body = {"source": str(source), "destination": destination, "recursive": True, **others}
    return client.post("/v1/jobs", json=body, headers={"Idempotency-Key": key})


def test_a_job_copies_between_two_connections_with_different_keys(world: World) -> None:
    with world.client(role="operator") as client:
        there = send(client, "up", world.server.data / "source", "connection:first/x/").json()
        assert there["request"]["destination"] == ["s3://bucket/in/x/"]
        named = there["request"]["connections"]
        assert (named["source"], named["destination"]) == (None, ["first"])
        assert named["endpoints"] == {"first": world.stores[0].server.endpoint}
        until(client, there["id"], "done")
        across = send(client, "across", "connection:first/x/", "connection:second/y/").json()
        until(client, across["id"], "done")
        quote = client.post(
            "/v1/quotes",
            json={"source": "connection:second/y/", "destination": "connection:first/z/", "recursive": True},
        )
        assert quote.json()["objects"] == 3, quote.text
        body = {"quote": quote.json()["id"]}
        quoted = client.post("/v1/jobs", json=body, headers={"Idempotency-Key": "quoted"}).json()
        until(client, quoted["id"], "done")
    first, second = world.clients
    assert first.get("bucket", "in/x/1") == second.get("bucket", "in/y/1") == first.get("bucket", "in/z/1")


def test_a_key_that_cannot_write_does_not_block_another_tenant(world: World) -> None:
    """Its job waits for a source, at a place that the other tenant writes to."""
    closed = {"kind": "store-out", "name": "local", "reason": "repair", "refuses_jobs": False, "stops_jobs": False}
    secret = {"access_key_id": "testbed", "secret_access_key": "not-the-secret-of-the-store"}
    with world.client("other") as rival, world.client() as client, world.server.client() as admin:
        first = send(client, "proof", world.server.data / "source", "connection:first/proof/").json()["id"]
        until(client, first, "done")
        made = rival.post("/v1/connections", json=world.body("bad", 0, secret=secret))
        assert made.status_code == 201, made.text
        ban = admin.post("/v1/bans", json=closed).json()["id"]
        wrong = send(rival, "wrong", world.server.data / "source", "connection:bad/proof/").json()["id"]
        mine = send(client, "right", "connection:second/none/", "connection:first/proof/").json()["id"]
        assert rival.get(f"/v1/jobs/{wrong}").json()["state"] == "waiting"
        until(client, mine, "done", "failed", "running")
        admin.delete(f"/v1/bans/{ban}")
        until(rival, wrong, "failed")
        assert rival.delete("/v1/connections/bad").status_code == 204


def test_what_a_guest_says_it_sent_proves_no_key(tmp_path: Path) -> None:
    settings = ServiceSettings(state=tmp_path / "state")
    database = new_database(tmp_path)
    book = ConnectionBook(database, Sealer.of(settings), settings)
    with database.write() as connection:
        tenant = connection.execute(select(tenants.c.name)).scalar_one()
        for name in ("said", "seen"):
            row = {"tenant": tenant, "name": name, "place": "s3://bucket/", "sealed": "", "created_unix_ms": 0}
            connection.execute(insert(connections).values(**row, replaced_unix_ms=0))
    for name, side in (("said", "source"), ("seen", None)):
        written = {"destination": ["s3://bucket/x"], "connections": {"source": None, "destination": [name]}}
        book.note_written(tenant, written if side is None else {**written, "guest": {"side": side}})
    with database.read() as connection:
        assert proven_connections(connection, 0, [tenant]) == {(tenant, "seen")}
    database.close()


def test_a_wrong_key_fails_with_one_line_that_names_the_connection(world: World) -> None:
    secret = {"access_key_id": "testbed", "secret_access_key": "not-the-secret-of-the-store"}
    with world.client() as client:
        there = send(client, "to-be-read", world.server.data / "source", "connection:first/to-be-read/").json()["id"]
        until(client, there, "done")
        made = client.post("/v1/connections", json=world.body("wrong", 0, secret=secret))
        assert made.status_code == 201, made.text
        source = "connection:wrong/to-be-read/"
        job = send(client, "wrong", source, str(world.server.data / "wrong")).json()["id"]
        found = until(client, job, "failed")
        assert found["error"].startswith("connection wrong: ") and "\n" not in found["error"]
        right = {"access_key_id": "testbed", "secret_access_key": world.stores[0].server.secret_key}
        assert client.put("/v1/connections/wrong", json=right).status_code == 200
        client.post(f"/v1/jobs/{job}/resume")
        until(client, job, "done")


def test_another_tenant_cannot_use_or_see_a_connection(world: World) -> None:
    with world.client("other") as client:
        for path in ("first", "unknown"):
            answer = client.get(f"/v1/connections/{path}")
            assert (answer.status_code, answer.json()["detail"]) == (404, "no such connection")
        refused = [send(client, "k", f"connection:{name}/x/", "/nowhere") for name in ("first", "unknown")]
        details = [one.json()["detail"].replace("unknown", "first") for one in refused]
        assert refused[0].status_code == 422 and details[0] == details[1]
        assert client.get("/v1/connections").json()["connections"] == []
        mine = client.post("/v1/connections", json=world.body("first", 1))
        assert mine.status_code == 201, "names of other tenants are not compared"
    with world.client() as client:
        assert client.get("/v1/connections/first").json()["endpoint"] == world.stores[0].server.endpoint


def test_a_job_with_a_connection_has_none_of_the_servers_credentials(world: World) -> None:
    """The server's endpoint and keys are those of another store. A job that had them would be refused."""
    with world.client(role="operator") as client:
        mixed = send(client, "mixed", "connection:first/x/", "s3://servers-own/x/")
        assert mixed.status_code == 422 and "server's credentials" in mixed.json()["detail"]
        until(client, send(client, "kept", world.server.data / "source", "connection:first/kept/").json()["id"], "done")
        slow = send(client, "slow", "connection:first/kept/", str(world.server.data / "slow"), limit_bytes_per_s=500)
        until(client, slow.json()["id"], "running", "done")
        while not (found := [env for env in environments(world.server) if b"/proc/self/fd/" in env]):
            assert client.get(f"/v1/jobs/{slow.json()['id']}").json()["state"] in ("waiting", "running")
        for env in found:
            assert b"the-server" not in env and b"secret" not in env and b"AWS_ENDPOINT_URL" not in env
        client.delete(f"/v1/jobs/{slow.json()['id']}")


def environments(server: Server) -> list[bytes]:
    """Return the environments of the server's children."""
    assert server.process is not None
    found = []
    for children in Path(f"/proc/{server.process.pid}/task").glob("*/children"):
        for child in children.read_text().split():
            try:
                found.append(Path(f"/proc/{child}/environ").read_bytes())
            except OSError:
                continue
    return found


def test_a_connection_in_use_is_not_deleted(world: World) -> None:
    with world.client() as client:
        client.post("/v1/connections", json=world.body("used", 0))
        job = {"source": str(world.server.data / "source"), "destination": "connection:used/timed/", "recursive": True}
        made = client.post("/v1/schedules", json={"job": job, "cron": "0 0 1 1 *"})
        assert made.status_code == 201, made.text
        refused = client.delete("/v1/connections/used")
        assert refused.status_code == 409 and made.json()["id"] in refused.json()["detail"]
        client.delete(f"/v1/schedules/{made.json()['id']}")
        assert client.delete("/v1/connections/used").status_code == 204
        assert client.get("/v1/connections/used").status_code == 404


def test_a_connection_of_a_schedule_that_only_events_start_is_not_deleted(world: World) -> None:
    """Such a schedule has no next time. Its next event would get no job."""
    with world.client() as client:
        assert client.post("/v1/connections", json=world.body("awaited", 0)).status_code == 201
        job = {"source": "connection:awaited/from", "destination": "connection:awaited/to", "recursive": True}
        body = {"job": job, "count": 1}
        made = client.post("/v1/schedules", json=body).json()
        refused = client.delete("/v1/connections/awaited")
        assert (refused.status_code, f"schedule {made['id']}" in refused.json()["detail"]) == (409, True)
        # It submits no more jobs after the first.
        event = client.post(f"/v1/schedules/{made['id']}/events", headers={"Idempotency-Key": "one"})
        assert event.status_code == 202
        eventually(lambda: client.get(f"/v1/schedules/{made['id']}").json()["submitted"] == 1)
        (latest,) = client.get("/v1/jobs", params={"limit": 1}).json()["jobs"]
        until(client, latest["id"], "failed")
        assert client.delete("/v1/connections/awaited").status_code == 204
        client.delete(f"/v1/schedules/{made['id']}")


def test_jobs_to_one_place_wait_for_each_other_and_jobs_to_two_servers_do_not(world: World) -> None:
    """The second store is also that of the server's own settings."""
    with (
        world.client(role="operator") as client,
        world.client("other", "operator") as other,
        world.client("other") as admin,
    ):
        slow = {"limit_bytes_per_s": 500}
        one = send(client, "own1", world.server.data / "source", "connection:second/own/", **slow).json()
        until(client, one["id"], "running")
        admin.post("/v1/connections", json=world.body("elsewhere", 0))
        two = send(other, "own2", world.server.data / "source", "connection:elsewhere/own/").json()
        until(other, two["id"], "done")
        admin.post("/v1/connections", json=world.body("there", 1))
        three = send(other, "own3", world.server.data / "source", "connection:there/own/").json()
        assert until(other, three["id"], "waiting")
        client.delete(f"/v1/jobs/{one['id']}")
        until(other, three["id"], "done")


def test_a_connection_that_was_made_again_for_another_server_is_not_used(world: World) -> None:
    with world.client() as client:
        client.post("/v1/connections", json=world.body("again", 0))
        data = str(world.server.data / "again")
        job = send(client, "again", "connection:again/missing/", data, recursive=False).json()["id"]
        until(client, job, "failed")
        client.delete("/v1/connections/again")
        client.post("/v1/connections", json=world.body("again", 1))
        answer = client.post(f"/v1/jobs/{job}/resume")
        assert answer.status_code in (409, 422) and "another endpoint" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"endpoint": "http://169.254.169.254"}, 422),
        ({"endpoint": "http://127.0.0.1:1"}, 422),
        ({"endpoint": "https://user:word@example.org"}, 422),
        ({"place": "/etc/"}, 422),
        ({"place": "s3://bucket@host/x"}, 422),
        ({"place": "s3://bucket/../x/"}, 422),
        ({"place": "az://evil.example.org/container/"}, 422),
        ({"place": "r2://evil/bucket/"}, 422),
        ({"region": "a.example.org/"}, 422),
        ({"region": "site:nowhere"}, 422),
        ({"region": "us-esat-1", "endpoint": None}, 422),
        ({"secret": {"access_key_id": "a", "secret_access_key": "b\n[default]"}}, 422),
        ({"secret": {"account_key": AZURE_KEY}}, 422),
        ({"secret": {"access_key_id": "a", "secret_access_key": "unknown-member", "password": "p"}}, 422),
        ({"place": "gs://bucket/", "secret": {"service_account": '{"type": "external_account"}'}}, 422),
        ({"name": "first"}, 409),
    ],
)
def test_what_is_refused(world: World, change: dict[str, Any], status: int) -> None:
    with world.client() as client:
        answer = client.post("/v1/connections", json=world.body("refused", 0, **change))
    assert answer.status_code == status, answer.text
    assert "secret-" not in answer.text and "unknown-member" not in answer.text


def make_connections_to_google_and_azure(client: httpx.Client, suffix: str) -> None:
    account = {"type": "service_account", "client_email": "a@b", "private_key": GOOGLE_SECRET, "token_uri": "http://x"}
    for name, place, secret in (
        ("google", "gs://bucket/", {"service_account": json.dumps(account)}),
        ("azure", "az://account/container/p/", {"account_key": AZURE_KEY}),
        ("signed", "az://account/container/", {"sas": "?sv=2024&sig=secret-of-sas"}),
    ):
        body = {"name": f"{name}-{suffix}", "place": place, "secret": secret}
        made = client.post("/v1/connections", json=body)
        assert made.status_code == 201 and made.json()["kind"] == place[:2], made.text


def test_google_and_azure_keep_only_what_is_needed(world: World) -> None:
    with world.client() as client:
        make_connections_to_google_and_azure(client, "made")
        both = send(client, "both", "connection:azure-made/x/", "connection:signed-made/x/")
        assert both.status_code == 422 and "one connection to Azure" in both.json()["detail"]


def test_no_secret_is_anywhere_in_clear(world: World) -> None:
    refused = {"access_key_id": "testbed", "secret_access_key": "a-secret-that-is-refused"}
    with world.client() as client:
        make_connections_to_google_and_azure(client, "grep")
        client.post("/v1/connections", json=world.body("refused", 0, secret=refused))
        for key, source, state in (
            ("good", world.server.data / "source", "done"),
            ("bad", "connection:refused/x", "failed"),
        ):
            job = send(client, key, source, "connection:second/grep/").json()["id"]
            until(client, job, state)
    secrets = [*(store.server.secret_key for store in world.stores), "a-secret-that-is-refused"]
    secrets += ["c2VjcmV0LW9mLWdvb2dsZQ", AZURE_KEY, "secret-of-sas"]
    with world.client() as client, world.client(role="viewer") as viewer:
        names = [one["name"] for one in viewer.get("/v1/connections").json()["connections"]]
        assert {"second", "refused", "google-grep"} <= set(names)
        assert viewer.put("/v1/connections/first", json={}).status_code == 403
        paths = ["connections", *(f"connections/{name}" for name in names), "audit?limit=200", "jobs"]
        jobs = client.get("/v1/jobs").json()["jobs"]
        paths += [f"jobs/{job['id']}{end}" for job in jobs for end in ("", "/receipt", "/objects")]
        answers = "".join(client.get(f"/v1/{path}").text for path in paths)
        assert "connection.make" in answers
    with closing(sqlite3.connect(world.server.state / "service.sqlite")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    kept = [path for path in world.server.state.rglob("*") if path.is_file()]
    content = answers.encode() + world.server.log.encode() + b"".join(path.read_bytes() for path in kept)
    shown = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, check=True).stdout
    for secret in secrets:
        assert secret.encode() not in content, secret
    assert world.stores[0].server.secret_key.encode() not in shown


def test_no_core_file_can_have_a_secret(world: World) -> None:
    assert world.server.process is not None
    limits = Path(f"/proc/{world.server.process.pid}/limits").read_text().splitlines()
    (core,) = (line for line in limits if line.startswith("Max core file size"))
    assert core.split()[4:6] == ["0", "0"]


def test_a_sealed_secret_serves_only_its_place(world: World) -> None:
    with world.client() as client:
        client.post("/v1/connections", json=world.body("moved", 0))
        with closing(sqlite3.connect(world.server.state / "service.sqlite")) as database:
            database.execute(
                "UPDATE connections SET endpoint = ? WHERE name = 'moved'", (world.stores[1].server.endpoint,)
            )
            database.commit()
        job = send(client, "moved", "connection:moved/x/", str(world.server.data / "moved")).json()["id"]
        assert "cannot be opened" in until(client, job, "failed")["error"]


def test_the_stores_of_this_test_have_different_keys(world: World) -> None:
    first, second = (store.server for store in world.stores)
    world.clients[0].put("bucket", "own", b"1")
    with pytest.raises(S3Error):
        S3(first.endpoint, second.access_key, second.secret_key).get("bucket", "own")
