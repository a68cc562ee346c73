"""Gateways that answer the control API and move nothing. They record requests and fail according to a seed."""

from __future__ import annotations

import json
import random
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tradewind.model.program import CONTRACT_VERSION


@dataclass
class FakeGateways:
    """All gateways of one test, each at a Unix socket named after it in `folder`."""

    folder: Path
    rng: random.Random
    failing: float = 0.0
    #: Gateways that accept requests and never answer.
    hanging: set[str] = field(default_factory=set)
    #: Called with a gateway's name before the gateway answers with its version.
    on_version: Callable[[str], None] = lambda _: None
    #: Fraction of the gateways that refuse this request.
    unready: float = 0.0
    over: threading.Event = field(default_factory=threading.Event)
    #: Gateway, path and body of each successful request, in order.
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    servers: dict[str, socketserver.ThreadingUnixStreamServer] = field(default_factory=dict)

    def control(self, name: str) -> str:
        """Start a gateway and return its control address."""
        with self.lock:
            if name not in self.servers:
                server = socketserver.ThreadingUnixStreamServer(f"{self.folder}/{name}", _handler(self, name))
                server.daemon_threads = True
                self.servers[name] = server
                threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"unix:{self.folder}/{name}"

    def never_ready(self, name: str) -> bool:
        with self.lock:
            return self.rng.random() < self.unready

    def fails(self) -> bool:
        with self.lock:
            return self.rng.random() < self.failing


@contextmanager
def fake_gateways(folder: Path, rng: random.Random) -> Iterator[FakeGateways]:
    """Run gateways within the context."""
    made = FakeGateways(folder, rng)
    try:
        yield made
    finally:
        made.over.set()
        for server in made.servers.values():
            server.shutdown()
            server.server_close()


def lead_program(gateways: FakeGateways) -> str:
    """Return a program that reports readiness like a gateway, and ends at the end of its standard input."""
    script = gateways.folder / "program"
    ready = json.dumps({"control": gateways.control("lead"), "gateway": "fake", "contract": CONTRACT_VERSION})
    script.write_text(f"#!/bin/sh\necho '{ready}'\nexec cat >/dev/null\n")
    script.chmod(0o700)
    return str(script)


def _handler(gateways: FakeGateways, name: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if name in gateways.hanging:
                gateways.over.wait()
                return
            if gateways.fails():
                if gateways.fails():
                    return  # The connection closes without an answer.
                self.reply(503, {"error": "too busy"})
                return
            with gateways.lock:
                gateways.asked.append((name, self.path, json.loads(body) if body else None))
            self.reply(200, {})

        do_PUT = do_POST = answer  # noqa: N815

        def do_GET(self) -> None:
            gateways.on_version(name)
            if gateways.never_ready(name):
                self.reply(503, {"error": "too busy"})
            else:
                self.reply(200, {"gateway": "fake", "contract": CONTRACT_VERSION, "data_address": "127.0.0.1:1"})

        def reply(self, status: int, document: Any) -> None:
            text = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def address_string(self) -> str:
            return name

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
