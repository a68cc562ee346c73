"""Azure's content beside block blobs: directories, encoded names, blobs of other types, blocks of other clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.faults import Rule
from testbed.odd_stores import Answer, OddPlace, OddStore, during
from testbed.places import FilePlace
from testbed.trees import MIB, payload

CONTENTS = {"d/a": b"a", "d/sub/b": b"b", "d/sub/deep/c": b"c", "top": b"top"}
BELOW = {key.removeprefix("d/"): content for key, content in CONTENTS.items() if key.startswith("d/")}


@pytest.fixture(params=["hierarchical", "markers"])
def place(request: pytest.FixtureRequest, azure_store: OddStore, command: Command) -> OddPlace:
    """A container with directories: of a hierarchical namespace, or as Hadoop's marker blobs."""
    made = OddPlace(azure_store, command)
    for key, content in CONTENTS.items():
        made.put(key, content)
    if request.param == "hierarchical":
        azure_store.habits.lists_directories = True
    else:
        for name in ("d", "d/sub", "d/sub/deep"):
            azure_store.objects.put(made.bucket, name, b"", {"x-ms-meta-hdi_isfolder": "true"})
    azure_store.habits.page_keys = 2
    return made


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def blobs(place: OddPlace) -> dict[str, bytes]:
    """Return the contents without the markers of directories."""
    return {key: content for key, content in place.contents().items() if content}


def test_directories_are_not_objects(place: OddPlace, command: Command, tmp_path: Path) -> None:
    src = place.flags("src")
    assert command.run("ls", "-r", place.url, *src).expect(0).stdout.split() == sorted(CONTENTS)
    assert command.run("ls", place.url, *src).expect(0).stdout.split() == ["d/", "top"]
    assert command.run("du", place.url, *src).expect(0).stdout.split()[1] == "4"
    command.run("cp", "-r", f"{place.url}/d", str(tmp_path / "to"), *src).expect(0)
    assert files_in(tmp_path / "to") == BELOW
    command.run("check", "--read", f"{place.url}/d", str(tmp_path / "to"), *src).expect(0)
    command.run("cp", f"{place.url}/d", str(tmp_path / "one"), *src).expect(3)
    assert not (tmp_path / "one").exists()


def test_a_tree_with_directories_is_moved(place: OddPlace, command: Command, tmp_path: Path) -> None:
    command.run("mv", "-r", f"{place.url}/d", str(tmp_path / "to"), *place.flags("src")).expect(0)
    assert files_in(tmp_path / "to") == BELOW
    assert blobs(place) == {"top": b"top"}


def test_a_tree_with_directories_is_deleted(place: OddPlace, command: Command) -> None:
    command.run("rm", "-r", "-y", f"{place.url}/d", *place.flags("src")).expect(0)
    assert blobs(place) == {"top": b"top"}


def test_directories_at_the_destination_are_not_extraneous(place: OddPlace, command: Command, tmp_path: Path) -> None:
    files = FilePlace(tmp_path / "files")
    for name, content in BELOW.items():
        files.put(name, content)
    place.put("d/extra", b"extra")
    command.run("sync", "--delete", "-y", files.url, f"{place.url}/d", *place.flags("dst")).expect(0)
    assert blobs(place) == CONTENTS


def test_encoded_names_are_decoded(azure_store: OddStore, command: Command, tmp_path: Path) -> None:
    azure_store.habits.encodes_names = True
    place = OddPlace(azure_store, command)
    contents = {"d/100% sure": b"1", "d/a+b": b"2", "d/é": b"3", "d/%41": b"4"}
    for key, content in contents.items():
        place.put(key, content)
    src = place.flags("src")
    assert command.run("ls", "-r", place.url, *src).expect(0).stdout.splitlines() == sorted(contents)
    assert command.run("ls", place.url, *src).expect(0).stdout.splitlines() == ["d/"]
    command.run("mv", "-r", f"{place.url}/d", str(tmp_path / "to"), *src).expect(0)
    assert files_in(tmp_path / "to") == {key[2:]: content for key, content in contents.items()}
    assert place.contents() == {}


@pytest.mark.parametrize(
    ("operation", "status", "code", "words"),
    [
        ("put", 409, "InvalidBlobType", "a blob of another type"),
        ("put part", 409, "InvalidBlobType", "a blob of another type"),
        ("put part", 400, "InvalidBlobOrBlock", "another client's unfinished upload"),
        ("complete upload", 409, "InvalidBlobType", "a blob of another type"),
        ("put", 409, "ResourceTypeMismatch", "a directory"),
    ],
)
def test_a_name_conflict_is_reported(
    azure_store: OddStore, command: Command, tmp_path: Path, operation: str, status: int, code: str, words: str
) -> None:
    place, source = OddPlace(azure_store, command), tmp_path / "k"
    source.write_bytes(b"small" if operation == "put" else payload("k", 12 * MIB))
    rule = azure_store.add(Rule(Answer(status, code), when=during(operation)))
    done = command.run("cp", "--json", source, f"{place.url}/k", "--chunk-size", "5MiB", *place.flags("dst")).expect(1)
    assert done.failure_kinds == ["occupied"]
    assert words in done.failures[0]["message"] and code in done.failures[0]["message"]
    assert done.failures[0]["hint"]
    # Three parts may be in flight when the first one is refused.
    assert rule.strikes <= 3
