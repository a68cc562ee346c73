"""`rm --versions` on real servers that keep versions."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest

from testbed.drive import Command
from testbed.faults import Call, HttpProxy, Request, Rule
from testbed.places import Place, S3Place
from tradewind.cli.rm import _question
from tradewind.engine.versions import VersionCount

SERVERS = ["moto", pytest.param("versitygw", marks=pytest.mark.slow)]


def filled(there: Place) -> S3Place:
    """Return a bucket with versions of three objects, one of which is deleted."""
    assert isinstance(there, S3Place)
    there.client.set_versioning(there.bucket, enabled=True)
    for text in (b"1", b"22", b"333"):
        there.put("d/a", text)
    there.put("d/gone é", b"1")
    there.client.delete(there.bucket, "d/gone é")
    there.put("d/ab", b"beside")
    return there


@pytest.mark.parametrize("kind", SERVERS)
def test_all_versions_and_markers_below_a_directory_go(
    place: Callable[[str], Place], command: Command, kind: str
) -> None:
    there = filled(place(kind))
    words = ("rm", "-r", "--versions", f"{there.url}/d", *there.flags("src"))
    unsure = command.run(*words).expect(2)
    assert "cannot be restored" in unsure.stderr
    planned = command.run(*words, "--dry-run").expect(0)
    assert planned.stdout.count("would delete") == 6 and planned.stdout.count("delete marker") == 1
    assert len(there.client.versions(there.bucket)) == 6
    done = command.run(*words, "-y", "--json").expect(0)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["verdict"] for line in lines} == {"deleted"} and len(lines) == 6
    assert [line["url"][-6:] for line in lines if line["marker"]] == ["gone é"]
    assert "deleted 5 versions and 1 delete marker" in done.stderr
    assert there.client.versions(there.bucket) == []
    command.run(*words, "-y").expect(3)
    command.run(*words, "-y", "--allow-empty").expect(0)


@pytest.mark.parametrize("kind", SERVERS)
def test_one_object_goes_with_its_versions_and_the_latest_last(
    place: Callable[[str], Place], command: Command, kind: str
) -> None:
    there = filled(place(kind))
    latest = there.client.versions(there.bucket, "d/a")[0]
    words = ("--versions", "-y", *there.flags("src"))
    done = command.run("rm", f"{there.url}/d/a", *words).expect(0)
    assert done.stdout.splitlines()[-1].endswith(f"version {latest[1]}")
    assert {key for key, _ in there.client.versions(there.bucket)} == {"d/ab", "d/gone é"}
    # A deleted object has no bytes to read, but versions to delete.
    command.run("rm", f"{there.url}/d/gone é", *words).expect(0)
    assert {key for key, _ in there.client.versions(there.bucket)} == {"d/ab"}
    assert "no object has or had this name" in command.run("rm", f"{there.url}/d/a", *words).expect(3).stderr


def test_filters_and_wildcards_select_versions(place: Callable[[str], Place], command: Command) -> None:
    there = filled(place("moto"))
    words = ("--versions", "-y", *there.flags("src"))
    command.run("rm", "-r", f"{there.url}/d", "--max-size", "2B", "--exclude", "gone*", *words).expect(0)
    assert there.get("d/a") == b"333"
    assert len(there.client.versions(there.bucket, "d/a")) == 2  # With that of d/ab.
    command.run("rm", f"{there.url}/d/a*", *words).expect(0)
    assert {key for key, _ in there.client.versions(there.bucket)} == {"d/gone é"}


def is_about_kept(request: Request) -> bool:
    """Return whether a request looks at or deletes the object that the test rewrites."""
    is_deletion = request.method == "DELETE" or "delete" in request.query
    return is_deletion or request.path.endswith("/d/kept") or request.query.get("prefix") == "d/kept"


@pytest.mark.parametrize(
    ("kind", "versioning"),
    [
        ("moto", "never"),
        ("moto", "suspended"),
        pytest.param("versitygw", "never", marks=pytest.mark.slow),
        # moto makes no delete marker where versioning is suspended.
        pytest.param("versitygw", "with a marker", marks=pytest.mark.slow),
    ],
)
def test_an_object_that_was_written_after_it_was_listed_is_kept(
    place: Callable[[str], Place], command: Command, kind: str, versioning: str
) -> None:
    """Where a bucket keeps no versions, each new object has the id of the one before: `null`."""
    there = place(kind)
    assert isinstance(there, S3Place)
    if versioning != "never":
        there.client.set_versioning(there.bucket, enabled=True)
        there.client.set_versioning(there.bucket, enabled=False)
    for key in ("d/gone", "d/kept"):
        there.put(key, b"old")
    if versioning == "with a marker":
        for key in ("d/gone", "d/kept"):
            there.client.delete(there.bucket, key)
    with HttpProxy(there.endpoint) as proxy:
        there.endpoint = proxy.endpoint
        rewrite = proxy.add(Rule(Call(lambda: there.put("d/kept", b"new")), when=is_about_kept, count=1))
        done = command.run("rm", "-r", "--versions", "-y", "--json", f"{there.url}/d", *there.flags("src")).expect(4)
        assert rewrite.strikes == 1
    verdicts = {line["url"].rpartition("/")[2]: line["verdict"] for line in map(json.loads, done.stdout.splitlines())}
    assert verdicts == {"gone": "deleted", "kept": "failed"}
    assert there.get("d/kept") == b"new" and list(there.sizes()) == ["d/kept"]
    assert "it changed after it was last seen" in done.stderr


@pytest.mark.parametrize("url", ["gs://b/k", "az://account/c/k", "/tmp/k"])
def test_stores_without_these_versions_are_refused_by_name(command: Command, url: str) -> None:
    done = command.run("rm", "--versions", "-y", url)
    assert done.code not in (0, 3) and "versions" in done.stderr


def test_the_question_states_the_number() -> None:
    question = _question(VersionCount(versions=1, markers=2, size_bytes=1500), "s3://b/k")
    assert question == "Delete 1 version (1.50 kB) and 2 delete markers of s3://b/k for good?"


class _Circle(BaseHTTPRequestHandler):
    """Lists versions in a circle: each page has one version, and the third is followed by the first."""

    def do_GET(self) -> None:
        """Answer a listing."""
        key = parse_qs(urlsplit(self.path).query).get("key-marker", ["c"])[0]
        after = {"a": "b", "b": "c", "c": "a"}[key]
        body = (
            f"<ListVersionsResult><IsTruncated>true</IsTruncated><NextKeyMarker>{after}</NextKeyMarker>"
            f"<Version><Key>{after}</Key><VersionId>1</VersionId><IsLatest>true</IsLatest><Size>1</Size>"
            "<LastModified>2026-01-01T00:00:00Z</LastModified></Version></ListVersionsResult>"
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_listing_in_a_circle_ends_and_nothing_is_deleted(command: Command) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Circle) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        words = ("rm", "-r", "--versions", "-y", "s3://bucket/", "--endpoint", endpoint, "--no-sign")
        done = command.run(*words, timeout_s=30.0).expect(1)
        server.shutdown()
    assert "the server repeats its markers" in done.stderr and "delete" not in done.stdout
