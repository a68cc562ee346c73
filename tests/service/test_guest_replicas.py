"""Hosts that send and receive through a balancer, in front of servers of which only one runs their job."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path

import httpx
import psycopg
import pytest

from testbed.postgres import Postgres
from testbed.servers import InstallError
from testbed.servers.process import free_port
from tests.service.guest_hosts import SLOW, begin, claimed, contents, some_files, submitted, tradewind, until_moved
from tests.service.replicas import balanced, owner_of
from tests.service.server import WAIT_S, Server, eventually, until, until_waiting_for_another
from tradewind.service.peers import PROOF_HEADER, Peer, tls_trusting
from tradewind.service.sealing import Sealer
from tradewind.service.settings import ServiceSettings

#: Address at which hosts reach the gateways of each server.
ADDRESSES = "127.0.0.1", "127.0.0.2"


class World:
    """Two servers and a balancer. `front` is the service as its users know it."""

    def __init__(self, folder: Path, postgres: Postgres) -> None:
        self.postgres, ports = postgres, [free_port() for _ in ADDRESSES]
        shared = "--database", postgres.url, "--lease", "10", "--site", f"dublin={folder / 'data' / 'dublin'}"
        self.servers = [
            Server(
                folder,
                *shared,
                *("--listen", f"127.0.0.1:{port}", "--guest-address", address),
                log=f"{address}.log",
                **postgres.environment,
            )
            for port, address in zip(ports, ADDRESSES, strict=True)
        ]
        self.ports, self.front = ports, Server(folder)

    def owner(self, job_id: str) -> tuple[Server, Server, str]:
        """Return the server that runs a job, the other one, and the address of the first for hosts."""
        own = owner_of(self.postgres, self.servers, job_id)
        number = self.servers.index(own)
        return own, self.servers[1 - number], ADDRESSES[number]

    def peer_of(self, server: Server) -> Peer:
        assert server.process is not None
        query = "SELECT peer FROM replicas WHERE id LIKE %s"
        with psycopg.connect(self.postgres.url, password=self.postgres.environment["PGPASSWORD"]) as connection:
            row = connection.execute(query, (f"%-{server.process.pid}-%",)).fetchone()
        assert row is not None
        return Peer.from_document(row[0])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("guest-replicas")
    try:
        postgres = Postgres()
    except InstallError as error:
        pytest.skip(str(error))
    found = World(folder, postgres)
    try:
        found.servers[0].prepare("--migrate")
        for server in found.servers:
            server.start()
        with balanced(found.ports, folder) as found.front.url:
            yield found
    finally:
        for server in found.servers:
            if server.process is not None:
                server.kill()
        postgres.close()


def waiting_for_its_guest(client: httpx.Client, name: str) -> str:
    job_id = submitted(
        client, source=f"guest://{name}", destination=client.get("/v1/sites").json()["sites"][0]["place"]
    )
    until(client, job_id, "running")
    return job_id


def test_a_claim_at_another_server_reaches_the_one_that_runs_the_job(world: World) -> None:
    with world.front.client() as client:
        job_id = waiting_for_its_guest(client, "claimed")
        own, other, address = world.owner(job_id)
        with other.client() as elsewhere:
            grant = claimed(elsewhere, job_id)
            assert grant["join"]["owner"].startswith(f"{address}:")
            path, report = f"/v1/jobs/{job_id}/guest/exchange", {"session": grant["session"]}
            answer = elsewhere.post(path, json=report)
            assert answer.status_code == 200 and set(answer.json()) == {"asked", "events"}
            assert elsewhere.post(f"/v1/jobs/{job_id}/guest", json={}).status_code == 409
            assert elsewhere.post(path, json={"session": "0" * 32}).status_code == 410
            assert elsewhere.post(path, json={**report, "events": ["{}"]}).status_code == 422
        with own.client() as here:
            assert here.post(path, json=report).status_code == 200
            assert here.post(f"/v1/jobs/{job_id}/cancel").status_code == 202
            until(here, job_id, "cancelled")


def test_only_servers_use_the_listener_for_servers(world: World) -> None:
    with world.front.client() as client:
        job_id = waiting_for_its_guest(client, "refused")
        own, other, _ = world.owner(job_id)
        token, peer = world.front.admin_token(), world.peer_of(own)
        proof_for_other = Sealer.of(ServiceSettings(own.state)).proof(world.peer_of(other).certificate)
        for headers in ({}, {PROOF_HEADER: "0" * 64}, {PROOF_HEADER: proof_for_other}):
            connection = HTTPSConnection(peer.host, peer.port, timeout=WAIT_S, context=tls_trusting(peer.certificate))
            try:
                body = json.dumps({}).encode()
                own_headers = {"Authorization": f"Bearer {token}", **headers}
                connection.request("POST", f"/v1/jobs/{job_id}/guest", body, own_headers)
                assert connection.getresponse().status == 403
            finally:
                connection.close()
        with other.client() as elsewhere:
            until_waiting_for_another(elsewhere, job_id, "running")
            listed = {job["id"]: job["waiting"] for job in elsewhere.get("/v1/jobs").json()["jobs"]}
        assert listed[job_id] == "The host that sends or receives has not joined yet."
        client.post(f"/v1/jobs/{job_id}/cancel")
        until(client, job_id, "cancelled")


def test_a_host_sends_and_receives_through_a_balancer(world: World, tmp_path: Path) -> None:
    sent = some_files(tmp_path / "sent")
    done = tradewind(world.front, tmp_path, "send", str(sent), "dublin:run7")
    assert done.returncode == 0, done.stderr
    done = tradewind(world.front, tmp_path, "receive", "dublin:run7", str(tmp_path / "received"))
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "received") == contents(sent)


@pytest.mark.slow
def test_another_server_continues_with_the_same_host(world: World, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(32 << 20))
    words = "send", "--limit-rate", SLOW, "--chunk-size", "5MiB", str(large), "dublin:large"
    sender, job_id = begin(world.front, tmp_path, *words)
    with world.front.client() as client:
        until_moved(client, job_id, 10 << 20)
        own, other, _ = world.owner(job_id)
        own.kill()
        try:
            with other.client() as there:
                path = f"/v1/jobs/{job_id}"
                eventually(lambda: there.get(path).json()["state"] == "done" or sender.poll() is not None)
            said = sender.communicate(timeout=WAIT_S)[1]
        finally:
            own.start()
    assert sender.returncode == 0, said
    with other.client() as there:
        assert there.get(f"/v1/jobs/{job_id}").json()["counts"]["bytes_earlier"] >= 5 << 20
    assert (world.front.data / "dublin" / "default" / "large").read_bytes() == large.read_bytes()
