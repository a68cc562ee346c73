"""A real OIDC issuer for tests: discovery and keys over loopback HTTP, and tokens that it signs."""

from __future__ import annotations

import json
import time
import warnings
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

from testbed.loopback import Answer, LoopbackServer, Received

AUDIENCE = "tradewind"


class Issuer:
    """An issuer with one key of each type. `requests` counts its answers by path."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {
            "RS256": RSAKey.generate_key(2048, {"kid": "rsa"}),
            "ES256": ECKey.generate_key("P-256", {"kid": "ec"}),
            "EdDSA": OKPKey.generate_key("Ed25519", {"kid": "ed"}),
        }
        self.requests: dict[str, int] = {}
        #: Further keys of its set, as documents.
        self.others: list[object] = []
        self._server = LoopbackServer(self._answer)
        self.url = self._server.url

    def close(self) -> None:
        self._server.close()

    def _answer(self, received: Received) -> Answer:
        self.requests[received.path] = self.requests.get(received.path, 0) + 1
        documents = {
            "/.well-known/openid-configuration": {"issuer": self.url, "jwks_uri": f"{self.url}/keys"},
            "/keys": {"keys": [*self.others, *(key.as_dict(private=False) for key in self.keys.values())]},
        }
        return Answer(body=json.dumps(documents[received.path]).encode())

    def token(self, algorithm: str = "ES256", key: Any = None, header: Any = None, **claims: Any) -> str:
        """Return a token; a claim of None is left out."""
        now = int(time.time())
        base = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "exp": now + 600, "nbf": now, "iat": now}
        found = {name: value for name, value in {**base, **claims}.items() if value is not None}
        key = key or self.keys[algorithm]
        head = {"alg": algorithm, "kid": key.kid, **(header or {})}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # joserfc warns about the name EdDSA, which issuers still use.
            return jws.serialize_compact(head, json.dumps(found).encode(), key, algorithms=[algorithm])
