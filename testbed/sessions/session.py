"""Sessions: temporary keys whose token holds their policy and expiry, signed by the one who issued them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Session", "Sessions", "signature"]


@dataclass(frozen=True)
class Session:
    """A temporary key. Without a policy it may do everything."""

    key_id: str
    secret_key: str
    token: str
    policy: Mapping[str, Any] | None
    expires_unix_s: float


class Sessions:
    """Issues sessions, and recognises its own."""

    def __init__(self) -> None:
        self._seal = secrets.token_bytes(16)
        self.issued: list[Session] = []

    def issue(self, policy: Mapping[str, Any] | None, life_s: float) -> Session:
        """Return a new session."""
        key_id, expires_unix_s = f"ASIA{secrets.token_hex(8).upper()}", time.time() + life_s
        content = {"key_id": key_id, "policy": policy, "expires_unix_s": expires_unix_s}
        text = base64.urlsafe_b64encode(json.dumps(content).encode()).decode()
        session = Session(key_id, self._mac(key_id), f"{text}.{self._mac(text)}", policy, expires_unix_s)
        self.issued.append(session)
        return session

    def find(self, token: str) -> Session | None:
        """Return the session of a token; None if it is not one of ours."""
        text, _, mac = token.partition(".")
        if not hmac.compare_digest(mac, self._mac(text)):
            return None
        content = json.loads(base64.urlsafe_b64decode(text))
        key_id = content["key_id"]
        return Session(key_id, self._mac(key_id), token, content["policy"], content["expires_unix_s"])

    def _mac(self, text: str) -> str:
        return hmac.digest(self._seal, text.encode(), "sha256").hex()


def signature(
    secret_key: str, scope: str, method: str, target: str, headers: Mapping[str, str], names: Iterable[str]
) -> str:
    """Return the signature (version 4) of a request. `scope` is day, region, service and `aws4_request`.

    `names` are the signed headers, in lower case; `headers` has them, and `x-amz-date` and `x-amz-content-sha256`.
    """
    path, _, query = target.partition("?")
    ordered = sorted(names)
    lines = [f"{name}:{' '.join(headers[name].split())}\n" for name in ordered]
    canonical = "\n".join([method, path, query, "".join(lines), ";".join(ordered), headers["x-amz-content-sha256"]])
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    to_sign = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{digest}"
    return hmac.digest(key, to_sign.encode(), "sha256").hex()


@dataclass(frozen=True)
class Signed:
    """The parts of a request's `Authorization`."""

    key_id: str
    scope: str
    names: tuple[str, ...]
    signature: str


def parse_authorization(text: str) -> Signed | None:
    """Return the parts of a header `Authorization`; None for another kind."""
    scheme, _, rest = text.partition(" ")
    if scheme != "AWS4-HMAC-SHA256":
        return None
    parts = dict(part.strip().split("=", 1) for part in rest.split(","))
    key_id, _, scope = parts["Credential"].partition("/")
    return Signed(key_id, scope, tuple(parts["SignedHeaders"].split(";")), parts["Signature"])
