"""The owner of a fleet's gateways: a process beside this one that enrols them and forwards control calls to them.

Each gateway is reached over HTTP through one of the owner's Unix sockets, `control/NAME` in the fleet's folder, like a
gateway of this host. The owner ends with this process.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tradewind.errors import GatewayError, GatewayLost
from tradewind.gateway.client import STORES, request
from tradewind.gateway.process import OWNER_NAME, READY_S, BinaryProcess
from tradewind.model.document import to_document
from tradewind.model.program import CONTRACT_VERSION, StoreUse
from tradewind.model.records import dataclass, field

__all__ = ["FleetOwner", "Join", "JoinToken"]

#: The admin socket, in the fleet's folder.
ADMIN_SOCKET = "owner.sock"
#: Timeout of a request to the owner's admin socket.
ADMIN_S = 10.0
#: The same for a question that is repeated soon.
LEAVING_S = 1.0
#: Timeout of a request to delegate credentials. The owner needs at most 60 s to find them and 60 s to send them
#: (`CREDENTIALS_TIMEOUT`).
CREDENTIALS_S = 130.0
#: Validity of a join token, within which its machine must boot. The owner accepts a token for no longer.
TOKEN_S = 600
TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class JoinToken:
    """The secret with which one gateway enrols, once."""

    hex: str = field(repr=False)
    expires_unix_s: int

    @classmethod
    def new(cls) -> JoinToken:
        """Return a random token, valid from now for TOKEN_S."""
        return cls(os.urandom(TOKEN_BYTES).hex(), int(time.time()) + TOKEN_S)


@dataclass(frozen=True, slots=True)
class Join:
    """The data with which a machine's gateway joins the fleet (`Join` of the contract). It includes the token.

    `owner` is the address of the owner, `host:port`, for a gateway that calls home.
    """

    fleet_id: str
    name: str
    token: JoinToken
    ca_pem: str = field(repr=False)
    owner: str

    def listening(self, address: str, data: str | None) -> str:
        """Return the document, as JSON on one line, of a gateway that the owner dials at `address`, `ip:port`.

        `data` is the gateway's data address, `ip:port`; None if it has no data port.
        """
        return self._document({"kind": "listen", "address": address}, data)

    def calling(self, data: str | None) -> str:
        """Return the document of a gateway that calls home."""
        return self._document({"kind": "call", "owner": self.owner}, data)

    def beside(self, socket: str, data: str | None) -> str:
        """Return the document of a gateway beside the owner, which has its own control socket at this path."""
        return self._document({"kind": "beside", "owner": self.owner, "socket": socket}, data)

    def _document(self, control: dict[str, str], data: str | None) -> str:
        document: dict[str, Any] = {
            "contract": CONTRACT_VERSION,
            "fleet": self.fleet_id,
            "name": self.name,
            "token_hex": self.token.hex,
            "expires_unix_s": self.token.expires_unix_s,
            "ca_pem": self.ca_pem,
            "control": control,
        }
        return json.dumps(document if data is None else {**document, "data": data})


class _OwnerProcess(BinaryProcess):
    command = "owner"


class FleetOwner:
    """A running owner. `ca_pem` is the certificate of the fleet's CA; gateways that call home reach it at `home`.

    With `keeps_ca` the CA's key is in the fleet's folder, and a later owner can take over the fleet.
    """

    def __init__(
        self,
        binary: str,
        fleet_id: str,
        folder: Path,
        log_file: str,
        *,
        listen: str,
        enter: Sequence[str],
        environment: Mapping[str, str],
        descriptors: tuple[int, ...] = (),
        keeps_ca: bool = False,
    ) -> None:
        """Start the owner with the fleet's private folder, and return when it answers.

        `listen` is its address for gateways that call home, `ip:port`. `enter`, `environment` and
        `descriptors`, which it inherits, are passed to BinaryProcess. Raises GatewayError.
        """
        self._fleet_id = fleet_id
        arguments = ["--fleet", fleet_id, "--folder", str(folder), "--home", listen]
        arguments += ["--keep-ca"] if keeps_ca else []
        self._process = _OwnerProcess(binary, OWNER_NAME, arguments, log_file, descriptors, enter, environment)
        #: The folder's path may be too long for that of a socket, so sockets are reached through a descriptor.
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            ready = self._process.read_ready(READY_S)
            self.ca_pem: str = ready["ca_pem"]
            self.home: str = ready["home"]
        except BaseException:
            self.close(0.0)
            raise

    def join(self, name: str, token: JoinToken) -> Join:
        """Return the data with which a machine joins this fleet."""
        return Join(self._fleet_id, name, token, self.ca_pem, self.home)

    def add(self, name: str, token: JoinToken | None, *, dial: str | None = None, calls_home: bool = False) -> None:
        """Let a gateway enrol. Call it again with the gateway's address once that is known. Raises GatewayError.

        A gateway that enrolled with an earlier owner of the fleet has no `token`.
        `dial` is `host:port`; for a gateway beside the owner, `unix:PATH` relative to the fleet's folder.
        """
        known = {} if token is None else {"token_hex": token.hex}
        expires_unix_s = 0 if token is None else token.expires_unix_s
        entry = {**known, "expires_unix_s": expires_unix_s, "calls_home": calls_home, "dial": dial}
        self._ask("PUT", f"/v1/gateways/{name}", entry)

    def delegate(self, name: str, stores: Sequence[StoreUse], *, on_this_host: bool) -> None:
        """Send a gateway credentials of these stores, and renew them from now on.

        They are limited to the keys that it uses. If the gateway runs `on_this_host`, they are those of this machine.
        Raises CredentialsNotSent if they cannot be limited, GatewayError.
        """
        body = {"stores": to_document(stores), "on_this_host": on_this_host}
        self._ask("PUT", f"/v1/gateways/{name}{STORES}", body, CREDENTIALS_S)

    def remove(self, name: str) -> None:
        """Remove a gateway. No effect if it was not added or the owner has ended."""
        with suppress(GatewayLost):
            self._ask("DELETE", f"/v1/gateways/{name}")

    def states(self, timeout_s: float = ADMIN_S) -> dict[str, dict[str, Any]]:
        """Return the state of each gateway (`GatewayState` of the contract), by name. Raises GatewayError."""
        found = json.loads(self._ask("GET", "/v1/gateways", timeout_s=timeout_s))["gateways"]
        return {state["name"]: state for state in found}

    def leaving(self) -> dict[str, float]:
        """Return the gateways whose machines the cloud takes back, each with the time for which it still works [s].

        Empty if the owner does not answer at once.
        """
        with suppress(GatewayError):
            found = {name: state["leaves_unix_s"] for name, state in self.states(LEAVING_S).items()}
            return {name: max(0.0, at_s - time.time()) for name, at_s in found.items() if at_s is not None}
        return {}

    def failure(self, name: str) -> str | None:
        """Return why a gateway did not enrol or cannot be reached; None if that is unknown."""
        with suppress(GatewayError):
            state = self.states().get(name)
            return None if state is None else state["failure"]
        return self._process.ending(0.0)

    def close(self, grace_s: float) -> None:
        """End the owner within `grace_s`. May be called more than once."""
        if grace_s > 0:
            self._process.begin_stop()
            self._process.wait_exit(grace_s)
        self._process.kill()
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = ADMIN_S) -> bytes:
        admin = f"unix:/proc/self/fd/{self._folder}/{ADMIN_SOCKET}"
        return request(admin, method, path, None if body is None else json.dumps(body).encode(), timeout_s, "the owner")
