"""Requests of guests that reach a server which does not run their job: it passes them on to the one that does.

A balancer gives each request to any server, but the desk of a guest is in one process. So each server has a second
listener at `--guest-address`, for these requests alone, and its certificate is in the database. Two things are proven:

- the caller knows the server by this certificate, which it trusts because it trusts the database;
- the server knows the caller by a proof that only holders of the key of the state folder can make. The proof names this
  certificate, so other servers refuse it.

The token of the guest is passed on and checked there again, so a server gains no rights by passing on.
"""

from __future__ import annotations

import json
import logging
import ssl
from functools import lru_cache
from http.client import HTTPException, HTTPSConnection, IncompleteRead
from typing import Any

from fastapi import Response

from tradewind.model.records import dataclass
from tradewind.service.limits import BODY_BYTES_MAX, PEER_S_MAX
from tradewind.service.problems import ApiProblem
from tradewind.service.sealing import Sealer

__all__ = ["PROOF_HEADER", "Peer", "tls_trusting"]

_LOG = logging.getLogger("tradewind.service")
#: Header with the proof of a server.
PROOF_HEADER = "Tradewind-Peer"
#: Headers of an answer that the guest gets as well.
PASSED_HEADERS = ("Content-Type", "Cache-Control", "Retry-After")
#: Servers whose certificates are kept ready.
CONTEXTS_MAX = 64


@dataclass(frozen=True, slots=True)
class Peer:
    """Another server: the IP address and port of its listener for servers, and its certificate (PEM)."""

    host: str
    port: int
    certificate: str

    def document(self) -> str:
        """Return the peer as the database keeps it (JSON)."""
        return json.dumps({"host": self.host, "port": self.port, "certificate": self.certificate})

    @classmethod
    def from_document(cls, text: str) -> Peer:
        """Return a peer of the database."""
        return cls(**json.loads(text))

    def pass_on(self, sealer: Sealer, path: str, authorization: str, body: dict[str, Any]) -> Response:
        """Send a POST request of a guest to the server, and return its answer.

        Raises ApiProblem 503 if the server does not answer, or has another key.
        """
        headers = {
            "Authorization": authorization,
            "Content-Type": "application/json",
            PROOF_HEADER: sealer.proof(self.certificate),
        }
        connection = HTTPSConnection(self.host, self.port, timeout=PEER_S_MAX, context=tls_trusting(self.certificate))
        try:
            connection.request("POST", path, json.dumps(body).encode(), headers)
            answer = connection.getresponse()
            status, content = answer.status, answer.read(BODY_BYTES_MAX)
            if answer.length:  # Reading a limited length reports no end within the answer.
                raise IncompleteRead(content, answer.length)
            passed = {name: answer.headers[name] for name in PASSED_HEADERS if name in answer.headers}
        except (OSError, HTTPException) as error:
            # It may have just ended. The next request finds the server that has adopted the job.
            _LOG.info("server at %s:%d: %s", self.host, self.port, error)
            raise _unreachable("does not answer") from None
        finally:
            connection.close()
        if status == 403:  # The token has the scope: it was checked here.
            _LOG.error("server at %s:%d refuses this one: is its --key-file another?", self.host, self.port)
            raise _unreachable("refuses this server")
        return Response(content, status, passed)


def _unreachable(why: str) -> ApiProblem:
    return ApiProblem(503, f"another server runs this job, and {why}", headers={"Retry-After": "1"})


@lru_cache(maxsize=CONTEXTS_MAX)
def tls_trusting(certificate: str) -> ssl.SSLContext:
    """Return the settings of TLS that trust one certificate alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=certificate)
    return context
