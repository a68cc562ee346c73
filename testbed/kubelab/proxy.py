"""A proxy in front of the API server of a cluster, which records calls and can hold back an answer."""

from __future__ import annotations

import base64
import http.client
import http.server
import json
import ssl
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

__all__ = ["ApiProxy", "api_proxy"]

HOP_BY_HOP = {"connection", "transfer-encoding", "host", "authorization", "content-length", "accept-encoding"}
ANSWER_S = 60.0


class ApiProxy:
    """The running proxy. Its clients act as the user of the lab's kubeconfig."""

    def __init__(self, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> None:
        self._server = urlsplit(cluster["server"])
        self._tls = _tls(cluster, user)
        self._changing = threading.Lock()
        self._held, self._released = threading.Event(), threading.Event()
        self._hold_at: int | None = None
        self._calls: list[str] = []
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._listener.daemon_threads = True
        threading.Thread(target=self._listener.serve_forever, daemon=True).start()

    def kubeconfig(self, context: str) -> str:
        """Return a kubeconfig whose only context leads here."""
        named = {"name": context}
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{**named, "cluster": {"server": f"http://127.0.0.1:{self._listener.server_port}"}}],
                "users": [{**named, "user": {"token": "unused"}}],
                "contexts": [{**named, "context": {"cluster": context, "user": context}}],
                "current-context": context,
            }
        )

    def begin(self, hold_at: int | None) -> None:
        """Forget the calls so far, and hold back the answer of the call with this number."""
        self._held.clear()
        self._released.clear()
        self._calls, self._hold_at = [], hold_at

    @property
    def calls(self) -> list[str]:
        """Return the calls since `begin`, such as `POST jobs`."""
        return list(self._calls)

    @property
    def holds(self) -> bool:
        """True while an answer is held back: the API server has carried the call out."""
        return self._held.is_set()

    def release(self) -> None:
        """Send the answer that is held back, if its client still reads it."""
        self._released.set()

    def close(self) -> None:
        """End the proxy."""
        self.release()
        self._listener.shutdown()
        self._listener.server_close()

    def forward(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str, bytes]:
        """Let the API server carry a call out. Return status, content type and body of its answer."""
        with self._changing:
            number = len(self._calls)
            self._calls.append(f"{method} {_resource(path)}")
        assert self._server.hostname is not None
        connection = http.client.HTTPSConnection(
            self._server.hostname, self._server.port or 443, context=self._tls, timeout=ANSWER_S
        )
        try:
            kept = {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}
            connection.request(method, path, body or None, kept)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if number == self._hold_at:
            self._held.set()
            self._released.wait()
        return answer.status, answer.getheader("Content-Type", "application/json"), content


class _Handler(http.server.BaseHTTPRequestHandler):
    proxy: ApiProxy
    protocol_version = "HTTP/1.1"

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, kind, content = self.proxy.forward(self.command, self.path, dict(self.headers.items()), body)
        with suppress(OSError):  # The client has been killed.
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _pass  # noqa: N815

    def handle(self) -> None:
        """Answer the calls of a connection, until its client is gone."""
        with suppress(OSError):
            super().handle()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _resource(path: str) -> str:
    """Return the kind of resource in a path: `jobs` of `/apis/batch/v1/namespaces/n/jobs/one`."""
    words = urlsplit(path).path.strip("/").split("/")
    return words[words.index("namespaces") + 2] if "namespaces" in words[:-2] else words[-1]


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder, "pair.pem")
        parts = (user["client-certificate-data"], user["client-key-data"])
        pair.write_bytes(b"".join(base64.b64decode(part) for part in parts))
        context.load_cert_chain(pair)
    return context


@contextmanager
def api_proxy(kubeconfig: Path, context: str) -> Iterator[ApiProxy]:
    """Run a proxy in front of the cluster of a context."""
    config = json.loads(kubeconfig.read_text())
    names = next(each["context"] for each in config["contexts"] if each["name"] == context)
    cluster = next(each["cluster"] for each in config["clusters"] if each["name"] == names["cluster"])
    user = next(each["user"] for each in config["users"] if each["name"] == names["user"])
    proxy = ApiProxy(cluster, user)
    try:
        yield proxy
    finally:
        proxy.close()
