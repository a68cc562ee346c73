"""An `endpoint` that is not Google: each of its answers is one clear line, and none leads anywhere else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.gcp_stage import PROGRAMS
from tradewind.engine.everywhere import Everywhere, Swept
from tradewind.errors import TradewindError
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import FLEET_TAG, KEY_TAG, NAME_TAG, OWNER_TAG
from tradewind.model import sites

LABELS = {FLEET_TAG: "../../etc", KEY_TAG: "key", NAME_TAG: "one\x1b[31m", OWNER_TAG: "me"}
FORM = "in another form than Google's"


@contextmanager
def server(status: int, body: bytes, headers: dict[str, str] | None = None) -> Iterator[tuple[str, list[str]]]:
    """Give every request this answer; yield the address, and the paths that were requested."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            paths.append(self.path)
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(ConnectionError):  # The client reads no answer that is too long to its end.
                self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", paths
        running.shutdown()


def everywhere(folder: Path, endpoint: str) -> Everywhere:
    settings = {"project": "my-project", "programs": PROGRAMS, "home_cidr": "127.0.0.1/32", "endpoint": endpoint}
    cloud = sites.Cloud("gcp", ("gcp:us-central1",), settings)
    return Everywhere(sites.Sites(clouds=(cloud,)), FleetJournal(folder), "no-binary")


def instances(*found: Any) -> bytes:
    return json.dumps({"items": {"zones/a": {"instances": list(found)}}}).encode()


ANSWERS = {
    "no objects": (instances("text", 5, None), "a list of the API has another form than Google's"),
    "no scopes": (b'{"items": [1, 2]}', "a list of the API has another form than Google's"),
    "a machine without a zone": (instances({"name": "x", "labels": LABELS}), f"the API describes x {FORM}"),
    "deep": (b"[" * 100_000, "is not a JSON object"),
    "long": (b" " * 3_000_000, "an answer of the API is longer than 1048576 bytes"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_cannot_be_read_is_one_clear_line(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tradewind.fleet.gcp.api.ANSWER_BYTES_MAX", 1 << 20)
    body, words = ANSWERS[name]
    with server(200, body) as (endpoint, _):
        places = everywhere(tmp_path, endpoint)
        said = [one[1] for one in places.found() if isinstance(one, tuple)]
        said += [one.error for one in places.sweep((), everything=True) if isinstance(one, Swept) and one.error]
    assert len(said) == 2 and all(isinstance(error, TradewindError) and words in str(error) for error in said), said
    assert "Traceback" not in capfd.readouterr().err


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    """It might lead to the metadata service of the machine on which the command runs."""
    with (
        server(200, b'{"items": {}}') as (elsewhere, paths),
        server(302, b"", {"Location": elsewhere}) as (endpoint, _),
    ):
        (found,) = everywhere(tmp_path, endpoint).found()
    assert isinstance(found, tuple) and "is a redirect: check `endpoint`" in str(found[1]) and paths == []
