"""A job that uses the operator's own keys: its tenant reads no words of the store, which may name the account."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from testbed.faults.http import HttpProxy
from testbed.faults.rules import Answer, Request, Rule
from testbed.s3 import S3
from testbed.servers import InstallError, versitygw
from tests.service.guest_hosts import tradewind
from tests.service.server import Server, until

ARN = "arn:aws:iam::123456789012:user/operator"
WORDS = f"User: {ARN} is not authorized to perform: s3:PutObject (with an explicit deny)"
#: Words that no tenant may read: the account, and where the operator's store is.
SECRETS = ("123456789012", "operator (", "127.0.0.1", "localhost")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tuple[HttpProxy, Server]]:
    """Return the faults of a store, and a server with keys of its own for it."""
    try:
        real = versitygw()
    except InstallError as error:
        pytest.skip(str(error))
    with ExitStack() as stack:
        stack.callback(real.stop)
        proxy = HttpProxy(real.endpoint)
        stack.callback(proxy.stop)
        environment = {**real.environment, "AWS_ENDPOINT_URL_S3": proxy.endpoint}
        allowed = "--allow-store", "s3://bucket", "--site", "store=s3://bucket"
        server = Server(tmp_path, *allowed, **environment)
        (server.data / "source").mkdir()
        for number in range(3):
            (server.data / "source" / str(number)).write_bytes(os.urandom(1000))
        S3(real.endpoint, real.access_key, real.secret_key).create_bucket("bucket")
        server.start()
        stack.callback(server.kill)
        yield proxy, server


def submit(client: httpx.Client, source: str, destination: str) -> str:
    body = {"source": source, "destination": destination, "recursive": True}
    made = client.post("/v1/jobs", json=body, headers={"Idempotency-Key": destination})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def all_that_is_told(client: httpx.Client, job_id: str) -> str:
    """Return the text of all that a tenant can read of a job."""
    parts = ("", "/events", "/objects", "/objects.jsonl", "/receipt")
    texts = [client.get(f"/v1/jobs/{job_id}{part}") for part in parts]
    assert all(text.status_code == 200 for text in texts), texts
    return "\n".join([*(text.text for text in texts), client.get("/v1/jobs").text])


@pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (400, "KMS.DisabledException")])
def test_a_refusal_of_the_operators_keys_names_its_code_only(
    store: tuple[HttpProxy, Server], status: int, code: str
) -> None:
    proxy, server = store

    def writes(request: Request) -> bool:
        return request.method in ("PUT", "POST")

    proxy.add(Rule(Answer(status, code, WORDS), when=writes))
    with server.client() as client:
        job_id = submit(client, str(server.data / "source"), "s3://bucket/copy")
        until(client, job_id, "failed")
        told = all_that_is_told(client, job_id)
    assert f"{code}, HTTP {status}" in told, "what helps a tenant stays"
    assert [secret for secret in SECRETS if secret in told] == []
    assert WORDS in server.log, "the operator reads all of it"


def test_the_host_of_a_send_learns_the_code_only(store: tuple[HttpProxy, Server], tmp_path: Path) -> None:
    proxy, server = store
    proxy.add(Rule(Answer(403, "AccessDenied", WORDS), when=lambda request: request.method in ("PUT", "POST")))
    host = tmp_path / "host"
    done = tradewind(server, host, "send", str(server.data / "source"), "store:sent")
    assert done.returncode != 0
    kept = b"".join(path.read_bytes() for path in (host / "state").rglob("*") if path.is_file())
    assert "AccessDenied, HTTP 403" in done.stderr and b"AccessDenied, HTTP 403" in kept
    assert ARN not in done.stderr and ARN.encode() not in kept
    logs = b"".join(path.read_bytes() for path in server.state.rglob("*") if path.is_file())
    assert WORDS.encode() in logs, "the operator reads all of it"


def test_a_quote_that_the_operators_keys_cannot_count_names_the_code_only(store: tuple[HttpProxy, Server]) -> None:
    proxy, server = store
    proxy.add(Rule(Answer(403, "AccessDenied", WORDS)))
    body = {"source": "s3://bucket/data/", "destination": str(server.data / "copy"), "recursive": True}
    with server.client() as client:
        answer = client.post("/v1/quotes", json=body)
    assert answer.status_code == 409
    assert "AccessDenied, HTTP 403" in answer.text
    assert [secret for secret in SECRETS if secret in answer.text] == []
    assert WORDS in server.log


def test_a_tenant_is_not_told_where_the_operators_store_is(store: tuple[HttpProxy, Server]) -> None:
    proxy, server = store
    proxy.stop()
    body = {"source": "s3://bucket/data/", "destination": str(server.data / "copy"), "recursive": True, "stall_s": 1}
    with server.client() as client:
        answer = client.post("/v1/quotes", json=body)
    assert answer.status_code == 409
    assert [secret for secret in SECRETS if secret in answer.text] == []
