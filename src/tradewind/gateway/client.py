"""Client of one gateway's control API, over a Unix socket or over HTTPS with the fleet's identities."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.errors import GatewayError, GatewayLost
from tradewind.gateway.binary import require_contract
from tradewind.gateway.exchange import Exchange
from tradewind.model.plan import Deployment

#: A gateway answers any request but events within so long, else it is lost.
REQUEST_S = 30.0
#: Most of an answer that is read; larger ones are a mistake.
ANSWER_BYTES_MAX = 16 << 20
#: Longest line of events that is read.
EVENT_BYTES_MAX = 4 << 20
#: A gateway without events sends an empty line every 5 s. It is lost after this time of silence.
EVENT_SILENCE_S = 60.0
#: The client's own name in a fleet's certificates. No gateway may have it.
CLIENT_NAME = "tradewind-client"


@dataclass(frozen=True, slots=True)
class FleetIdentity:
    """Identity of this client for a gateway over HTTPS: folder made by `make_identities`, our name, and the gateway's
    name.
    """

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

    def version(self, timeout_s: float = REQUEST_S) -> dict[str, Any]:
        """`GET /v1/version`. Raises GatewayError if the gateway speaks another major version of the contract."""
        answer: dict[str, Any] = json.loads(self._request("GET", "/v1/version", timeout_s=timeout_s))
        require_contract(answer["gateway"], answer["contract"])
        return answer

    def put_program(self, program: dict[str, Any]) -> None:
        """`PUT /v1/program`. Raises GatewayError if the gateway refuses it."""
        self._request("PUT", "/v1/program", json.dumps(program).encode())

    def put_routes(self, routes: dict[str, Any], timeout_s: float = REQUEST_S) -> None:
        """`PUT /v1/routes`: other routes for the program that runs. Raises GatewayError if the gateway refuses them."""
        self._request("PUT", "/v1/routes", json.dumps(routes).encode(), timeout_s)

    def drain(self) -> None:
        """`POST /v1/drain`: checkpoint and stop; the event stream then ends with outcome `interrupted`."""
        self._request("POST", "/v1/drain")

    def renew_lease(self, lease_s: int, timeout_s: float = REQUEST_S) -> None:
        """`POST /v1/lease`: the gateway runs for this many seconds from now. Raises GatewayError."""
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
        try:
            with self._exchange("GET", "/v1/events", None, EVENT_SILENCE_S) as answer:
                if answer.status != 200:
                    raise _refused("GET /v1/events", answer)
                while line := answer.readline(EVENT_BYTES_MAX):
                    if line != b"\n":
                        yield line
        except TimeoutError as error:
            silent = f"it sent nothing for {EVENT_SILENCE_S:.0f} s"
            raise GatewayLost(f"the gateway at {self.control} is lost: {silent}") from error
        except OSError as error:
            raise GatewayLost(f"the gateway at {self.control} is gone: {error}") from error

    def _request(self, method: str, path: str, body: bytes | None = None, timeout_s: float = REQUEST_S) -> bytes:
        try:
            with self._exchange(method, path, body, timeout_s) as answer:
                if answer.status >= 300:
                    raise _refused(f"{method} {path}", answer)
                return answer.read(ANSWER_BYTES_MAX)
        except OSError as error:
            raise GatewayLost(f"the gateway at {self.control} does not answer: {error}") from error

    def _exchange(self, method: str, path: str, body: bytes | None, timeout_s: float) -> Exchange:
        return Exchange(self._connect(timeout_s), method, path, body)

    def _connect(self, timeout_s: float) -> socket.socket:
        if self.control.startswith("unix:"):
            return _connect_unix(self.control.removeprefix("unix:"), timeout_s)
        if self._identity is None:
            raise GatewayError(f"the gateway at {self.control} is reached over HTTPS only with a fleet identity")
        from tradewind.gateway.tls import connect_tls  # A job on this machine needs no TLS.

        host, _, port = self.control.rpartition(":")
        identity = self._identity
        return connect_tls((host, int(port)), timeout_s, identity.folder, identity.own_name, identity.peer_name)


def _connect_unix(path: str, timeout_s: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


def _refused(request: str, answer: Exchange) -> GatewayError:
    text = answer.read(ANSWER_BYTES_MAX).decode(errors="replace").strip()
    try:
        document = json.loads(text)
        text, hint = document["error"], document.get("hint")
    except (ValueError, KeyError, TypeError):
        hint = None
    return GatewayError(f"the gateway refused {request} ({answer.status}): {text}", hint=hint)
