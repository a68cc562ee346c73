"""A cloud refuses machines of a job of the service: at its start, and when it is to leave a link that is closed."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from testbed.clouds.aws import aws_cloud
from testbed.clouds.lan import lan_unavailable
from tests.fleet.transfers import ready, two_stores
from tests.fleet.worlds import wait_until
from tests.service.machine_world import check_charges, connection, machine_lines
from tests.service.server import Server
from tests.sky.test_ec2 import QUOTA, REGIONS, Stage
from tests.sky.world import differences
from tradewind.gateway.binary import find_gateway

pytestmark = pytest.mark.slow
SOURCE, _, SINK = REGIONS
DIRECT = [[SOURCE, SINK]]
SLOW_BYTES_PER_S = 600_000
#: Time for machines to boot on a busy host, and for the transfer.
PATIENCE_S = 300.0


class Served(Stage):
    """The cloud and the stores of a service."""

    client: httpx.Client


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Served]:
    if reason := lan_unavailable():
        pytest.skip(reason)
    with aws_cloud(tmp_path / "cloud", find_gateway()) as cloud:
        assert cloud.boots is not None
        with two_stores(cloud.boots.address, tmp_path) as stores, ready(Served(cloud, tmp_path, stores)) as made:
            with served(made, [connection(*end) for end in zip("ab", (SOURCE, SINK), stores, strict=True)]) as client:
                made.client = client
                yield made
            made.check_nothing_is_left()


@contextmanager
def served(stage: Served, connections: list[dict[str, Any]]) -> Iterator[httpx.Client]:
    """Run a service whose operator has the cloud."""
    endpoints = [word for one in connections for word in ("--allow-endpoint", one["endpoint"])]
    words = ("--via", "auto", "--max-cost", "5USD", "--max-vms", "1", "--share-keys", *endpoints)
    server = Server(stage.folder, *words, **stage.command.full_environment())
    stage.command.environment["TRADEWIND_STATE_DIR"] = str(server.state / "engine")
    stage.command.run("catalog", "import", stage.folder / "links.csv").expect(0)
    del stage.command.environment["TRADEWIND_STATE_DIR"]
    server.start()
    try:
        with server.client() as client:
            for one in connections:
                assert client.post("/v1/connections", json=one).status_code == 201
            yield client
    finally:
        server.kill(signal.SIGTERM)


def begin(client: httpx.Client, name: str, **more: Any) -> str:
    body = {"source": "connection:a/data/", "destination": "connection:b/copy/", "recursive": True, "via": "fleet"}
    made = client.post("/v1/jobs", json={**body, **more}, headers={"Idempotency-Key": name})
    assert made.status_code == 201, made.text
    job_id: str = made.json()["id"]
    return job_id


def eventually(condition: Callable[[], bool]) -> None:
    wait_until(condition, PATIENCE_S)


def job_of(client: httpx.Client, job_id: str) -> dict[str, Any]:
    """Return a job, which is not failed."""
    found: dict[str, Any] = client.get(f"/v1/jobs/{job_id}").json()
    assert found["state"] in ("waiting", "running", "done"), found
    return found


def used(client: httpx.Client, job_id: str) -> list[list[str]]:
    """Return the regions of each route."""
    return [route["regions"] for route in client.get(f"/v1/jobs/{job_id}/plan").json()["routes"]]


def in_use(client: httpx.Client) -> set[str]:
    """Return the links between regions that the scheduler counts running jobs for."""
    names = {link["name"] for link in client.get("/v1/links").json()["links"] if link["load"]["jobs"]}
    return {name for name in names if "://" not in name}


def finish(stage: Served, job_id: str) -> dict[str, Any]:
    eventually(lambda: job_of(stage.client, job_id)["state"] == "done")
    assert differences(stage.source, stage.copy) == []
    receipt = stage.client.get(f"/v1/jobs/{job_id}/receipt").json()
    assert [run["outcome"] for run in receipt["runs"]] == ["done"], receipt["runs"]
    check_charges(stage.client, job_id)
    return job_of(stage.client, job_id)


def machine_regions(job: dict[str, Any]) -> set[str]:
    """Return the regions of the machines that a job is charged for."""
    return {line["what"].split(" in ")[1] for line in machine_lines(job)}


def test_a_job_whose_relay_is_refused_counts_for_the_links_that_it_uses(stage: Served) -> None:
    """It was granted the links of the plan via the relay."""
    client = stage.client
    stage.cloud.fault("RunInstances", *QUOTA, region="us-west-2", times=1000)
    job_id = begin(client, "refused", limit_bytes_per_s=3_000_000)
    eventually(lambda: used(client, job_id) == DIRECT)
    eventually(lambda: in_use(client) == {f"{SOURCE}>{SINK}"})
    done = finish(stage, job_id)
    assert len(machine_lines(done)) == 2 and machine_regions(done) == {SOURCE, SINK}
    assert sorted(one["region"] for one in stage.cloud.instances()) == ["eu-west-1", "us-east-1"]


def test_a_job_stays_on_a_closed_link_if_the_other_route_gets_no_machine(stage: Served) -> None:
    """A region that has refused machines is not asked again in the same run."""
    client = stage.client
    stage.cloud.fault("RunInstances", *QUOTA, region="us-west-2", times=1000)
    job_id = begin(client, "moved", limit_bytes_per_s=SLOW_BYTES_PER_S)
    eventually(lambda: (job_of(client, job_id)["counts"] or {}).get("bytes_done", 0) > 0)
    assert used(client, job_id) == DIRECT
    known = stage.cloud.calls().count("RunInstances")
    ban = {"kind": "link", "name": f"{SOURCE}>{SINK}", "reason": "drill"}
    assert client.post("/v1/bans", json=ban).status_code == 201
    eventually(lambda: stage.cloud.calls().count("RunInstances") > known)
    done = finish(stage, job_id)
    assert used(client, job_id) == DIRECT
    assert machine_regions(done) == {SOURCE, SINK}
