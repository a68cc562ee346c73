"""The operator's limits of rates hold for each run of a job: with a quote, and after the limit was lowered."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.server import Server, submit, until

BYTES, FILES = 2_000_000, 8
#: Rates of the limits: 500 kB/s and 1 MB/s.
SLOW_GBPS, FAST_GBPS = 0.004, 0.008
#: The least time for all bytes at the slow rate. A gateway may begin with a burst of a quarter second.
SLOW_S = 3.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("rates"))
    (server.data / "source").mkdir()
    for number in range(FILES):
        (server.data / "source" / f"{number}").write_bytes(os.urandom(BYTES // FILES))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        limit(client)
        yield client


def limit(client: httpx.Client, rate_gbps: float | None = None) -> None:
    limits = [] if rate_gbps is None else [{"kind": "store-in", "name": "local", "rate_gbps": rate_gbps}]
    assert client.put("/v1/limits", json={"limits": limits}).status_code == 200


def quote(client: httpx.Client, data: Path, name: str, **others: Any) -> dict[str, Any]:
    body = {"source": str(data / "source"), "destination": str(data / name), "recursive": True, **others}
    made = client.post("/v1/quotes", json=body)
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json()
    return found


def run_s(client: httpx.Client, job_id: str) -> float:
    """Return the time of all runs of a job that is done."""
    until(client, job_id, "done")
    runs = client.get(f"/v1/jobs/{job_id}/receipt").json()["runs"]
    return float(sum(run["ended_unix_ms"] - run["started_unix_ms"] for run in runs) / 1000)


@pytest.mark.parametrize("is_later", [False, True])
def test_a_quoted_job_keeps_to_the_limit(server: Server, admin: httpx.Client, is_later: bool) -> None:
    if not is_later:
        limit(admin, SLOW_GBPS)
    made = quote(admin, server.data, f"quoted-{is_later}")
    limit(admin, SLOW_GBPS)
    key = {"Idempotency-Key": made["id"]}
    job_id = admin.post("/v1/jobs", json={"quote": made["id"]}, headers=key).json()["id"]
    assert run_s(admin, job_id) > SLOW_S
    assert admin.get(f"/v1/jobs/{job_id}").json()["quote_usd_micros"] == made["usd_micros"]


def test_a_later_run_keeps_to_a_lower_limit(server: Server, admin: httpx.Client) -> None:
    limit(admin, FAST_GBPS)
    job_id = submit(admin, "lowered", server.data / "source", server.data / "lowered", recursive=True).json()["id"]
    until(admin, job_id, "running")
    admin.post(f"/v1/jobs/{job_id}/pause")
    until(admin, job_id, "paused")
    left_bytes = BYTES - (admin.get(f"/v1/jobs/{job_id}").json()["counts"] or {}).get("bytes_done", 0)
    limit(admin, SLOW_GBPS)
    began_s = time.monotonic()
    assert admin.post(f"/v1/jobs/{job_id}/resume").status_code == 202
    until(admin, job_id, "done")
    assert time.monotonic() - began_s > left_bytes / 500_000 - 1
