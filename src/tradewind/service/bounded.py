"""ASGI middleware for request bodies: it bounds them, and refuses those of two lengths.

Bodies are read before the application looks at the token. So without a valid one only a little is read, and all bodies
have a limit together, in total and for each tenant: many connections must not use up the memory.

It reads bodies without a type as JSON, as `curl -d` sends them.
"""

from __future__ import annotations

from collections import Counter

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tradewind.service.auth import known_sender
from tradewind.service.limits import (
    BODIES_BYTES_MAX,
    BODIES_BYTES_PER_TENANT_MAX,
    BODY_BYTES_MAX,
    BODY_BYTES_UNKNOWN_MAX,
)
from tradewind.service.problems import ApiProblem, problem_response

__all__ = ["BoundedBodies"]

_FORM = b"application/x-www-form-urlencoded"


class BoundedBodies:
    """Answers 413 to a body above BODY_BYTES_MAX, before the application reads it.

    A body above BODY_BYTES_UNKNOWN_MAX is read only with a valid token, and if the others leave room for it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        #: Bytes of the large bodies of each tenant. Only the thread of the server's loop uses it.
        self._held: Counter[str] = Counter()

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
        body = _Body(scope, self._held)
        try:
            try:
                content = await body.read(receive)
            except ApiProblem as problem:
                refusal = problem_response(problem.status, problem.detail, hint=problem.hint, headers=problem.headers)
                await refusal(scope, receive, send)
                return
            _set_json(scope)
            await self._app(scope, _replayed(content, receive), send)
        finally:
            body.give_back()


class _Body:
    """The body of one request. What is held of it is counted in `held` by its tenant until `give_back`."""

    def __init__(self, scope: Scope, held: Counter[str]) -> None:
        self._scope, self._held = scope, held
        self._tenant: str | None = None
        self._size = 0

    async def read(self, receive: Receive) -> bytes:
        """Return the whole body. Raises ApiProblem: 400 if the client is gone, 401, 403, 413, 429 or 503."""
        parts: list[bytes] = []
        more, size = True, 0
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise ApiProblem(400, "the body is not complete")
            part = message.get("body", b"")
            size += len(part)
            if size > BODY_BYTES_MAX:
                raise ApiProblem(413, f"the body has more than {BODY_BYTES_MAX:,} bytes")
            if size > BODY_BYTES_UNKNOWN_MAX:
                await self._hold(size)
            parts.append(part)
            more = message.get("more_body", False)
        return b"".join(parts)

    async def _hold(self, size: int) -> None:
        """Count a large body. Raises ApiProblem."""
        if self._tenant is None:
            self._tenant = (await run_in_threadpool(known_sender, Request(self._scope))).tenant
        more = size - self._size
        is_full = self._held.total() + more > BODIES_BYTES_MAX
        if is_full or self._held[self._tenant] + more > BODIES_BYTES_PER_TENANT_MAX:
            raise ApiProblem(503, "too many large requests at the moment", headers={"Retry-After": "1"})
        self._held[self._tenant] += more
        self._size = size

    def give_back(self) -> None:
        """Count the body no more."""
        if self._tenant is not None:
            self._held[self._tenant] -= self._size
            if self._held[self._tenant] <= 0:
                del self._held[self._tenant]


def _has_two_lengths(scope: Scope) -> bool:
    return {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}


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
