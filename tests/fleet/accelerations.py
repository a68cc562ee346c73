"""Flows of this machine through proxies in two regions, and their destination."""

from __future__ import annotations

import socket
import threading
from typing import Any

from testbed.drive import Command

PATIENCE_S = 20.0
FLOWS = """\
budget = "20 USD"
period = "1h"
window = "200 kB"
regions = ["site:a", "site:b"]

[[flow]]
name = "backup"
source = "here"
source_rtt_ms = {"site:a" = 10, "site:b" = 90}
destination = "%s"
destination_rtt_ms = {"site:a" = 90, "site:b" = 10}
rtt_ms = 200
size = "40 GB"
"""


class Sink:
    """A destination of this machine that keeps what one connection sends."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._server = socket.create_server((host, 0))
        self.address = f"{host}:{self._server.getsockname()[1]}"
        self.received = bytearray()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                while block := connection.recv(1 << 20):
                    self.received += block

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(PATIENCE_S)


def up(command: Command, flows: str, *more: str) -> tuple[dict[str, Any], str]:
    """Start the acceleration in the background. Return its state, and what it said."""
    (command.home / "flows.toml").write_text(flows)
    words = "accelerate", "up", "--flows", command.home / "flows.toml", "--detach", "--json"
    done = command.run(*words, *more)
    assert done.code == 0, done.stderr
    (state,) = done.events
    return state, done.stderr


def send(state: dict[str, Any], body: bytes) -> None:
    """Send bytes over one connection of the first flow."""
    host, _, port = state["flows"][0]["listen"].rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as client:
        client.sendall(body)
