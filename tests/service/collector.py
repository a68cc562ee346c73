"""A small collector for tests: it receives spans by OTLP over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from testbed.loopback import Answer, LoopbackServer, Received

WAIT_S = 30.0


class ReceivedSpan:
    """A span as it was received; ids are hexadecimal."""

    def __init__(self, span: Any) -> None:
        self.name = span.name
        self.trace, self.id, self.parent = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.start_ns, self.end_ns = span.start_time_unix_nano, span.end_time_unix_nano
        self.is_error = span.status.code == 2
        self.attributes = {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}

    def __repr__(self) -> str:
        return f"<{self.name} {self.attributes}>"


class Collector:
    """A collector on a loopback port, until the block ends."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.bodies: list[bytes] = []
        self._server = LoopbackServer(self._receive)
        self.url = self._server.url

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _receive(self, received: Received) -> Answer:
        assert received.path == "/v1/traces"
        self.bodies.append(received.body)
        request = ExportTraceServiceRequest.FromString(received.body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans += [ReceivedSpan(span) for span in scope.spans]
        return Answer()

    def of(self, trace: str, name: str) -> list[ReceivedSpan]:
        """Return the spans of a trace with this name, by their start."""
        found = [span for span in self.spans if span.trace == trace and span.name == name]
        return sorted(found, key=lambda span: span.start_ns)

    def until(self, is_there: Callable[[], bool]) -> None:
        """Wait until spans have arrived."""
        deadline_s = time.monotonic() + WAIT_S
        while not is_there():
            assert time.monotonic() < deadline_s, self.spans
            time.sleep(0.02)
