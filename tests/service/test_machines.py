"""Jobs of the service on machines of the operator's providers: SSH hosts, with the keys of the tenant's connections."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest

from testbed.drive import Command
from testbed.s3 import S3
from testbed.servers import InstallError, versitygw
from testbed.servers import Server as Store
from testbed.sshd import LocalServer, local_ssh_server, sshd_unavailable
from tests.fleet.worlds import wait_until
from tests.service.server import Server, until

#: Keys of the server itself. No job of a connection may use them.
SERVER_KEYS = {"AWS_ACCESS_KEY_ID": "the-server", "AWS_SECRET_ACCESS_KEY": "the-servers-own-secret"}
REGIONS = ("site:a", "site:b")
USD_PER_HOUR = 3.6
OBJECT_BYTES = 3_000_000
OBJECTS = 4
#: Rate of jobs that must still run when something happens to them.
SLOW_BYTES_PER_S = 1_000_000


class World:
    """A service whose operator has two hosts, and a tenant with a connection to a store beside each."""

    def __init__(self, folder: Path, ssh: LocalServer, stack: ExitStack) -> None:
        self.folder, self.ssh = folder, ssh
        try:
            self.stores = [stack.enter_context(versitygw(secret=f"secret-{name}" * 4)) for name in "ab"]
        except InstallError as error:
            pytest.skip(str(error))
        for store in self.clients:
            store.create_bucket("bucket")
        for number in range(OBJECTS):
            self.clients[0].put("bucket", f"data/{number}", os.urandom(OBJECT_BYTES))
        self.command = Command(folder / "home")
        self.configure()
        endpoints = [word for store in self.stores for word in ("--allow-endpoint", store.endpoint)]
        self.server = Server(
            folder,
            *("--via", "auto", "--max-cost", "2USD", "--max-vms", "1", "--share-keys", *endpoints),
            **{**self.command.full_environment(), **SERVER_KEYS, "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"},
        )
        self.server.start()
        stack.callback(self.stop)
        with self.server.client() as admin:
            for name, region, store in zip("ab", REGIONS, self.stores, strict=True):
                made = admin.post("/v1/connections", json=connection(name, region, store))
                assert made.status_code == 201, made.text

    @property
    def clients(self) -> list[S3]:
        return [S3(store.endpoint, store.access_key, store.secret_key) for store in self.stores]

    def configure(self) -> None:
        """Write the operator's configuration: a host in each region, which are this host, for money."""
        with self.ssh.config.open("a") as config:
            config.write("Host a b\n  HostName 127.0.0.1\n")
        lines = ["[fleet]", 'home_rate = "1Mbit/s"', "[ssh]", f'config = "{self.ssh.config}"']
        for name, region in zip("ab", REGIONS, strict=True):
            lines += ["[[ssh.hosts]]", f'name = "{name}"', f'region = "{region}"', 'address = "127.0.0.1"']
            lines += [f'folder = "{self.on_host(name)}"', f"usd_per_hour = {USD_PER_HOUR}"]
        self.command.configure(*lines)

    def on_host(self, name: str) -> Path:
        return self.folder / f"on {name}"

    def machines(self) -> list[int]:
        """Return the process ids of the gateways on the hosts."""
        return [int(path.read_text()) for path in sorted(self.folder.glob("on */machines/*/pid"))]

    def nothing_is_left(self, client: httpx.Client) -> None:
        """Check that no machine runs, and that the service knows of none."""
        wait_until(lambda: list(self.folder.glob("on */machines/*")) == [])
        assert [one for one in client.get("/v1/fleets").json()["fleets"] if one["machines"]] == []

    def stop(self) -> None:
        if self.server.process is not None:
            self.server.kill(signal.SIGTERM)

    def copied(self, prefix: str) -> bool:
        first, second = self.clients
        return all(
            first.get("bucket", f"data/{number}") == second.get("bucket", f"{prefix}/{number}")
            for number in range(OBJECTS)
        )


def connection(name: str, region: str, store: Store) -> dict[str, Any]:
    secret = {"access_key_id": store.access_key, "secret_access_key": store.secret_key}
    return {"name": name, "place": "s3://bucket/", "endpoint": store.endpoint, "region": region, "secret": secret}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if reason := sshd_unavailable():
        pytest.skip(reason)
    with ExitStack() as stack:
        short = stack.enter_context(TemporaryDirectory(prefix="tw-ssh-"))
        ssh = stack.enter_context(local_ssh_server(Path(short, "ssh")))
        yield World(tmp_path_factory.mktemp("machines"), ssh, stack)


@pytest.fixture
def client(world: World) -> Iterator[httpx.Client]:
    with world.server.client() as made:
        yield made


def body(to: str, **others: Any) -> dict[str, Any]:
    return {"source": "connection:a/data/", "destination": f"connection:b/{to}/", "recursive": True, **others}


def send(client: httpx.Client, to: str, **others: Any) -> str:
    made = client.post("/v1/jobs", json=body(to, **others), headers={"Idempotency-Key": to})
    assert made.status_code == 201, made.text
    job_id: str = made.json()["id"]
    return job_id


def when_machines_move(world: World, client: httpx.Client, job_id: str) -> dict[str, Any]:
    """Return the job once its machines have moved bytes."""
    found: dict[str, Any] = {}

    def moves() -> bool:
        nonlocal found
        found = client.get(f"/v1/jobs/{job_id}").json()
        assert found["state"] in ("waiting", "running"), found
        return (found["counts"] or {}).get("bytes_done", 0) > 0

    wait_until(moves, 30.0)
    assert len(world.machines()) == len(REGIONS)
    return found


def machine_lines(job: dict[str, Any]) -> list[dict[str, Any]]:
    return [line for line in job["ledger"]["lines"] if line["kind"] == "machines"]


def test_a_quoted_job_runs_on_machines_with_the_keys_of_its_connections(world: World, client: httpx.Client) -> None:
    """The quote prices the machines, the ledger counts them, and the charges add up to it. Nothing is left."""
    made = client.post("/v1/quotes", json=body("quoted", max_cost_usd=1.5, via="fleet"))
    assert made.status_code == 201, made.text
    quote = made.json()
    assert quote["usd_micros"] > 0 and quote["rate_gbps"] > 0, quote
    sent = client.post("/v1/jobs", json={"quote": quote["id"]}, headers={"Idempotency-Key": "quoted"}).json()
    done = until(client, sent["id"], "done")
    assert world.copied("quoted")
    print(json.dumps(done["ledger"], indent=1))
    receipt = client.get(f"/v1/jobs/{sent['id']}/receipt").json()
    print(json.dumps(receipt["charges"]), quote)
    world.nothing_is_left(client)


def test_a_job_is_bounded_by_the_operator(world: World, client: httpx.Client) -> None:
    local = {"source": str(world.server.data), "destination": "connection:b/x/", "recursive": True, "via": "fleet"}
    for wrong, why in (
        (body("x", via="here", max_cost_usd=1.0), "max_cost_usd: this job rents no machines"),
        (local, f"via fleet: machines copy between stores, and {world.server.data} is a local path"),
    ):
        refused = client.post("/v1/jobs", json=wrong, headers={"Idempotency-Key": "x"})
        assert (refused.status_code, refused.json()["detail"]) == (422, why), refused.text
    dear = client.post("/v1/quotes", json=body("dear", max_cost_usd=0.000001, via="fleet"))
    assert dear.status_code == 409 or dear.status_code == 422, dear.text
    print(dear.text)


def test_a_cancelled_job_ends_its_machines(world: World, client: httpx.Client) -> None:
    job_id = send(client, "cancelled", via="fleet", limit_bytes_per_s=SLOW_BYTES_PER_S)
    live = when_machines_move(world, client, job_id)
    print(json.dumps(live["ledger"], indent=1))
    assert client.post(f"/v1/jobs/{job_id}/cancel").status_code == 202
    until(client, job_id, "cancelled")
    world.nothing_is_left(client)
