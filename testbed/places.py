"""One empty place per kind of store: its URL, the flags that reach it, and our own eyes on it."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Protocol

from testbed.azure import Azure
from testbed.drive import Command
from testbed.s3 import S3
from testbed.servers.process import Server
from testbed.trees import tree_hashes


class Place(Protocol):
    """What stories need of a place."""

    url: str

    def flags(self, side: str) -> list[str]:
        """What to add to the command when this is the ``src`` or the ``dst``."""

    def put(self, key: str, content: bytes) -> None:
        """Writes one object."""

    def get(self, key: str) -> bytes:
        """Reads one object."""

    def sizes(self) -> dict[str, int]:
        """Everything that is visible there: size by key."""

    def unfinished(self) -> list[str]:
        """Uploads and temporary files that somebody left behind."""


class S3Place:
    """A bucket. The command reaches it with a profile of its own."""

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
        """One profile per server, so that two servers can be the two sides of one command."""
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
        """Endpoint (which a test may have replaced by a proxy's), profile and region."""
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
        """Writes one object."""
        self.client.put(self.bucket, key, content)

    def get(self, key: str) -> bytes:
        """Reads one object."""
        return self.client.get(self.bucket, key)

    def sizes(self) -> dict[str, int]:
        """Size by key."""
        return self.client.sizes(self.bucket)

    def unfinished(self) -> list[str]:
        """Keys of multipart uploads that are neither completed nor aborted."""
        return [upload.key for upload in self.client.uploads(self.bucket)]


class GcsPlace(S3Place):
    """A bucket of Google's XML API, whose requests our S3 client can make as well."""

    scheme = "gs"

    def _configure(self, command: Command) -> None:
        command.environment.update(self._server.environment)

    def flags(self, side: str) -> list[str]:
        """The endpoint; the service account is in the environment."""
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
        """The endpoint; the account's key is in the environment."""
        return [f"--{side}-endpoint", self.endpoint]

    def put(self, key: str, content: bytes) -> None:
        """Writes one blob."""
        self.client.put(self.container, key, content)

    def get(self, key: str) -> bytes:
        """Reads one blob."""
        return self.client.get(self.container, key)

    def sizes(self) -> dict[str, int]:
        """Size by name."""
        return self.client.sizes(self.container)

    def unfinished(self) -> list[str]:
        """Blobs of which there are only uncommitted blocks."""
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
        """Writes one file."""
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def get(self, key: str) -> bytes:
        """Reads one file."""
        return (self.folder / key).read_bytes()

    def sizes(self) -> dict[str, int]:
        """Size by relative name; temporary files would show here too."""
        return {name: (self.folder / name).stat().st_size for name in tree_hashes(self.folder)}

    def unfinished(self) -> list[str]:
        """Nothing: :meth:`sizes` shows temporary files, and no test expects one."""
        return []
