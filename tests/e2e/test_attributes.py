"""Attributes of objects: by the name, set by options, kept or replaced, for whole objects, uploads and copies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import Place, S3Place
from testbed.trees import MIB, payload

PREFIX = {"versitygw": "x-amz-meta-", "gcs": "x-goog-meta-", "azure": "x-ms-meta-"}
SET = ["--content-type", "text/x-set", "--cache-control", "max-age=5", "--metadata", "Team=wind", "--metadata", "n=1"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A small file and one of two parts, whose names tell their types, and one whose name tells none."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "page.html").write_bytes(b"<p>")
    (folder / "large.json").write_bytes(payload("large", 6 * MIB))
    (folder / "README").write_bytes(b"read")
    return folder


def stated(place: Place, key: str, prefix: str) -> tuple[str | None, str | None, str | None, str | None]:
    """Return content type, cache control, and the metadata `team` and `n`."""
    found = place.headers(key)
    names = ("content-type", "cache-control", f"{prefix}team", f"{prefix}n")
    return tuple(found.get(name) for name in names)  # type: ignore[return-value]


@pytest.mark.parametrize("kind", PREFIX)
def test_attributes_are_guessed_set_kept_and_replaced(
    kind: str, command: Command, place: Callable[[str], Place], files: Path
) -> None:
    store, prefix = place(kind), PREFIX[kind]
    chunks = ["--chunk-size", "5MiB"]
    to, both = store.flags("dst"), [*store.flags("src"), *store.flags("dst")]
    assert command.run("cp", "-r", files, f"{store.url}/plain/", *chunks, *to).code == 0
    assert stated(store, "plain/page.html", prefix) == ("text/html", None, None, None)
    assert stated(store, "plain/large.json", prefix) == ("application/json", None, None, None)

    assert command.run("cp", "-r", files, f"{store.url}/set/", *chunks, *SET, *to).code == 0
    for name in ("page.html", "large.json", "README"):
        assert stated(store, f"set/{name}", prefix) == ("text/x-set", "max-age=5", "wind", "1"), name

    some = ["--cache-control", "no-cache", "--metadata", "n=2"]
    assert command.run("cp", "-r", f"{store.url}/set", f"{store.url}/kept/", *some, *both).code == 0
    for name in ("page.html", "large.json"):
        assert stated(store, f"kept/{name}", prefix) == ("text/x-set", "no-cache", "wind", "2"), name

    replace = ["--metadata-directive", "replace"]
    assert command.run("cp", "-r", f"{store.url}/set", f"{store.url}/new/", *replace, *both).code == 0
    assert stated(store, "new/page.html", prefix) == ("text/html", None, None, None)
    assert stated(store, "new/README", prefix) == ("application/octet-stream", None, None, None)


def test_standard_input_gets_a_type_by_the_name_of_its_destination(
    command: Command, place: Callable[[str], Place]
) -> None:
    store = place("versitygw")
    done = command.run("cp", "-", f"{store.url}/a.css", "--metadata", "n=1", *store.flags("dst"), stdin=b"a{}")
    assert done.code == 0, done.stderr
    assert stated(store, "a.css", "x-amz-meta-") == ("text/css", None, None, "1")


@pytest.mark.parametrize("kind", ["versitygw", "moto"])
def test_tags_are_set_on_uploads_and_on_copies_by_the_store(
    kind: str, command: Command, place: Callable[[str], Place], files: Path
) -> None:
    store = place(kind)
    assert isinstance(store, S3Place)
    both = [*store.flags("src"), *store.flags("dst")]
    assert command.run("cp", files / "README", f"{store.url}/a", "--tag", "n=1", *store.flags("dst")).code == 0
    assert store.client.tags(store.bucket, "a") == {"n": "1"}
    assert command.run("cp", f"{store.url}/a", f"{store.url}/b", "--tag", "m=2", *both).code == 0
    assert store.client.tags(store.bucket, "b") == {"m": "2"}
