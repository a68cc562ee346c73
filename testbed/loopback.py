"""An HTTP server on a free loopback port, which answers each request as a function says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Answer", "LoopbackServer", "Received"]

STOP_LOOK_S = 0.05
"""Interval at which the server looks whether it is to stop."""


@dataclass(frozen=True)
class Received:
    """A request as it came."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """An answer; its length is added to the headers."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class LoopbackServer:
    """Serves from its making until it is closed. `answer` is called in a thread for each connection."""

    def __init__(self, answer: Callable[[Received], Answer]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                found = answer(Received(self.path, dict(self.headers), body))
                self.send_response(found.status)
                for name, text in {**found.headers, "Content-Length": str(len(found.body))}.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(found.body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(STOP_LOOK_S,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
