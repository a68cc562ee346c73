"""Signed addresses, on real servers."""

from __future__ import annotations

import json
import secrets
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from testbed.drive import Command
from testbed.places import AzurePlace, Place
from testbed.servers import Server
from testbed.servers.azurite import azurite_oauth, token
from tests.e2e.conftest import started
from tradewind.cli.main import main

KEY_VARIABLE = "AZURE_STORAGE_ACCOUNT_KEY"


@pytest.fixture(scope="module")
def oauth_server(run_folder: Path) -> Iterator[Server]:
    """Azurite, which accepts a sign-in to Entra ID."""
    yield from started(azurite_oauth, "npm", run_folder / "servers")


def read(address: str, context: ssl.SSLContext | None = None) -> bytes:
    """Return what an address gives to a client without credentials."""
    with urllib.request.urlopen(address, context=context) as answer:
        content: bytes = answer.read()
        return content


@pytest.mark.parametrize("kind", ["moto", "azure", pytest.param("versitygw", marks=pytest.mark.slow)])
def test_an_address_reads_the_object_without_credentials(
    place: Callable[[str], Place], command: Command, kind: str
) -> None:
    there = place(kind)
    there.put("d/a key+é", b"content")
    words = ("presign", f"{there.url}/d/a key+é", *there.flags("src"))
    address = command.run(*words).expect(0).stdout.strip()
    assert read(address) == b"content"
    made = json.loads(command.run(*words, "--json", "--expires", "10m").expect(0).stdout)
    assert made["url"].startswith("http") and made["expires"].endswith("Z")
    if kind != "moto":  # moto does not check signatures.
        with pytest.raises(urllib.error.HTTPError):
            read(address.replace("a%20key", "another"))


def test_a_sign_in_to_entra_id_gets_a_key_that_signs(command: Command, oauth_server: Server) -> None:
    container = f"az://{oauth_server.access_key}/signed-{secrets.token_hex(6)}"
    command.environment["AZURE_STORAGE_TOKEN"] = token()
    access = (
        "--endpoint",
        oauth_server.environment["AZURE_STORAGE_ENDPOINT"],
        "--ca-bundle",
        oauth_server.ca_file or "",
    )
    command.run("mb", container, *access).expect(0)
    for name in ("a key", "another"):
        words = ("cp", "-", f"{container}/{name}", *(str(word).replace("--", "--dst-") for word in access))
        command.run(*words, stdin=name.encode()).expect(0)
    address = command.run("presign", f"{container}/a key", "--expires", "10m", *access).expect(0).stdout.strip()
    context = ssl.create_default_context(cafile=str(oauth_server.ca_file))
    assert read(address, context) == b"a key"
    parameters = parse_qs(urlsplit(address).query)
    assert (parameters["sr"], parameters["sp"]) == (["b"], ["r"]) and "skoid" in parameters
    with pytest.raises(urllib.error.HTTPError):
        read(address.replace("a%20key", "another"), context)


@pytest.mark.parametrize(
    ("credentials", "words", "why", "hint"),
    [
        (
            {"AZURE_STORAGE_SAS_KEY": "sv=2021-12-02&sig=c2ln"},
            [],
            "a shared access signature cannot sign an address",
            "set AZURE_STORAGE_ACCOUNT_KEY, or sign in with `az login`",
        ),
        ({KEY_VARIABLE: "c2ln"}, ["--no-sign"], "signing needs credentials", "leave out --no-sign"),
    ],
    ids=["signature", "nobody"],
)
def test_credentials_that_cannot_sign_are_refused_by_name(
    command: Command, azure_server: Server, credentials: dict[str, str], words: list[str], why: str, hint: str
) -> None:
    there = AzurePlace(azure_server, command)
    del command.environment[KEY_VARIABLE]
    command.environment.update(credentials)
    done = command.run("presign", f"{there.url}/k", *words, *there.flags("src")).expect(1)
    assert done.stdout == ""
    assert f"error: presign {there.url}/k: {why}" in done.stderr and f"hint: {hint}" in done.stderr


def test_wrong_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presign", "/tmp/file"]) == 2
    assert main(["presign", "s3://b/k", "--expires", "8d"]) == 2
    assert main(["presign", "s3://b/"]) == 2
    assert main(["presign", "gs://b/k"]) == 2
    said = capsys.readouterr().err
    assert "1 s to 7 days" in said and "gs://b/k cannot be signed: a token of Google Cloud cannot" in said
