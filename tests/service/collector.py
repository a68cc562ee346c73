"""A small collector for tests: it receives spans by OTLP over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

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
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector._receive(self.path, body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _receive(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        self.bodies.append(body)
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans += [ReceivedSpan(span) for span in scope.spans]

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
