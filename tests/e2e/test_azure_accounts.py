"""Copies between two accounts of Azure, which Azure makes by itself. Azurite has both, and checks signatures."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.azure import Azure
from testbed.drive import Command
from testbed.faults import Answer, HttpProxy, Request, Rule
from testbed.servers import Server, azurite
from testbed.servers.azurite import ACCOUNT
from testbed.trees import MIB, payload
from tests.e2e.conftest import started

OTHER = "otheraccount"
OTHER_KEY = base64.b64encode(b"the key of the other account").decode()
CONTENT = payload("accounts", 100_000)
PASSED = "passed  1 object through this machine: "


@dataclass(frozen=True)
class Accounts:
    """A container of the same name in each account, and a proxy in front of both."""

    container: str
    proxy: HttpProxy
    source: Azure
    target: Azure
    command: Command

    def arguments(self, source_endpoint: str | None = None) -> list[str]:
        """Return those of a copy of the blob to the other account."""
        endpoints = f"{source_endpoint or self.proxy.endpoint}/{ACCOUNT}", f"{self.proxy.endpoint}/{OTHER}"
        ends = [f"az://{ACCOUNT}/{self.container}/a b", f"az://{OTHER}/{self.container}/k"]
        return ["cp", *ends, "--src-endpoint", endpoints[0], "--dst-endpoint", endpoints[1]]

    def copy(self, *options: str, source_endpoint: str | None = None) -> str:
        """Copy the blob and return the summary."""
        return self.command.run(*self.arguments(source_endpoint), *options).expect(0).stderr

    def copied(self) -> bytes:
        """Return the copy."""
        return self.target.get(self.container, "k")

    def copies(self) -> list[Request]:
        """Return the requests that make Azure read a source."""
        return [exchange.request for exchange in self.proxy.requests(reads_source)]

    def bytes_moved(self) -> int:
        """Return the bytes of all blobs that passed this machine."""
        moves = self.proxy.requests(lambda request: request.is_read or (request.is_write and not reads_source(request)))
        return sum(exchange.request_bytes + exchange.response_bytes for exchange in moves)


def reads_source(request: Request) -> bool:
    return "x-ms-copy-source" in request.headers


def azurite_with_two_accounts() -> Server:
    return azurite(more_accounts={OTHER: OTHER_KEY})


@pytest.fixture(scope="session")
def server(run_folder: Path) -> Iterator[Server]:
    yield from started(azurite_with_two_accounts, "npm", run_folder / "servers")


@pytest.fixture
def accounts(server: Server, command: Command) -> Iterator[Accounts]:
    clients = Azure(server.endpoint, ACCOUNT, server.secret_key), Azure(server.endpoint, OTHER, OTHER_KEY)
    container = f"accounts-{secrets.token_hex(6)}"
    for client in clients:
        client.create_container(container)
    clients[0].put(container, "a b", CONTENT, {"x-ms-blob-content-type": "text/x-test", "x-ms-meta-colour": "blue"})
    command.environment["AZURE_STORAGE_ACCOUNT_KEY"] = server.secret_key
    command.environment[f"AZURE_STORAGE_ACCOUNT_KEY_{OTHER.upper()}"] = OTHER_KEY
    with HttpProxy(server.endpoint) as proxy:
        yield Accounts(container, proxy, *clients, command)


def test_azure_copies_between_accounts_with_a_signature_for_one_blob(accounts: Accounts) -> None:
    said = accounts.copy()
    assert accounts.copied() == CONTENT
    headers = accounts.target.head(accounts.container, "k")
    assert (headers["content-type"], headers["x-ms-meta-colour"]) == ("text/x-test", "blue")
    assert "proven  1 copied by the store itself" in said and "passed" not in said
    (request,) = accounts.copies()
    address = request.headers["x-ms-copy-source"]
    assert f"/{ACCOUNT}/{accounts.container}/a%20b?" in address and "sp=r&" in address + "&" and "sr=b" in address
    assert accounts.bytes_moved() == 0


def test_no_signature_is_kept_or_printed(accounts: Accounts) -> None:
    refusal = Answer(403, "AuthorizationPermissionMismatch", "no copies here")
    accounts.proxy.add(Rule(refusal, when=reads_source))
    done = accounts.command.run(*accounts.arguments())
    assert done.code != 0
    signature = accounts.copies()[0].headers["x-ms-copy-source"].rpartition("sig=")[2].split("&")[0]
    assert len(signature) > 40 and signature not in done.stdout + done.stderr
    kept = [path for path in accounts.command.home.rglob("*") if path.is_file()]
    assert kept and not any(signature.encode() in path.read_bytes() for path in kept)


def test_a_source_that_azure_cannot_read_passes_this_machine(accounts: Accounts) -> None:
    refusal = Answer(403, "CannotVerifyCopySource", "This request is not authorized to perform this operation.")
    accounts.proxy.add(Rule(refusal, when=reads_source))
    assert f"{PASSED}the store did not copy by itself" in accounts.copy()
    assert accounts.copied() == CONTENT


def test_different_servers_are_named(accounts: Accounts, server: Server) -> None:
    said = accounts.copy(source_endpoint=server.endpoint)
    assert f"{PASSED}the two sides have different endpoints" in said
    assert accounts.copied() == CONTENT


@pytest.mark.slow
def test_a_large_blob_of_another_account_is_copied_in_blocks(accounts: Accounts) -> None:
    content = payload("large", MIB) * 257
    accounts.source.put(accounts.container, "a b", content, {"x-ms-blob-content-type": "text/x-test"})
    said = accounts.copy("--chunk-size", "64MiB")
    assert "passed" not in said
    assert accounts.copied() == content
    assert accounts.target.head(accounts.container, "k")["content-type"] == "text/x-test"
    ranges = sorted(request.headers["x-ms-source-range"] for request in accounts.copies())
    assert len(ranges) == 5 and ranges[0] == f"bytes=0-{64 * MIB - 1}"
    assert accounts.bytes_moved() == 0
