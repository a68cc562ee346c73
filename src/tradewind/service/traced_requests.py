"""ASGI middleware that makes a span of each request to `/v1`, and answers its `traceparent`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tradewind.service.traces import Traces, traceparent

if TYPE_CHECKING:
    from opentelemetry.trace import Span

__all__ = ["TracedRequests"]

PREFIX = "/v1/"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class TracedRequests:
    """Traces requests. The context of a request's span is `traceparent` of its state, for the jobs that it submits."""

    def __init__(self, app: ASGIApp, traces: Traces) -> None:
        self._app, self._traces = app, traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in METHODS else "_OTHER"
        span = self._traces.begin(
            method, Headers(scope=scope).get("traceparent"), {"http.request.method": method}, is_request=True
        )
        own, status = traceparent(span), 500
        scope.setdefault("state", {})["traceparent"] = own

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), (b"traceparent", own.encode())]}
            await send(message)

        try:
            await self._app(scope, receive, answer)
        finally:
            _end(span, scope, method, status)


def _end(span: Span, scope: Scope, method: str, status: int) -> None:
    """End the span of a request. Its path is that of the route: names in an address stay out."""
    from opentelemetry.trace import StatusCode

    route = getattr(scope.get("route"), "path", None)
    if route is not None:
        span.update_name(f"{method} {route}")
        span.set_attribute("http.route", route)
    job = scope["state"].get("traced_job") or scope.get("path_params", {}).get("job_id")
    # The id of an unknown job is text of the caller.
    if job is not None and status < 400:
        span.set_attribute("tradewind.job.id", job)
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(StatusCode.ERROR)
    span.end()
