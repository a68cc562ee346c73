"""Spans for an operator's collector, by OTLP over HTTP. They have ids and figures, never a tenant's names.

Spans wait in a bounded queue, and one thread sends them. If the collector is down or slow, spans are dropped; no
request and no job waits for it.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tradewind._version import __version__
from tradewind.errors import UsageError
from tradewind.service.limits import (
    TRACE_EXPORT_S_MAX,
    TRACE_SEND_EVERY_S,
    TRACE_SPANS_AT_ONCE,
    TRACE_SPANS_WAITING_MAX,
    TRACE_WARNING_EVERY_S,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.trace import Span

__all__ = ["Attributes", "Traces", "traceparent", "traces_endpoint"]

_LOG = logging.getLogger("tradewind.service")
#: Path that OTLP over HTTP appends to the address of a collector.
TRACES_PATH = "/v1/traces"
TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?", re.DOTALL)
Attributes = Mapping[str, str | int | float | bool]


def traces_endpoint(url: str) -> str:
    """Return where spans are sent, for the address of a collector. Raises UsageError."""
    hint = "for example http://collector:4318"
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise UsageError(f"--traces {url}: not the address of a collector", hint=hint)
    if parts.query or parts.fragment or "@" in parts.netloc:
        hint = "set headers, such as those for authorization, with OTEL_EXPORTER_OTLP_HEADERS"
        raise UsageError("--traces: the address has a password, a query or a fragment", hint=hint)
    path = parts.path.rstrip("/")
    return parts._replace(path=path if path.endswith(TRACES_PATH) else path + TRACES_PATH).geturl()


class Traces:
    """Makes spans and sends them to one collector. Any thread may use it."""

    def __init__(self, endpoint: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        # The library repeats its warnings; `_Exporter` says once what they say.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
        self._exporter = _exporter(OTLPSpanExporter(endpoint, timeout=TRACE_EXPORT_S_MAX), endpoint)
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "tradewind", "service.version": __version__}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                self._exporter,
                max_queue_size=TRACE_SPANS_WAITING_MAX,
                schedule_delay_millis=TRACE_SEND_EVERY_S * 1000,
                max_export_batch_size=TRACE_SPANS_AT_ONCE,
            )
        )
        self._tracer = self._provider.get_tracer("tradewind.service", __version__)

    def begin(self, name: str, parent: str | None, attributes: Attributes, *, is_request: bool = False) -> Span:
        """Return a new span, which begins now. `parent` is a traceparent; an invalid one counts as none."""
        from opentelemetry.trace import SpanKind

        kind = SpanKind.SERVER if is_request else SpanKind.INTERNAL
        return self._tracer.start_span(name, _context(parent), kind=kind, attributes=attributes)

    def add(
        self,
        name: str,
        parent: str,
        start_unix_ms: int,
        end_unix_ms: int,
        attributes: Attributes,
        *,
        error: str | None = None,
    ) -> str:
        """Add a span whose times are known, and return its traceparent. `error` is a word, never a message."""
        from opentelemetry.trace import Status, StatusCode

        span = self._tracer.start_span(
            name, _context(parent), attributes=attributes, start_time=start_unix_ms * 1_000_000
        )
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end(max(start_unix_ms, end_unix_ms) * 1_000_000)
        return traceparent(span)

    def close(self) -> None:
        """Send the spans that wait, unless the collector is down. Waits at most about TRACE_EXPORT_S_MAX."""
        self._exporter.begin_to_close()
        self._provider.shutdown()


def traceparent(span: Span) -> str:
    """Return the header that makes other spans children of this one."""
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _context(parent: str | None) -> Any:
    """Return the context of a traceparent. `tracestate` is left out: it may have any text."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if parent is None or not TRACEPARENT.fullmatch(parent):
        return Context()
    return TraceContextTextMapPropagator().extract({"traceparent": parent}, Context())


def _exporter(inner: SpanExporter, endpoint: str) -> Any:
    """Return an exporter that warns once when the collector stops accepting spans."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Exporter(SpanExporter):
        def __init__(self) -> None:
            self._is_closing = self._is_down = False
            self._warned_s = float("-inf")

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            if self._is_closing and self._is_down:
                return SpanExportResult.FAILURE
            result = inner.export(spans)
            was_down, self._is_down = self._is_down, result is not SpanExportResult.SUCCESS
            if self._is_down and not was_down and time.monotonic() - self._warned_s >= TRACE_WARNING_EVERY_S:
                self._warned_s = time.monotonic()
                _LOG.warning("traces: %s does not accept spans; they are dropped until it does", endpoint)
            return result

        def begin_to_close(self) -> None:
            self._is_closing = True
            if self._is_down:
                inner.shutdown()  # It ends the pause before another attempt.

        def shutdown(self) -> None:
            inner.shutdown()

    return Exporter()
