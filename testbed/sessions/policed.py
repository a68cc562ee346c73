"""An S3 server behind a proxy that enforces sessions: signature, expiry, and the actions and keys of their policy."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from testbed.faults.http import HttpProxy, _Upstream
from testbed.faults.rules import Action, Answer, Exchange, Request
from testbed.faults.stream import Head, Stream
from testbed.sessions.policy import allows, needs
from testbed.sessions.session import Sessions, parse_authorization, signature

__all__ = ["PolicedStore"]

_AUTHORIZATION, _TOKEN = "authorization", "x-amz-security-token"


class PolicedStore(HttpProxy):
    """Passes requests of sessions on if their policy allows them, signed with the key of the server's user.

    Requests with the user's own key are passed on unchanged. `removed` are actions that no policy allows any more.
    `used` counts the actions of sessions that were allowed, by session key.
    """

    def __init__(self, target: str, key_id: str, secret_key: str, sessions: Sessions) -> None:
        self.removed: frozenset[str] = frozenset()
        self.used: Counter[tuple[str, str]] = Counter()
        self.refused: Counter[str] = Counter()
        """Refusals by code."""
        self._key_id, self._secret_key, self.sessions = key_id, secret_key, sessions
        self._current = threading.local()
        super().__init__(target)

    def _exchange(self, client: Stream, server: _Upstream, head: Head) -> bool:
        self._current.head = head
        return super()._exchange(client, server, head)

    def record(self, request: Request) -> tuple[Exchange, Action | None]:
        """Record a request; unless a fault applies to it, refuse it if its session's policy does not allow it."""
        exchange, action = super().record(request)
        if action is None and _TOKEN in request.headers:
            action = self._refusal(self._current.head, request)
            if action is not None:
                self.refused[action.code] += 1
        return exchange, action

    def _refusal(self, head: Head, request: Request) -> Answer | None:
        session = self.sessions.find(request.headers[_TOKEN])
        signed = parse_authorization(request.headers[_AUTHORIZATION])
        if session is None or signed is None or signed.key_id != session.key_id:
            return Answer(403, "InvalidToken", "the token is not one of ours")
        method, target, _ = head.first_line.split(" ", 2)
        if signed.signature != signature(
            session.secret_key, signed.scope, method, target, request.headers, signed.names
        ):
            return Answer(403, "SignatureDoesNotMatch", "the signature does not match")
        if time.time() >= session.expires_unix_s:
            return Answer(400, "ExpiredToken", "The provided token has expired.")
        for action, resource in needs(request):
            if session.policy is not None and not allows(session.policy, action, resource, self.removed):
                return Answer(403, "AccessDenied", f"no session policy allows the {action} action on {resource}")
            self.used[session.key_id, action] += 1
        return None

    def _pass_request(
        self, server: _Upstream, head: Head, body: Iterable[memoryview], exchange: Exchange, action: Action | None
    ) -> None:
        if _TOKEN in head.headers:
            head = self._signed_again(head)
        super()._pass_request(server, head, body, exchange, action)

    def _signed_again(self, head: Head) -> Head:
        signed = parse_authorization(head.headers[_AUTHORIZATION])
        assert signed is not None
        names = sorted(set(signed.names) - {_TOKEN})
        method, target, _ = head.first_line.split(" ", 2)
        fresh = signature(self._secret_key, signed.scope, method, target, head.headers, names)
        authorization = (
            f"Authorization: AWS4-HMAC-SHA256 Credential={self._key_id}/{signed.scope}, "
            f"SignedHeaders={';'.join(names)}, Signature={fresh}"
        )
        raw = replace(head, raw=head.without(_TOKEN)).without(_AUTHORIZATION)
        return replace(head, raw=raw[:-2] + authorization.encode() + b"\r\n\r\n")
