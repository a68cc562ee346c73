"""The server of the stand-in, and what a test does with it."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.servers.install import own_go_program
from testbed.servers.process import Server, ServerError, free_port, spawn, temporary_folder, wait_until_answering
from testbed.servers.tls import make_certificates

__all__ = ["GROUP", "IDENTITY", "SUBSCRIPTION", "AzureApi", "azure_api", "azure_program"]

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
GROUP = "tradewind"
IDENTITY = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"
    "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/gateways"
)
MODULE = Path(__file__).with_name("api")
ANSWER_S = 30.0
METADATA = "169.254.169.254:80"
"""Address of Azure's metadata service."""


class AzureApi:
    """The running stand-in."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.endpoint = server.endpoint
        self._context = ssl.create_default_context(cafile=str(server.ca_file))

    def environment(self, principal: str = "owner") -> dict[str, str]:
        """Return the variables with which the real clients sign in here, as a managed identity of this name."""
        return {
            "IDENTITY_ENDPOINT": f"{self.endpoint}/_testbed/identity",
            "IDENTITY_HEADER": principal,
            "REQUESTS_CA_BUNDLE": str(self.server.ca_file),
        }

    def document(self, **changes: Any) -> dict[str, Any]:
        """Return the document of a provider here."""
        return {
            "kind": "azure",
            "subscription": SUBSCRIPTION,
            "resource_group": GROUP,
            "regions": ["westeurope", "eastus"],
            "endpoint": self.endpoint,
            "settles_s": 0.0,
            "programs": [{"processor": "x86_64", "url": "http://192.0.2.1/gateway", "sha256": "0" * 64}],
            **changes,
        }

    def ask(self, what: str, body: Any = None, method: str = "PUT") -> Any:
        """Send a request of the test's own, and return the JSON of the answer, if it is JSON.

        Raises ServerError with the end of the stand-in's log if it does not answer.
        """
        data = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.endpoint}/_testbed/{what}", data=data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S, context=self._context) as answer:
                content = answer.read()
        except urllib.error.HTTPError:
            raise
        except OSError as error:
            raise ServerError(f"the stand-in of Azure does not answer: {error}\n{self.server.log()}") from error
        return json.loads(content) if content.startswith((b"{", b"[")) else content.decode()

    def change(self, **settings: Any) -> None:
        """Change settings of the cloud (`state.go`)."""
        self.ask("settings", settings)

    def fault(self, *faults: Mapping[str, Any]) -> None:
        """Set the faults (`admin.go`); the former ones are over."""
        self.ask("faults", list(faults))

    def allow(self, principal: str, actions: list[str], at: Mapping[str, list[str]] | None = None) -> None:
        """Let a principal do these actions, and no others.

        `at` has further ones by the id of the only resource for which they are listed; requests do not heed them.
        """
        self.ask("principals", {principal: {"name": principal, "actions": actions, "at": at or {}}})

    def calls(self) -> list[tuple[str, str]]:
        """Return the method and path of each call so far, without those that poll operations."""
        return [(call["method"], call["path"]) for call in self.ask("calls", method="GET")["calls"] or ()]

    def reads_of_states(self) -> int:
        """Return how often the state of a machine was read so far. An operation reads its machine without it."""
        calls = self.ask("calls", method="GET")["calls"] or ()
        return sum("/virtualMachines/" in call["path"] and "instanceView" in call["query"] for call in calls)

    def held(self) -> int:
        """Return how many calls were held so far: they get no answer."""
        return int(self.ask("calls", method="GET")["held"])

    def resources(self) -> dict[str, list[str]]:
        """Return the names of all resources by type."""
        found: dict[str, list[str]] = self.ask("resources", method="GET")
        return found


def azure_program() -> Path:
    """Return the stand-in's program, which is built if it is missing. Raises InstallError."""
    return own_go_program("azure-api", MODULE)


@contextmanager
def azure_api(host: str = "127.0.0.1", guests: str | None = None) -> Iterator[AzureApi]:
    """Run the stand-in. `guests` is the path of the network namespace in which machines reach its metadata service."""
    program = azure_program()
    folder, port = temporary_folder("azure"), free_port()
    certificates = make_certificates(folder, host)
    command = [str(program), "-listen", f"{host}:{port}", "-cert", str(certificates.certificate)]
    command += ["-key", str(certificates.key), *(["-guests", METADATA, "-guests-netns", guests] if guests else [])]
    process = spawn(command, folder)
    endpoint = f"https://{host}:{port}"
    wait_until_answering(process, f"{endpoint}/_testbed/calls", folder, certificates.ca)
    with Server("azure", endpoint, {}, process, folder, ca_file=certificates.ca) as server:
        yield AzureApi(server)
