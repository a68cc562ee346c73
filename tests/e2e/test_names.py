"""Names that only one side can store; empty objects; markers."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import FilePlace, S3Place
from testbed.servers import Server
from testbed.trees import ODD_KEYS, payload

REFUSED_BY_FILES = {
    "double//slash",
    "many////slashes",
    "dot/./inside",
    "dotdot/../inside",
    "k" * 1024,
    "ü" * 512,
}
"""Names that a file system cannot store unchanged."""


@pytest.fixture
def odd(moto_server: Server, command: Command) -> S3Place:
    """A bucket full of odd keys, on the only server that accepts all of them. `/leading` has an empty first folder."""
    place = S3Place(moto_server, command)
    for key in [*ODD_KEYS, "/leading"]:
        place.put(key, content(key))
    return place


def content(key: str) -> bytes:
    """Return the content of a key. Markers are empty, because a folder could not store their bytes."""
    return b"" if key.endswith("/") else payload(key, len(key))


def test_every_key_survives_between_stores(command: Command, odd: S3Place, moto_server: Server) -> None:
    other = S3Place(moto_server, command)
    other.endpoint = other.endpoint.replace("127.0.0.1", "localhost")  # This looks like another server.
    command.run("cp", "-r", odd.url, other.url, *odd.flags("src"), *other.flags("dst")).expect(0)
    assert other.sizes() == odd.sizes()
    for key in odd.sizes():
        assert other.get(key) == content(key), key


def test_every_key_survives_a_server_side_copy(command: Command, odd: S3Place, moto_server: Server) -> None:
    other = S3Place(moto_server, command)
    command.run("cp", "-r", odd.url, other.url, *odd.flags("src"), *other.flags("dst")).expect(0)
    assert other.sizes() == odd.sizes()
    for key in odd.sizes():
        assert other.get(key) == content(key), key


def test_names_that_a_file_system_cannot_store_fail_and_the_rest_is_copied(
    command: Command, odd: S3Place, tmp_path: Path
) -> None:
    back = FilePlace(tmp_path / "back")
    done = command.run("cp", "-r", "--json", odd.url, back.url, *odd.flags("src")).expect(4)
    refused = {failure["source"].removeprefix(f"{odd.url}/"): failure["kind"] for failure in done.failures}
    assert set(refused) >= REFUSED_BY_FILES | {"/leading"}
    assert set(refused) - REFUSED_BY_FILES - {"/leading"} <= {"a", "a/b", "a/b/c"}, "a file and a folder of one name"
    assert set(refused.values()) == {"invalid_key"}
    kept = {key for key in odd.sizes() if key not in refused and not key.endswith("/")}
    assert set(back.sizes()) == kept
    for key in kept:
        assert back.get(key) == content(key), key
    assert (back.folder / "marker").is_dir()


def test_no_name_escapes_from_the_destination_folder(command: Command, moto_server: Server, tmp_path: Path) -> None:
    bucket, back = S3Place(moto_server, command), FilePlace(tmp_path / "inner" / "back")
    for key in ("../escaped", "a/../../escaped", "/etc/escaped", "fine"):
        bucket.put(key, b"x")
    command.run("cp", "-r", bucket.url, back.url, *bucket.flags("src")).expect(4)
    assert back.sizes() == {"fine": 1}
    assert {path.name for path in tmp_path.rglob("*escaped*")} == set()


def test_a_file_name_that_is_not_utf_8_is_reported_and_the_rest_is_copied(
    command: Command, s3: S3Place, tmp_path: Path
) -> None:
    source = FilePlace(tmp_path / "tree")
    source.put("fine", b"x")
    (source.folder / "bad-\udcff").write_bytes(b"y")
    done = command.run("cp", "-r", "--json", source.url, s3.url, *s3.flags("dst")).expect(4)
    assert len(done.failures) == 1
    assert s3.sizes() == {"fine": 1}


def test_a_file_named_like_a_temporary_one_is_copied(command: Command, tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    users = {".x.tradewind-0123456789abcdef", ".tradewind-0123456789abcdef", f".{'y' * 100}.tradewind-{'0' * 16}"}
    # The first eight digits are the CRC-32C of the name, as in the temporary file of an unfinished write.
    ours = {".123456789.tradewind-e306928301234567"}
    for name in users | ours:
        (source / name).write_bytes(b"1")
    command.run("cp", "-r", f"{source}/", copy).expect(0)
    assert {path.name for path in copy.iterdir()} == users
    command.run("mv", "-r", f"{source}/", tmp_path / "moved").expect(0)
    assert {path.name for path in source.iterdir()} == ours
