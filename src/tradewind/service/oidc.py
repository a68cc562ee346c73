"""Tokens of an OIDC issuer: its keys, and the checks of a token (OpenID Connect Core 3.1.3.7, RFC 7519, RFC 8725).

Only RS256, ES256 and EdDSA are accepted. The keys come from the issuer's discovery document over HTTPS, or over plain
HTTP from this machine. They are read again when they are old, or when a token names an unknown key.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import Key, KeySet

from tradewind.errors import UsageError
from tradewind.model.units import format_count
from tradewind.service.issuer_documents import read_document
from tradewind.service.limits import (
    CLOCK_SKEW_S,
    ISSUER_KEYS_MAX,
    ISSUER_KEYS_S,
    ISSUER_PAUSE_S,
    ISSUER_STALE_S,
    ISSUER_WAITING_MAX,
    JWT_BYTES_MAX,
)

__all__ = ["IssuerUnavailable", "TokenIssuer", "require_safe_url"]

#: `Ed25519` is the name of EdDSA with that curve in RFC 9864.
ALGORITHMS = ("RS256", "ES256", "EdDSA", "Ed25519")
KEY_TYPES = ("RSA", "EC", "OKP")
#: joserfc warns that RFC 9864 renames EdDSA. Issuers still use the old name.
warnings.filterwarnings("ignore", message="EdDSA is deprecated")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: Errors of a document or token that is not as it should be. A deep one raises RecursionError.
_MALFORMED = (ValueError, TypeError, KeyError, AttributeError, RecursionError, JoseError)
#: Errors of an issuer that does not answer, or whose documents are not as they should be.
_UNUSABLE = (*_MALFORMED, OSError, HTTPException, UsageError)
#: Minimum size of an RSA key.
RSA_BITS_MIN = 2048


class IssuerUnavailable(Exception):
    """The issuer does not answer, or its answer cannot be used, and there are no keys that are new enough."""


class TokenIssuer:
    """One issuer with its keys. Any thread may use it. Tokens expire by the clock `now_unix_ms`."""

    def __init__(self, issuer: str, audience: str, now_unix_ms: Callable[[], int]) -> None:
        self.issuer, self._audience, self._now_unix_ms = issuer, audience, now_unix_ms
        self._lock, self._waiting = threading.Lock(), threading.BoundedSemaphore(ISSUER_WAITING_MAX)
        self._keys: KeySet | None = None
        self._read_s = self._tried_s = float("-inf")

    def claims_of(self, token: str) -> dict[str, Any] | None:
        """Return the claims of a valid token; None for any other. Raises IssuerUnavailable."""
        if len(token) > JWT_BYTES_MAX or not token.isascii() or token.count(".") != 2:
            return None
        try:
            return self._checked(token)
        except _MALFORMED:
            return None

    def _checked(self, token: str) -> dict[str, Any]:
        header = _header(token)
        if header.get("alg") not in ALGORITHMS:
            raise ValueError("another algorithm")
        found = jwt.decode(token, self._keys_for(header.get("kid")), algorithms=list(ALGORITHMS))
        now_s = self._now_unix_ms() // 1000
        checks = jwt.JWTClaimsRegistry(
            now=now_s,
            leeway=CLOCK_SKEW_S,
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "value": self._audience},
            exp={"essential": True},
            sub={"essential": True},
        )
        checks.validate(found.claims)
        claims: dict[str, Any] = found.claims
        begin_s = claims.get("nbf", claims.get("iat"))
        if isinstance(begin_s, bool) or not isinstance(begin_s, (int, float)):
            raise ValueError("neither nbf nor iat")
        if begin_s > now_s + CLOCK_SKEW_S or not isinstance(claims["sub"], str):
            raise ValueError("not yet valid, or no subject")
        return claims

    def _keys_for(self, key_id: object) -> KeySet:
        """Return the keys. They are read again when they are old, or do not have this id.

        A slow issuer keeps only a few requests waiting, so that others can be answered.
        """
        keys = self._keys
        if keys is not None and not self._is_due(key_id):
            return keys
        if not self._waiting.acquire(blocking=False):
            return self._usable()
        try:
            with self._lock:
                self._read_again(key_id)
                return self._usable()
        finally:
            self._waiting.release()

    def _is_due(self, key_id: object) -> bool:
        is_known = self._keys is not None and (key_id is None or _has(self._keys, key_id))
        return not is_known or time.monotonic() - self._read_s > ISSUER_KEYS_S

    def _read_again(self, key_id: object) -> None:
        """Read the keys if they are due, and were not tried a moment ago. Raises IssuerUnavailable."""
        now_s = time.monotonic()
        if not self._is_due(key_id) or now_s - self._tried_s <= ISSUER_PAUSE_S:
            return
        self._tried_s = now_s
        try:
            self._keys = self._read()
            self._read_s = now_s
        except _UNUSABLE as error:
            if self._is_stale():
                raise IssuerUnavailable(str(error)) from error

    def _is_stale(self) -> bool:
        return self._keys is None or time.monotonic() - self._read_s > ISSUER_STALE_S

    def _usable(self) -> KeySet:
        """Return the keys that are known. Raises IssuerUnavailable without any that are new enough."""
        keys = self._keys
        if keys is None or self._is_stale():
            raise IssuerUnavailable("its keys could not be read just now")
        return keys

    def _read(self) -> KeySet:
        document = read_document(self.issuer.rstrip("/") + "/.well-known/openid-configuration")
        if document["issuer"] != self.issuer:
            raise ValueError(f"the document is of issuer {document['issuer']}")
        require_safe_url(document["jwks_uri"])
        documents = read_document(document["jwks_uri"])["keys"]
        if len(documents) > ISSUER_KEYS_MAX:
            raise ValueError(format_count(len(documents), "key"))
        keys = [key for key in map(_signing_key, documents) if key is not None]
        if not keys:
            raise ValueError("no key for signatures")
        return KeySet(keys)


def require_safe_url(url: str) -> None:
    """Raise UsageError unless a URL has HTTPS, or plain HTTP to this machine."""
    parts = urlsplit(url)
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    if not is_safe or not parts.hostname or parts.username is not None or parts.query or parts.fragment:
        raise UsageError(f"{url}: must be an https:// URL without user name and query")


def _header(token: str) -> dict[str, Any]:
    from joserfc.jws import extract_compact

    header = extract_compact(token.encode()).headers()
    return dict(header)


def _has(keys: KeySet, key_id: object) -> bool:
    return any(key.kid == key_id for key in keys.keys)


def _signing_key(document: Any) -> Key | None:
    """Return a key of the set if it can be read and may sign; None for any other (RFC 7517, 5)."""
    try:
        return KeySet.registry_cls.import_key(document) if _is_for_signatures(document) else None
    except _MALFORMED:
        return None


def _is_for_signatures(key: Mapping[str, Any]) -> bool:
    """Return whether a key may sign. Symmetric and short keys are left out, and so are keys for encryption."""
    if key.get("kty") not in KEY_TYPES or key.get("use", "sig") != "sig":
        return False
    return key["kty"] != "RSA" or len(key["n"]) * 6 >= RSA_BITS_MIN
