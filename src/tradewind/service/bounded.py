"""ASGI middleware for request bodies: it bounds them, and refuses those of two lengths.

It reads bodies without a type as JSON, as `curl -d` sends them.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tradewind.service.limits import BODY_BYTES_MAX
from tradewind.service.problems import problem_response

__all__ = ["BoundedBodies"]

_FORM = b"application/x-www-form-urlencoded"


class BoundedBodies:
    """Answers 413 to a body above BODY_BYTES_MAX, before the application reads it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] == "http" and _has_two_lengths(scope):
            # A proxy in front may see another end of the body, and so another next request (RFC 9112, 6.3).
            refusal = problem_response(
                400, "the request has both Content-Length and Transfer-Encoding", headers={"Connection": "close"}
            )
            await refusal(scope, receive, send)
            return
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        body = await _body(receive)
        if body is None:
            refusal = problem_response(413, f"the body has more than {BODY_BYTES_MAX:,} bytes")
            await refusal(scope, receive, send)
            return
        _set_json(scope)
        await self._app(scope, _replayed(body, receive), send)


def _has_two_lengths(scope: Scope) -> bool:
    return {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}


async def _body(receive: Receive) -> bytes | None:
    """Return the body; None if it is too large, or the client is gone."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return None
        part = message.get("body", b"")
        size += len(part)
        if size > BODY_BYTES_MAX:
            return None
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    waiting = [body]

    async def replay() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return replay


def _set_json(scope: Scope) -> None:
    """Change a missing content type, or that of a form, to JSON."""
    headers = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
    types = [value for name, value in scope["headers"] if name == b"content-type"]
    if not types or types[0].lower().startswith(_FORM):
        scope["headers"] = [*headers, (b"content-type", b"application/json")]
