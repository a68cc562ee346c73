"""A service whose operator has configured two SSH hosts, which are this host, and a tenant with two stores."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
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
from testbed.sshd import local_ssh_server, sshd_unavailable
from tests.fleet.worlds import wait_until
from tests.service.server import Server

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

    def __init__(
        self,
        folder: Path,
        stack: ExitStack,
        *options: str,
        replicas: int = 1,
        regions: tuple[str, str] = REGIONS,
        relays: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if reason := sshd_unavailable():
            pytest.skip(reason)
        self.hosts = {**dict(zip("ab", regions, strict=True)), **(relays or {})}
        short = stack.enter_context(TemporaryDirectory(prefix="tw-ssh-"))
        self.regions, self.folder, self.ssh = regions, folder, stack.enter_context(local_ssh_server(Path(short, "ssh")))
        try:
            self.stores = [stack.enter_context(versitygw(secret=f"secret-{name}" * 4)) for name in "ab"]
        except InstallError as error:
            pytest.skip(str(error))
        for one in self.clients:
            one.create_bucket("bucket")
        for number in range(OBJECTS):
            self.clients[0].put("bucket", f"data/{number}", os.urandom(OBJECT_BYTES))
            self.clients[0].put("bucket", f"text/{number}", os.urandom(OBJECT_BYTES // 30).hex().encode() * 15)
        self.command = Command(folder / "home")
        self.configure()
        endpoints = [word for store in self.stores for word in ("--allow-endpoint", store.endpoint)]
        own = {**SERVER_KEYS, "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1", **(environment or {})}
        words = ("--via", "auto", "--max-cost", "2USD", "--max-vms", "1", *endpoints, *options)
        self.servers = [
            Server(folder, *words, log=f"server {number}.log", **{**self.command.full_environment(), **own})
            for number in range(replicas)
        ]
        self.server = self.servers[0]
        if replicas > 1:
            self.migrate()
        for server in self.servers:
            server.start()
        stack.callback(self.stop)
        with self.server.client() as admin:
            for name, region, store in zip("ab", regions, self.stores, strict=True):
                made = admin.post("/v1/connections", json=connection(name, region, store))
                assert made.status_code == 201, made.text

    @property
    def clients(self) -> list[S3]:
        return [S3(store.endpoint, store.access_key, store.secret_key) for store in self.stores]

    def configure(self) -> None:
        """Write the operator's configuration."""
        self.command.configure(*host_lines(self.ssh.config, self.hosts, self.folder))

    def on_host(self, name: str) -> Path:
        return folder_on_host(self.folder, name)

    def machines(self) -> list[int]:
        """Return the process ids of the gateways on the hosts. An empty file is being written."""
        texts = [path.read_text() for path in sorted(self.folder.glob("on */machines/*/pid"))]
        return [int(text) for text in texts if text]

    def nothing_is_left(self, client: httpx.Client) -> None:
        """Check that no machine runs, and that the service knows of none."""
        wait_until(lambda: list(self.folder.glob("on */machines/*")) == [])
        assert [one for one in client.get("/v1/fleets").json()["fleets"] if one["machines"]] == []

    def migrate(self) -> None:
        environment = {**os.environ, **self.server.environment}
        subprocess.run(self.server.command("--migrate"), check=True, env=environment, stdout=subprocess.DEVNULL)

    def stop(self) -> None:
        for server in self.servers:
            if server.process is not None:
                server.kill(signal.SIGTERM)

    def copied(self, prefix: str, source: str = "data") -> bool:
        first, second = self.clients
        return all(
            first.get("bucket", f"{source}/{number}") == second.get("bucket", f"{prefix}/{number}")
            for number in range(OBJECTS)
        )


def host_lines(config: Path, hosts: Mapping[str, str], folder: Path) -> list[str]:
    """Return the lines of a configuration with a host in each region, which are this host, for money.

    `config` is that of a local SSH server, and gets the names of the hosts.
    """
    with config.open("a") as names:
        names.write(f"Host {' '.join(hosts)}\n  HostName 127.0.0.1\n")
    lines = ["[fleet]", 'home_rate = "1Mbit/s"', "[ssh]", f'config = "{config}"']
    for name, region in hosts.items():
        lines += ["[[ssh.hosts]]", f'name = "{name}"', f'region = "{region}"', 'address = "127.0.0.1"']
        lines += [f'folder = "{folder_on_host(folder, name)}"', f"usd_per_hour = {USD_PER_HOUR}"]
    return lines


def folder_on_host(folder: Path, name: str) -> Path:
    """Return where a host keeps its machines."""
    return folder / f"on {name}"


def connection(name: str, region: str, store: Store) -> dict[str, Any]:
    secret = {"access_key_id": store.access_key, "secret_access_key": store.secret_key}
    return {"name": name, "place": "s3://bucket/", "endpoint": store.endpoint, "region": region, "secret": secret}


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
        moved = (found["counts"] or {}).get("bytes_done", 0)
        return moved > 0 and len(world.machines()) == len(REGIONS)

    wait_until(moves)
    return found


def machine_lines(job: dict[str, Any]) -> list[dict[str, Any]]:
    return [line for line in job["ledger"]["lines"] if line["kind"] == "machine"]


def check_charges(client: httpx.Client, job_id: str) -> None:
    """Check that the invoice's lines of a job without a quote add up to its ledger, to a micro-dollar for each line."""
    receipt = client.get(f"/v1/jobs/{job_id}/receipt").json()
    charged = sum(line["usd_micros"] for line in receipt["charges"])
    assert abs(charged - receipt["cost"]["metered_usd"] * 1e6) <= len(receipt["charges"]), receipt
    month = client.get("/v1/invoices").json()["invoices"][0]["id"]
    lines = client.get(f"/v1/invoices/{month}").json()["lines"]
    assert sum(line["usd_micros"] for line in lines if line["subject"] == job_id) == charged
