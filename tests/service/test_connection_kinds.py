"""Jobs through connections of each kind of store: Google, Azure and R2, at servers that speak their APIs."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from testbed.azure import Azure
from testbed.servers import InstallError, azurite, gcs, versitygw
from testbed.servers import Server as Store
from tests.service.server import Server, until

FILES = 3
Starter = Callable[[], Store]


def service_account() -> str:
    """Return the file of a service account with a new key. It signs its own tokens, so no server is asked for one."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    account = {"type": "service_account", "client_email": "lab@example.org", "private_key": pem, "private_key_id": "1"}
    return json.dumps({**account, "token_uri": "http://127.0.0.1:9/never-asked"})


def google(store: Store) -> dict[str, Any]:
    httpx.put(f"{store.endpoint}/lab", headers={"Authorization": "Bearer x"}).raise_for_status()
    return {"place": "gs://lab/in/", "endpoint": store.endpoint, "secret": {"service_account": service_account()}}


def azure(store: Store) -> dict[str, Any]:
    Azure(store.environment["AZURE_STORAGE_ENDPOINT"], store.access_key, store.secret_key).create_container("lab")
    place = f"az://{store.access_key}/lab/in/"
    endpoint = store.environment["AZURE_STORAGE_ENDPOINT"]
    return {"place": place, "endpoint": endpoint, "secret": {"account_key": store.secret_key}}


def r2(store: Store) -> dict[str, Any]:
    (store.folder / "data" / "lab").mkdir()
    secret = {"access_key_id": store.access_key, "secret_access_key": store.secret_key}
    return {"place": "r2://0123456789abcdef0123456789abcdef/lab/in/", "endpoint": store.endpoint, "secret": secret}


KINDS: dict[str, tuple[Starter, Callable[[Store], dict[str, Any]]]] = {
    "gs": (gcs, google),
    "az": (azurite, azure),
    "r2": (partial(versitygw, region="auto"), r2),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, dict[str, dict[str, Any]]]]:
    with ExitStack() as stack:
        bodies: dict[str, dict[str, Any]] = {}
        allowed: list[str] = []
        for kind, (start, body) in KINDS.items():
            try:
                store = start()
            except InstallError as error:
                pytest.skip(str(error))
            stack.callback(store.stop)
            bodies[kind] = body(store)
            allowed += ["--allow-endpoint", store.endpoint]
        server = Server(tmp_path_factory.mktemp("kinds"), *allowed)
        (server.data / "source").mkdir()
        for number in range(FILES):
            (server.data / "source" / f"{number}").write_bytes(bytes([number]) * 100_000)
        server.start()
        stack.callback(server.kill)
        with server.client() as admin:
            for kind, connection in bodies.items():
                made = admin.post("/v1/connections", json={"name": kind, **connection})
                assert made.status_code == 201, made.text
        yield server, bodies


def send(admin: httpx.Client, source: str, destination: str, **others: Any) -> str:
    body = {"source": source, "destination": destination, "recursive": True, **others}
    made = admin.post("/v1/jobs", json=body, headers={"Idempotency-Key": f"{source}-{destination}".replace("/", "-")})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_job_writes_and_reads_a_connection(world: tuple[Server, dict[str, dict[str, Any]]], kind: str) -> None:
    server, _ = world
    with server.client() as admin:
        up = until(admin, send(admin, str(server.data / "source"), f"connection:{kind}/x/"), "done", "failed")
        assert (up["state"], up["error"]) == ("done", None)
        assert up["counts"]["objects_done"] == FILES
        quote = {"source": f"connection:{kind}/x/", "destination": str(server.data / "q"), "recursive": True}
        assert admin.post("/v1/quotes", json=quote).json()["objects"] == FILES
        down = until(admin, send(admin, f"connection:{kind}/x/", str(server.data / kind)), "done", "failed")
        assert (down["state"], down["error"]) == ("done", None)
        for number in range(FILES):
            assert (server.data / kind / f"{number}").read_bytes() == bytes([number]) * 100_000


@pytest.mark.slow
@pytest.mark.parametrize(("source", "destination"), [("gs", "az"), ("az", "r2"), ("r2", "gs")])
def test_a_job_copies_between_kinds(
    world: tuple[Server, dict[str, dict[str, Any]]], source: str, destination: str
) -> None:
    server, _ = world
    with server.client() as admin:
        until(admin, send(admin, str(server.data / "source"), f"connection:{source}/from/"), "done")
        across = send(admin, f"connection:{source}/from/", f"connection:{destination}/to-{source}/")
        found = until(admin, across, "done", "failed")
        assert (found["state"], found["error"]) == ("done", None)
        back = send(admin, f"connection:{destination}/to-{source}/", str(server.data / f"back-{source}"))
        until(admin, back, "done")
        for number in range(FILES):
            assert (server.data / f"back-{source}" / f"{number}").read_bytes() == bytes([number]) * 100_000


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["az", "r2"])
def test_a_wrong_key_is_named(world: tuple[Server, dict[str, dict[str, Any]]], kind: str) -> None:
    server, bodies = world
    wrong = {"az": {"account_key": "c2VjcmV0"}, "r2": {"access_key_id": "x", "secret_access_key": "y"}}[kind]
    with server.client() as admin:
        made = admin.post("/v1/connections", json={**bodies[kind], "name": f"wrong-{kind}", "secret": wrong})
        assert made.status_code == 201, made.text
        job_id = send(admin, str(server.data / "source"), f"connection:wrong-{kind}/x/")
        found = until(admin, job_id, "failed")
        assert found["error"].startswith(f"connection wrong-{kind}: ") and "\n" not in found["error"]
