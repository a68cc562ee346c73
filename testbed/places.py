"""One empty place per kind of store: its URL, the flags to reach it, and independent access to its objects."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Protocol

from testbed.azure import Azure
from testbed.drive import Command
from testbed.s3 import S3
from testbed.servers.process import Server
from testbed.trees import tree_hashes
from tradewind.model.store import StoreSpec


def nothing_exists(_store: StoreSpec, _key: str) -> tuple[bool, bool]:
    """Answer for `resolve` that no store has anything by the name of a pattern."""
    return False, False


class Place(Protocol):
    """The interface of a place for tests."""

    url: str

    def flags(self, side: str) -> list[str]:
        """Return the command's flags for this place as ``src`` or ``dst``."""

    def put(self, key: str, content: bytes) -> None:
        """Write one object."""

    def get(self, key: str) -> bytes:
        """Read one object."""

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers of one object, with names in lower case; a file has none."""

    def sizes(self) -> dict[str, int]:
        """Return the size of every visible object, by key."""

    def unfinished(self) -> list[str]:
        """Return the uploads and temporary files that were left behind."""


class S3Place:
    """A bucket, for which the command has its own profile."""

    scheme = "s3"

    def __init__(self, server: Server, command: Command) -> None:
        self.bucket = f"place-{secrets.token_hex(6)}"
        self.url = f"{self.scheme}://{self.bucket}"
        self.endpoint = server.endpoint
        self.client = S3(server.endpoint, server.access_key, server.secret_key, server.ca_file)
        self.client.create_bucket(self.bucket)
        self._server = server
        self._configure(command)

    def _configure(self, command: Command) -> None:
        """Write a profile per server, so that two servers can be the two sides of one command."""
        credentials = command.home / "aws-credentials"
        command.environment["AWS_SHARED_CREDENTIALS_FILE"] = str(credentials)
        command.environment["AWS_CONFIG_FILE"] = str(command.home / "aws-config")
        (command.home / "aws-config").touch()
        server = self._server
        section = f"[{server.name}]"
        known = credentials.read_text() if credentials.exists() else ""
        if section not in known:
            keys = f"aws_access_key_id = {server.access_key}\naws_secret_access_key = {server.secret_key}\n"
            credentials.write_text(f"{known}{section}\n{keys}")

    def flags(self, side: str) -> list[str]:
        """Return endpoint (which a test may have replaced by a proxy's), profile and region."""
        made = [
            f"--{side}-endpoint",
            self.endpoint,
            f"--{side}-profile",
            self._server.name,
            f"--{side}-region",
            "us-east-1",
        ]
        if self._server.ca_file is not None:
            made += [f"--{side}-ca-bundle", str(self._server.ca_file)]
        return made

    def put(self, key: str, content: bytes) -> None:
        """Write one object."""
        self.client.put(self.bucket, key, content)

    def get(self, key: str) -> bytes:
        """Read one object."""
        return self.client.get(self.bucket, key)

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers of one object."""
        return self.client.head(self.bucket, key)

    def sizes(self) -> dict[str, int]:
        """Return sizes by key."""
        return self.client.sizes(self.bucket)

    def unfinished(self) -> list[str]:
        """Return the keys of multipart uploads that are neither completed nor aborted."""
        return [upload.key for upload in self.client.uploads(self.bucket)]


class GcsPlace(S3Place):
    """A bucket of Google's XML API, with which our S3 client works as well."""

    scheme = "gs"

    def _configure(self, command: Command) -> None:
        command.environment.update(self._server.environment)

    def flags(self, side: str) -> list[str]:
        """Return the endpoint. The service account is in the environment."""
        return [f"--{side}-endpoint", self.endpoint]


class AzurePlace:
    """A container."""

    def __init__(self, server: Server, command: Command) -> None:
        self.container = f"place-{secrets.token_hex(6)}"
        self.url = f"az://{server.access_key}/{self.container}"
        self.endpoint = server.environment["AZURE_STORAGE_ENDPOINT"]
        self.client = Azure(server.endpoint, server.access_key, server.secret_key)
        self.client.create_container(self.container)
        command.environment["AZURE_STORAGE_ACCOUNT_KEY"] = server.secret_key

    def flags(self, side: str) -> list[str]:
        """Return the endpoint. The account's key is in the environment."""
        return [f"--{side}-endpoint", self.endpoint]

    def put(self, key: str, content: bytes) -> None:
        """Write one blob."""
        self.client.put(self.container, key, content)

    def get(self, key: str) -> bytes:
        """Read one blob."""
        return self.client.get(self.container, key)

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers of one blob."""
        return self.client.head(self.container, key)

    def sizes(self) -> dict[str, int]:
        """Return sizes by name."""
        return self.client.sizes(self.container)

    def unfinished(self) -> list[str]:
        """Return the blobs that consist only of uncommitted blocks."""
        return sorted(set(self.client.sizes(self.container, include_uncommitted=True)) - set(self.sizes()))


class FilePlace:
    """A folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.url = str(folder)

    def flags(self, side: str) -> list[str]:
        """None."""
        del side
        return []

    def put(self, key: str, content: bytes) -> None:
        """Write one file."""
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def get(self, key: str) -> bytes:
        """Read one file."""
        return (self.folder / key).read_bytes()

    def headers(self, key: str) -> dict[str, str]:
        """Return nothing: a file has no headers."""
        del key
        return {}

    def sizes(self) -> dict[str, int]:
        """Return sizes by relative name, including temporary files."""
        return {name: (self.folder / name).stat().st_size for name in tree_hashes(self.folder)}

    def unfinished(self) -> list[str]:
        """Return nothing: :meth:`sizes` includes temporary files, and no test expects one."""
        return []
