"""Credentials in URLs and endpoints are refused and never stored, and gateways inherit only what they need."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote_plus

import pytest

from testbed.chains import chain, write
from testbed.drive import Command
from testbed.trees import MIB, write_large

SECRET = "5ecReT5ignature"
SIGNED = [
    f"az://account/container/key?sv=2024-01-01&sig={SECRET}",
    f"az://account/container?sig={SECRET}",
    f"s3://bucket/key?X-Amz-Security-Token={SECRET}",
    f"gs://bucket/key?GoogleAccessId={SECRET}",
    f"https://account.blob.core.windows.net/container/key?sig={SECRET}",
    f"az:/account/container/key?sig={SECRET}",
    f"wasb://account/key?sig={SECRET}",
]
ENDPOINTS = [
    f"https://user:{SECRET}@127.0.0.1:1",
    f"https://127.0.0.1:1/?sig={SECRET}",
    f"127.0.0.1:1?sig={SECRET}",
    f"https://127.0.0.1:1/#{SECRET}",
]


def stored(command: Command) -> str:
    """Return everything that the command wrote below its home."""
    files = [entry for entry in command.home.rglob("*") if entry.is_file()]
    return "".join(entry.read_bytes().decode(errors="replace") for entry in files)


@pytest.mark.parametrize("url", SIGNED)
@pytest.mark.parametrize("words", [("cp", "{}", "copy"), ("cp", "file", "{}"), ("ls", "{}"), ("sync", "folder", "{}")])
def test_a_signed_url_is_refused_without_being_repeated(command: Command, url: str, words: tuple[str, ...]) -> None:
    (command.home / "folder").mkdir()
    (command.home / "file").write_bytes(b"x")
    done = command.run(*(word.format(url) for word in words)).expect(2)
    assert SECRET not in done.stdout + done.stderr + stored(command)
    assert "credential" in done.stderr


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_an_endpoint_with_a_secret_is_refused_without_being_repeated(command: Command, endpoint: str) -> None:
    for words in (
        ["ls", "s3://bucket", "--endpoint", endpoint],
        ["cp", "s3://b/k", "copy", "--src-endpoint", endpoint],
    ):
        done = command.run(*words).expect(2)
        assert SECRET not in done.stdout + done.stderr + stored(command)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_settings_are_shown_without_secrets(command: Command, endpoint: str) -> None:
    command.environment["TRADEWIND_SRC_ENDPOINT"] = endpoint
    for words in (["config", "show"], ["config", "show", "--json"]):
        done = command.run(*words).expect(0)
        assert SECRET not in done.stdout + done.stderr


def test_machines_inherit_no_credentials(command: Command, tmp_path: Path) -> None:
    """Check the environment of each process, as the kernel reports it, while a transfer runs over a relay."""
    write_large(tmp_path / "large", 32 * MIB)
    topology = write(chain("relay"), tmp_path / "topology.json")
    command.environment.update(AWS_SECRET_ACCESS_KEY=SECRET, AZURE_STORAGE_KEY=SECRET, TRADEWIND_GCP_API_KEY=SECRET)
    running = command.start(
        "cp",
        tmp_path / "large",
        tmp_path / "copy",
        "--topology",
        topology,
        "--limit-rate",
        "8MB/s",
        "--chunk-size",
        "5MiB",
    )
    running.wait_for_bytes(1 * MIB)
    environments = {name: Path(f"/proc/{pid}/environ").read_bytes() for name, pid in running.gateways().items()}
    holding = {name: SECRET.encode() in environment for name, environment in environments.items()}
    running.finish().expect(0)
    assert holding == {"lead": True, "source": False, "relay": False, "sink": False}


class Echo(BaseHTTPRequestHandler):
    """Lists one object, and refuses to send it with a message that repeats the request, as debugging proxies do."""

    protocol_version = "HTTP/1.1"
    listings: ClassVar[dict[str, str]] = {
        "list-type": "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>key</Key>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag><Size>5</Size></Contents>"
        "</ListBucketResult>",
        "comp=list": "<EnumerationResults><Blobs><Blob><Name>key</Name><Properties>"
        "<Last-Modified>Thu, 01 Jan 2026 00:00:00 GMT</Last-Modified><Etag>e</Etag>"
        "<Content-Length>5</Content-Length><BlobType>BlockBlob</BlobType></Properties></Blob></Blobs><NextMarker/>"
        "</EnumerationResults>",
    }

    def do_GET(self) -> None:
        """Answer a request."""
        listing = next((answer for mark, answer in self.listings.items() if mark in self.path), None)
        said = escape(f"you sent {self.path} {dict(self.headers)}")
        refusal = f"<Error><Code>AccessDenied</Code><Message>{said}</Message></Error>"
        body = (listing or refusal).encode()
        self.send_response(200 if listing else 403)
        self.send_header("Content-Length", str(len(body)))
        for name in ("x-amz-request-id", "x-ms-request-id", "x-guploader-uploadid"):
            self.send_header(name, self.headers.get("x-amz-security-token") or self.headers.get("Authorization") or "")
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """Answer a request for a token."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        granted = {"access_token": SECRET, "expires_in": 3600, "token_type": "Bearer"}
        refused = {"error": "invalid_grant", "error_description": f"you sent {self.path} {body} {unquote_plus(body)}"}
        answer = json.dumps(granted if self.path == "/token" else refused).encode()
        self.send_response(200 if self.path == "/token" else 400)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


@pytest.fixture
def echo() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("kind", ["s3", "az-token", "az-sas"])
def test_a_server_that_repeats_the_request_makes_no_secret_public(command: Command, echo: str, kind: str) -> None:
    where = {
        "s3": (
            "s3://bucket",
            {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "x" * 20, "AWS_SESSION_TOKEN": SECRET},
        ),
        "az-token": ("az://account/container", {"AZURE_STORAGE_TOKEN": SECRET}),
        "az-sas": ("az://account/container", {"AZURE_STORAGE_SAS_KEY": f"sv=2024-11-04&sig={SECRET}"}),
    }
    url, environment = where[kind]
    command.environment.update(environment)
    options = ["--src-endpoint", echo, *(["--src-region", "us-east-1", "--src-path-style"] if kind == "s3" else [])]
    failed = command.run("cp", "-r", f"{url}/", "copy", *options, "--report", "report", "--keep-logs").expect(7)
    assert "you sent" in failed.stderr and "[redacted]" in failed.stderr
    assert SECRET not in failed.stdout + failed.stderr + stored(command)
    assert "Signature=" not in failed.stderr + stored(command)


def google_user(folder: Path, token_uri: str) -> str:
    """Write a credential file, outside the command's home, and return its path."""
    path = folder / "credentials.json"
    secrets = {"client_secret": f"{SECRET}/client+", "refresh_token": f"{SECRET}/refresh+"}
    path.write_text(json.dumps({"type": "authorized_user", "client_id": "me", "token_uri": token_uri, **secrets}))
    return str(path)


def test_a_google_store_that_repeats_the_request_makes_no_token_public(
    command: Command, echo: str, tmp_path: Path
) -> None:
    command.environment["GOOGLE_APPLICATION_CREDENTIALS"] = google_user(tmp_path, f"{echo}/token")
    words = ("cp", "-r", "gs://bucket/", "copy", "--src-endpoint", echo, "--report", "report", "--keep-logs")
    failed = command.run(*words).expect(7)
    assert "you sent" in failed.stderr and "[redacted]" in failed.stderr
    assert SECRET not in failed.stdout + failed.stderr + stored(command)


def test_a_token_server_that_repeats_the_request_makes_no_secret_public(
    command: Command, echo: str, tmp_path: Path
) -> None:
    command.environment["GOOGLE_APPLICATION_CREDENTIALS"] = google_user(tmp_path, f"{echo}/refusing")
    words = ("cp", "-r", "gs://bucket/", "copy", "--src-endpoint", echo, "--report", "report", "--keep-logs")
    failed = command.run(*words).expect(7)
    assert "you sent" in failed.stderr and "invalid_grant" in failed.stderr
    assert SECRET not in failed.stdout + failed.stderr + stored(command)
