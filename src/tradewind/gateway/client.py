"""Client of one gateway's control API, over a Unix socket or over HTTPS with the fleet's identities."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

from tradewind.errors import GatewayError, GatewayLost
from tradewind.gateway.tls import client_context
from tradewind.gateway.version import require_contract
from tradewind.model.deployment import Deployment

#: A gateway answers any request but events within so long, else it is lost.
REQUEST_S = 30.0
#: Most of an answer that is read; larger ones are a mistake.
ANSWER_BYTES_MAX = 16 << 20
#: Longest line of events that is read.
EVENT_BYTES_MAX = 4 << 20
#: A gateway with nothing to tell sends an empty line of events every 5 s. One that is silent for so long is lost.
EVENT_SILENCE_S = 60.0
#: The client's own name in a fleet's certificates. No gateway may have it.
CLIENT_NAME = "tradewind-client"


@dataclass(frozen=True, slots=True)
class FleetIdentity:
    """Who we are to a gateway over HTTPS: folder made by `make_identities`, our name in it, and the gateway's name."""

    folder: Path
    own_name: str
    peer_name: str


class GatewayClient:
    """One gateway's control API. Each request has its own connection, so that any thread and a signal handler may call.

    `control` is `unix:PATH` or `ip:port`; the latter needs `identity`.
    """

    def __init__(self, control: str, identity: FleetIdentity | None = None) -> None:
        self.control = control
        self._identity = identity

    @classmethod
    def of(cls, deployment: Deployment, name: str) -> GatewayClient:
        """The client of a gateway of a fleet, with the fleet's identity where there is one. Raises KeyError."""
        identities = deployment.identities
        identity = None if identities is None else FleetIdentity(identities, CLIENT_NAME, name)
        return cls(deployment.addresses[name].control, identity)

    def version(self) -> dict[str, Any]:
        """`GET /v1/version`. Raises GatewayError if the gateway speaks another major version of the contract."""
        answer: dict[str, Any] = json.loads(self._request("GET", "/v1/version"))
        require_contract(answer["gateway"], answer["contract"])
        return answer

    def put_program(self, program: dict[str, Any]) -> None:
        """`PUT /v1/program`. Raises GatewayError if the gateway refuses it."""
        self._request("PUT", "/v1/program", json.dumps(program).encode())

    def put_routes(self, routes: dict[str, Any]) -> None:
        """`PUT /v1/routes`: other routes for the program that runs. Raises GatewayError if the gateway refuses them."""
        self._request("PUT", "/v1/routes", json.dumps(routes).encode())

    def drain(self) -> None:
        """`POST /v1/drain`: checkpoint and stop; the event stream then ends with outcome `interrupted`."""
        self._request("POST", "/v1/drain")

    def renew_lease(self, lease_s: int, timeout_s: float = REQUEST_S) -> None:
        """`POST /v1/lease`: it lives so many seconds more, whatever was left. Raises GatewayError."""
        self._request("POST", "/v1/lease", json.dumps({"lease_s": lease_s}).encode(), timeout_s)

    def receive_load(self, sender: str, connections: int, warmup_s: float, measure_s: float) -> dict[str, Any]:
        """`POST /v1/probe/receive`: counts what another gateway sends. Blocks meanwhile. Raises GatewayError."""
        body = {
            "from": sender,
            "connections": connections,
            "warmup_ms": round(warmup_s * 1e3),
            "measure_ms": round(measure_s * 1e3),
        }
        return self._probe("/v1/probe/receive", body, warmup_s + measure_s)

    def send_load(self, receiver: str, address: str, connections: int, at_most_s: float) -> dict[str, Any]:
        """`POST /v1/probe/send`: sends until the receiver closes. Blocks meanwhile. Raises GatewayError."""
        body = {"to": receiver, "address": address, "connections": connections, "at_most_ms": round(at_most_s * 1e3)}
        return self._probe("/v1/probe/send", body, at_most_s)

    def _probe(self, path: str, body: dict[str, Any], lasting_s: float) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(
            self._request("POST", path, json.dumps(body).encode(), timeout_s=lasting_s + REQUEST_S)
        )
        return answer

    def metrics(self) -> str:
        """`GET /metrics`, in the Prometheus text format."""
        return self._request("GET", "/metrics").decode()

    def events(self) -> Iterator[bytes]:
        """`GET /v1/events`: one JSON line per item, until the gateway ends the stream.

        Raises GatewayLost, also when the gateway is silent for EVENT_SILENCE_S.
        """
        connection = self._connect(timeout_s=EVENT_SILENCE_S)
        try:
            connection.request("GET", "/v1/events")
            response = connection.getresponse()
            if response.status != 200:
                raise _refused("GET /v1/events", response)
            while line := response.readline(EVENT_BYTES_MAX):
                if line != b"\n":
                    yield line
        except TimeoutError as error:
            silent = f"it sent nothing for {EVENT_SILENCE_S:.0f} s"
            raise GatewayLost(f"the gateway at {self.control} is lost: {silent}") from error
        except (OSError, HTTPException) as error:
            raise GatewayLost(f"the gateway at {self.control} is gone: {error}") from error
        finally:
            connection.close()

    def _request(self, method: str, path: str, body: bytes | None = None, timeout_s: float = REQUEST_S) -> bytes:
        connection = self._connect(timeout_s=timeout_s)
        try:
            connection.request(method, path, body, {"content-type": "application/json"} if body else {})
            response = connection.getresponse()
            if response.status >= 300:
                raise _refused(f"{method} {path}", response)
            return response.read(ANSWER_BYTES_MAX)
        except (OSError, HTTPException) as error:
            raise GatewayLost(f"the gateway at {self.control} does not answer: {error}") from error
        finally:
            connection.close()

    def _connect(self, timeout_s: float | None) -> HTTPConnection:
        if self.control.startswith("unix:"):
            return _UnixConnection(self.control.removeprefix("unix:"), timeout_s)
        if self._identity is None:
            raise GatewayError(f"the gateway at {self.control} is reached over HTTPS only with a fleet identity")
        host, _, port = self.control.rpartition(":")
        return _FleetConnection(host, int(port), timeout_s, self._identity)


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str, timeout_s: float | None) -> None:
        super().__init__("gateway", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _FleetConnection(HTTPConnection):
    """HTTPS where the peer is known by its gateway's name, whatever its address."""

    def __init__(self, host: str, port: int, timeout_s: float | None, identity: FleetIdentity) -> None:
        super().__init__(host, port, timeout=timeout_s)
        self._identity = identity

    def connect(self) -> None:
        context: ssl.SSLContext = client_context(self._identity.folder, self._identity.own_name)
        plain = socket.create_connection((self.host, self.port), self.timeout)
        self.sock = context.wrap_socket(plain, server_hostname=self._identity.peer_name)


def _refused(request: str, response: HTTPResponse) -> GatewayError:
    text = response.read(ANSWER_BYTES_MAX).decode(errors="replace").strip()
    try:
        answer = json.loads(text)
        text, hint = answer["error"], answer.get("hint")
    except (ValueError, KeyError, TypeError):
        hint = None
    return GatewayError(f"the gateway refused {request} ({response.status}): {text}", hint=hint)
