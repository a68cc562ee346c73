"""A real OIDC issuer for tests: discovery and keys over loopback HTTP, and tokens that it signs."""

from __future__ import annotations

import json
import threading
import time
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

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
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.requests[self.path] = issuer.requests.get(self.path, 0) + 1
                documents = {
                    "/.well-known/openid-configuration": {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"},
                    "/keys": {"keys": [key.as_dict(private=False) for key in issuer.keys.values()]},
                }
                body = json.dumps(documents[self.path]).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def token(self, algorithm: str = "ES256", key: Any = None, header: Any = None, **claims: Any) -> str:
        """Return a token; a claim of None is left out."""
        now = int(time.time())
        base = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "exp": now + 600, "nbf": now, "iat": now}
        found = {name: value for name, value in {**base, **claims}.items() if value is not None}
        key = key or self.keys[algorithm]
        head = {"alg": algorithm, "kid": key.kid, **(header or {})}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # joserfc warns about the name EdDSA, which issuers still use.
            return jwt.encode(head, found, key, algorithms=[algorithm])
