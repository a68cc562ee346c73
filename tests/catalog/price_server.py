"""A local server that answers like the clouds' price APIs."""

from __future__ import annotations

import contextlib
import gzip
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Answer:
    """One answer. With `cut_at` the connection ends after this many bytes of the body."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_at: int | None = None

    @classmethod
    def of(cls, document: Any, **more: Any) -> Answer:
        return cls(json.dumps(document).encode(), **more)

    @classmethod
    def packed(cls, text: str) -> Answer:
        return cls(gzip.compress(text.encode()), headers={"Content-Encoding": "gzip"})


Route = Callable[[Mapping[str, str], Mapping[str, str]], Answer]
"""Return an answer for the query and the request's headers."""


@dataclass
class PriceServer:
    """The answers by path. `asked` counts requests."""

    url: str
    routes: dict[str, Route | Answer | list[Answer]]
    asked: Counter[str] = field(default_factory=Counter)
    headers: list[Mapping[str, str]] = field(default_factory=list)


@contextlib.contextmanager
def price_server() -> Iterator[PriceServer]:
    """Run a server within the context."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            served.asked[parts.path] += 1
            served.headers.append(dict(self.headers))
            route = served.routes.get(parts.path, Answer(status=404))
            if isinstance(route, list):
                route = route.pop(0) if len(route) > 1 else route[0]
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            answer = route if isinstance(route, Answer) else route(query, dict(self.headers))
            self.send_response(answer.status)
            for name, content in answer.headers.items():
                self.send_header(name, content)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(answer.body[: answer.cut_at])
            self.close_connection = answer.cut_at is not None

        def log_message(self, *arguments: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served = PriceServer(f"http://127.0.0.1:{server.server_port}", {})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
