"""No control character reaches the terminal, whatever its source."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from testbed.drive import Command

CSI = "\u009b"
"""The C1 control sequence introducer. Terminals treat it like ESC [."""
NAME = f"a{CSI}31mb\x1b[2Jc\x7fd\u202e"


def raw_control_characters(text: str) -> set[str]:
    hidden = {"\u202e", "\u2066", "\ufeff"}
    return {c for c in text if (ord(c) < 0x20 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 or c in hidden}


def test_listings_escape_names_and_json_reads_back_the_same(command: Command, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / NAME).write_bytes(b"x")
    for words in (
        ["ls"],
        ["ls", "-l"],
        ["ls", "--json"],
        ["rm", "-r", "--dry-run"],
        ["rm", "-r", "--dry-run", "--json"],
    ):
        done = command.run(*words, tmp_path / "tree").expect(0)
        assert not raw_control_characters(done.stdout + done.stderr), words
    listed = command.run("ls", "--json", tmp_path / "tree").stdout
    assert json.loads(listed)["key"] == NAME


def test_events_and_job_lists_escape_names(command: Command, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / NAME).symlink_to("nowhere")
    copy = tmp_path / f"copy{CSI}5m"
    done = command.run("cp", "-r", "--follow-symlinks", tmp_path / "tree", copy, "--json")
    assert done.code != 0
    (failure,) = done.failures
    assert failure["source"].endswith(NAME)
    for text in (
        done.stdout,
        done.stderr,
        command.run("jobs", "list").stdout,
        command.run("jobs", "list", "--json").stdout,
    ):
        assert not raw_control_characters(text)
    (job,) = command.jobs()
    assert job["destinations"] == [str(copy)]


def test_errors_escape_quoted_names(command: Command, tmp_path: Path) -> None:
    table = tmp_path / f"table{CSI}.csv"
    table.write_text(f"src,dst{CSI},gbps\n")
    for words in (["catalog", "import", table], ["jobs", "show", f"x{CSI}"], ["fleet", "down", f"x{CSI}"], [f"x{CSI}"]):
        done = command.run(*words)
        assert done.code != 0
        assert not raw_control_characters(done.stdout + done.stderr), words


@contextmanager
def store_that_says(message: str) -> Iterator[str]:
    """Yield the endpoint of a store that refuses everything with this message."""

    class Refuse(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"<Error><Code>AccessDenied</Code><Message>{message}</Message></Error>".encode()
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refuse) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "words", [("doctor", "s3://b"), ("ls", "s3://b"), ("cp", "-r", "s3://b/p", "copy")], ids=lambda words: words[0]
)
def test_answers_of_a_store_are_escaped(command: Command, words: tuple[str, ...]) -> None:
    side = "--src-" if words[0] == "cp" else "--"
    with store_that_says(f"no{NAME}") as endpoint:
        done = command.run(*words, f"{side}endpoint", endpoint, f"{side}no-sign")
    assert done.code != 0 and "31mb" in done.stdout + done.stderr
    assert not raw_control_characters(done.stdout + done.stderr)
