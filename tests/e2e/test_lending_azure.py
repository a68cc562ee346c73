"""Credentials of gateways elsewhere for Azure: signatures of a user delegation key, made and checked by Azurite.

The gateways run on this host behind a real SSH server, so for Tradewind they are elsewhere. A proxy in front of Azurite
sees which credential each request carries. It can refuse user delegation keys, and shorten their life.
"""

from __future__ import annotations

import os
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

import pytest

from testbed.drive import Command, Finished
from testbed.faults.http import HttpProxy, _Upstream
from testbed.faults.rules import Action, Answer, Exchange, Request, Rule
from testbed.faults.stream import Head
from testbed.servers import Server
from testbed.servers.azurite import azurite_oauth, token
from testbed.sshd import local_ssh_server, sshd_unavailable
from tests.e2e.conftest import started
from tests.e2e.test_lending import LINKS, MIB, SITES, places_with, write_config
from tests.fleet.worlds import wait_until

OBJECTS = 6
KEY_ACTION = "Microsoft.Storage/storageAccounts/blobServices/generateUserDelegationKey/action"
#: The parameters of a signature that a user delegation key made.
SIGNATURE = ("sv", "se", "sr", "sp", "skoid", "sktid", "skt", "ske", "sks", "skv", "sig")


def is_key_request(request: Request) -> bool:
    return request.query.get("comp") == "userdelegationkey"


class Watched(HttpProxy):
    """A proxy in front of Azurite. User delegation keys live `key_life_s` if that is set."""

    key_life_s: float | None = None

    def _pass_request(
        self, server: _Upstream, head: Head, body: Iterable[memoryview], exchange: Exchange, action: Action | None
    ) -> None:
        if self.key_life_s is not None and is_key_request(exchange.request):
            end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.key_life_s)).encode()
            whole = b"".join(bytes(piece) for piece in body)
            body = [memoryview(re.sub(rb"(?<=<Expiry>)[^<]+", end, whole))]
        super()._pass_request(server, head, body, exchange, action)

    def signatures(self) -> dict[str, dict[str, str]]:
        """Return the signatures that requests carried, by their permissions. One of each, the latest."""
        found = [exchange.request.query for exchange in self.requests(lambda request: "sig" in request.query)]
        return {query["sp"]: {name: query[name] for name in SIGNATURE} for query in found}


class Stage:
    """The command, signed in to Entra ID and configured for a host in each of two sites, and two containers."""

    def __init__(self, command: Command, server: Server, proxy: Watched) -> None:
        self.command, self.server, self.proxy = command, server, proxy
        run = os.urandom(4).hex()
        self.account, self.source, self.copies = server.access_key, f"src-{run}", f"dst-{run}"
        self.context = ssl.create_default_context(cafile=str(server.ca_file))
        endpoint = f"{proxy.endpoint}/{self.account}"
        self.options = [
            *("--via", "fleet", "--src-region", "site:a", "--dst-region", "site:b", "--chunk-size", "5MiB"),
            *("--src-endpoint", endpoint, "--dst-endpoint", endpoint),
        ]

    def words(self, source: str, target: str) -> list[str]:
        base = f"az://{self.account}"
        return ["cp", "-r", f"{base}/{source}", f"{base}/{target}", *self.options]

    def run(self, *more: str) -> Finished:
        return self.command.run(*self.words(f"{self.source}/data/", f"{self.copies}/copy/"), *more)

    def call(self, method: str, path: str, query: dict[str, str], body: bytes | None = None) -> int:
        """Send a request with a signature or, without one, the token of a user. Return the status."""
        url = f"{self.server.endpoint}/{self.account}/{path}?{urlencode(query)}"
        headers = {"x-ms-version": "2023-11-03", "x-ms-blob-type": "BlockBlob"}
        if "sig" not in query:
            headers["Authorization"] = f"Bearer {token()}"
        request = urllib.request.Request(url, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self.context) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def copied(self) -> int:
        """Return the number of objects at the destination."""
        names = [f"{self.copies}/copy/{number}" for number in range(OBJECTS)]
        return sum(self.call("HEAD", name, {}) == 200 for name in names)


@pytest.fixture(scope="module")
def server(run_folder: Path) -> Iterator[Server]:
    yield from started(azurite_oauth, "npm", run_folder / "servers")


@pytest.fixture
def stage(command: Command, server: Server, tmp_path: Path) -> Iterator[Stage]:
    if reason := sshd_unavailable() or (None if os.geteuid() == 0 else "the test's SSH server needs root"):
        pytest.skip(reason)
    with (
        TemporaryDirectory(prefix="tw-ssh-") as short,
        local_ssh_server(Path(short, "ssh")) as ssh,
        Watched(server.endpoint, ca_file=server.ca_file) as proxy,
    ):
        names = "".join(f"Host {site}\n  HostName 127.0.0.1\n" for site in SITES)
        ssh.config.write_text(ssh.config.read_text(encoding="utf-8") + names, encoding="utf-8")
        command.environment["AZURE_STORAGE_TOKEN"] = token()
        write_config(command, ssh.config, tmp_path)
        made = Stage(command, server, proxy)
        for container in (made.source, made.copies):
            assert made.call("PUT", container, {"restype": "container"}) == 201
        for number in range(OBJECTS):
            assert made.call("PUT", f"{made.source}/data/{number}", {}, os.urandom(2 * MIB)) == 201
        links = tmp_path / "links.csv"
        links.write_text(LINKS, encoding="utf-8")
        command.run("catalog", "import", links).expect(0)
        yield made
        command.wait_until_alone()
        wait_until(lambda: list(tmp_path.glob("on */machines/*")) == [])


def test_each_gateway_gets_a_signature_for_its_role_and_nothing_is_written(stage: Stage, tmp_path: Path) -> None:
    running = stage.command.start(
        *stage.words(f"{stage.source}/data/", f"{stage.copies}/copy/"), "--limit-rate", "4MB/s"
    )
    running.wait_for_bytes(2 * MIB)
    signatures = stage.proxy.signatures()
    secrets = [signature["sig"] for signature in signatures.values()]
    assert places_with([*secrets, stage.command.environment["AZURE_STORAGE_TOKEN"]], tmp_path) == []
    running.finish().expect(0)
    assert stage.copied() == OBJECTS
    source, sink = signatures["rt"], signatures["rcwt"]

    assert stage.call("GET", f"{stage.source}/data/0", source) == 200
    assert stage.call("PUT", f"{stage.source}/data/new", source, b"x") == 403
    assert stage.call("GET", f"{stage.copies}/copy/0", source) == 403
    assert stage.call("PUT", f"{stage.copies}/copy/new", sink, b"x") == 201
    assert stage.call("GET", f"{stage.source}/data/0", sink) == 403
    assert stage.call("DELETE", f"{stage.copies}/copy/0", sink) == 403
    for container, signature in ((stage.source, source), (stage.copies, sink)):
        assert stage.call("GET", container, {"restype": "container", "comp": "list", **signature}) == 403
    longer = {**sink, "se": "2099-01-01T00:00:00Z"}
    assert stage.call("PUT", f"{stage.copies}/copy/new", longer, b"x") == 403


@pytest.mark.slow
def test_a_single_object_gets_a_signature_of_its_own(stage: Stage) -> None:
    base = f"az://{stage.account}"
    stage.command.run("cp", f"{base}/{stage.source}/data/0", f"{base}/{stage.copies}/copy/0", *stage.options).expect(0)
    assert {signature["sr"] for signature in stage.proxy.signatures().values()} == {"b"}


def test_a_role_without_the_action_is_told_it(stage: Stage) -> None:
    stage.proxy.add(Rule(Answer(403, "AuthorizationPermissionMismatch", "not authorized"), is_key_request))
    done = stage.run()
    assert done.code == 7, done.stderr
    assert KEY_ACTION in done.stderr and "Traceback" not in done.stderr
    assert stage.copied() == 0


@pytest.mark.slow
def test_an_account_key_is_not_sent_but_signs(stage: Stage) -> None:
    del stage.command.environment["AZURE_STORAGE_TOKEN"]
    stage.command.environment["AZURE_STORAGE_ACCOUNT_KEY"] = stage.server.secret_key
    stage.run().expect(0)
    assert stage.copied() == OBJECTS and stage.proxy.requests(is_key_request) == []
    signed = stage.proxy.requests(lambda request: request.query.get("sp") in ("rt", "rcwt"))
    assert signed and all("skoid" not in exchange.request.query for exchange in signed)


@pytest.mark.slow
def test_signatures_that_expire_while_no_keys_are_given_delay_a_transfer(stage: Stage) -> None:
    stage.proxy.key_life_s = 4.0
    words = stage.words(f"{stage.source}/data/", f"{stage.copies}/copy/")
    running = stage.command.start(*words, "--limit-rate", "1MB/s")
    running.wait_for_bytes(2 * MIB)
    refusing = stage.proxy.add(Rule(Answer(503, "ServerBusy", "later"), is_key_request))
    refused = lambda exchange: "sig" in exchange.request.query and exchange.status == 403  # noqa: E731
    wait_until(lambda: any(map(refused, stage.proxy.exchanges)))
    stage.proxy._rules.remove(refusing)
    running.finish().expect(0)
    assert stage.copied() == OBJECTS
    ends = {exchange.request.query["ske"] for exchange in stage.proxy.requests(lambda request: "ske" in request.query)}
    assert len(ends) > 2
