"""A token service with the two actions of AWS's that limit a session: `AssumeRole` and `GetFederationToken`."""

from __future__ import annotations

import hashlib
import json
import threading
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from testbed.sessions.session import Session, Sessions, parse_authorization, signature

__all__ = ["TokenService"]


class _Refused(Exception):
    """The request is refused with this code and message."""


class TokenService:
    """Issues sessions of one user, at a free port of the loopback interface.

    `life_s` is the life of new sessions, whatever a request asks for. `refused` are the actions that the user may not
    call now. `calls` are the parameters of each request that was answered.
    """

    def __init__(self, key_id: str, secret_key: str, sessions: Sessions, life_s: float = 3600.0) -> None:
        self.life_s = life_s
        self.refused: frozenset[str] = frozenset()
        self.calls: list[dict[str, str]] = []
        self._key_id, self._secret_key, self._sessions = key_id, secret_key, sessions
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                """Answer a request."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = service._answer(self, body)
                self.send_response(status)
                self.send_header("Content-Type", "text/xml")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> TokenService:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        fields = dict(parse_qsl(body.decode()))
        try:
            session = self._issue(handler, body, fields)
        except _Refused as error:
            code, message = error.args
            text = (
                f"<ErrorResponse><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error></ErrorResponse>"
            )
            return 403, text.encode()
        expires = datetime.fromtimestamp(session.expires_unix_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        text = (
            f"<{fields['Action']}Response><{fields['Action']}Result><Credentials>"
            f"<AccessKeyId>{session.key_id}</AccessKeyId><SecretAccessKey>{session.secret_key}</SecretAccessKey>"
            f"<SessionToken>{session.token}</SessionToken><Expiration>{expires}</Expiration>"
            f"</Credentials></{fields['Action']}Result></{fields['Action']}Response>"
        )
        return 200, text.encode()

    def _issue(self, handler: BaseHTTPRequestHandler, body: bytes, fields: dict[str, str]) -> Session:
        """Return a new session. Raises _Refused."""
        headers = {name.lower(): value for name, value in handler.headers.items()}
        signed, token = parse_authorization(headers["authorization"]), headers.get("x-amz-security-token")
        secret_key = self._secret_key
        if token is not None:
            caller = self._sessions.find(token)
            secret_key = "" if caller is None else caller.secret_key
        assert signed is not None
        expected = signature(secret_key, signed.scope, "POST", handler.path, headers, signed.names)
        digest = hashlib.sha256(body).hexdigest()
        if signed.signature != expected or headers["x-amz-content-sha256"] != digest or "/sts/" not in signed.scope:
            raise _Refused("SignatureDoesNotMatch", "the signature does not match")
        action = fields["Action"]
        if action not in ("AssumeRole", "GetFederationToken"):
            raise _Refused("InvalidAction", f"unknown action {action}")
        if action == "GetFederationToken" and token is not None:
            raise _Refused("AccessDenied", "Cannot call GetFederationToken with session credentials")
        if action in self.refused:
            raise _Refused("AccessDenied", f"user is not authorized to perform: sts:{action}")
        self.calls.append(fields)
        return self._sessions.issue(json.loads(fields["Policy"]), self.life_s)
