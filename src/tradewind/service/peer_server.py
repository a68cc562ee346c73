"""The listener of a server for the requests of guests that other servers pass on, see `peers`."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections import deque
from contextlib import suppress
from datetime import datetime, timezone
from hmac import compare_digest
from ipaddress import ip_address
from typing import Any

import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tradewind.service.guarded_http import guarded_http
from tradewind.service.limits import PEER_CONNECTIONS_MAX, STOP_S
from tradewind.service.peers import PROOF_HEADER, Peer
from tradewind.service.problems import problem_response
from tradewind.service.sealing import Sealer

__all__ = ["PeerServer"]

#: Each process makes a new certificate, and the clocks of servers may be wrong, so it never expires.
ALWAYS = datetime(2000, 1, 1, tzinfo=timezone.utc), datetime(9999, 12, 31, tzinfo=timezone.utc)


class PeerServer:
    """Listens at any free port of `address`, an IP address of this machine, with a new certificate. Close it."""

    def __init__(self, address: str, sealer: Sealer) -> None:
        """Bind the port, so that `peer` is known. Raises OSError."""
        self._socket = _Listener(address)
        self._identity, certificate = _new_identity(address)
        self.peer = Peer(address, self._socket.getsockname()[1], certificate)
        self._proof = sealer.proof(certificate)
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_alive(self) -> bool:
        """Return whether requests are answered."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, app: ASGIApp) -> None:
        """Answer requests of other servers by `app`, in a thread."""
        config = uvicorn.Config(
            _PeersOnly(app, self._proof),
            loop="asyncio",  # Another loop would not call `_Listener.accept`.
            http=guarded_http(is_behind_proxy=True),
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
            lifespan="off",
            timeout_graceful_shutdown=STOP_S,
            proxy_headers=False,
        )
        with tempfile.NamedTemporaryFile() as file:  # Only its owner can read it.
            file.write(self._identity)
            file.flush()
            config.ssl_certfile = file.name
            config.load()
        self._server = uvicorn.Server(config)
        run = {"sockets": [self._socket]}
        self._thread = threading.Thread(target=self._server.run, kwargs=run, name="peers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the listener, and the requests that it answers."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(2 * STOP_S)
        self._socket.close()


class _Listener(socket.socket):
    """Listens at any free port of an address. For a connection too many, the oldest one ends.

    Anybody can open connections that say nothing, and TLS gives each a minute: they would use up the files of the
    server. A request of another server takes a moment.
    """

    def __init__(self, address: str) -> None:
        super().__init__(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        self._accepted: deque[socket.socket] = deque()
        try:
            self.bind((address, 0))
            self.listen(128)
        except OSError:
            self.close()
            raise

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection, and end the oldest one if there are too many."""
        accepted = super().accept()
        self._accepted = deque(one for one in self._accepted if one.fileno() >= 0)
        if len(self._accepted) >= PEER_CONNECTIONS_MAX:
            with suppress(OSError):  # Its client has ended it.
                self._accepted.popleft().shutdown(socket.SHUT_RDWR)
        self._accepted.append(accepted[0])
        return accepted


class _PeersOnly:
    """Refuses requests without the proof of a server, before anything of their bodies is read."""

    def __init__(self, app: ASGIApp, proof: str) -> None:
        self._app, self._proof = app, proof.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        proof = Headers(scope=scope).get(PROOF_HEADER, "").encode()
        if compare_digest(proof, self._proof):
            await self._app(scope, receive, send)
            return
        refusal = problem_response(403, "only other servers of this service may send requests here")
        await refusal(scope, receive, send)


def _new_identity(address: str) -> tuple[bytes, str]:
    """Return the key and certificate of a server, and the certificate alone (PEM). It signs itself (RFC 5280)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tradewind server")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(ALWAYS[0])
        .not_valid_after(ALWAYS[1])
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return secret + certificate, certificate.decode()
