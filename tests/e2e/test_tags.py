"""Tags of objects: kept between stores that have them, counted where they are lost, and never asked for with drop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.odd_stores import Answer, Habits, OddPlace, OddStore, Request, Rule, during
from testbed.places import AzurePlace, Place, S3Place
from testbed.trees import MIB, payload

TAGS = {"team": "wind", "stage": "a b"}
HEADER = "team=wind&stage=a%20b"
CHUNKS = ["--chunk-size", "5MiB"]
KINDS = ["versitygw", "azure", pytest.param("moto", marks=pytest.mark.slow)]


def put(place: Place, key: str, content: bytes) -> None:
    """Write an object with TAGS."""
    if isinstance(place, AzurePlace):
        place.client.put(place.container, key, content, {"x-ms-tags": HEADER})
    else:
        assert isinstance(place, S3Place)
        place.client.put(place.bucket, key, content, {"x-amz-tagging": HEADER})


def tags(place: Place, key: str) -> dict[str, str]:
    """Return the tags of an object."""
    if isinstance(place, AzurePlace):
        return place.client.tags(place.container, key)
    assert isinstance(place, S3Place)
    return place.client.tags(place.bucket, key)


def fill(place: Place) -> None:
    """Write a small object and one of two parts, with tags, and one without."""
    put(place, "d/small", b"small")
    put(place, "d/large", payload("large", 6 * MIB))
    place.put("d/none", b"none")


def copied(command: Command, source: Place, destination: Place, to: str, *words: str) -> int:
    """Copy `d` to a prefix; return the number of objects that the summary states as without tags."""
    flags = [*source.flags("src"), *destination.flags("dst"), *CHUNKS, *words, "--json"]
    done = command.run("cp", "-r", f"{source.url}/d", f"{destination.url}/{to}/", *flags).expect(0)
    dropped: int = done.summary["tags_dropped"]
    return dropped


@pytest.mark.parametrize("kind", KINDS)
def test_tags_are_kept_inside_a_store(kind: str, command: Command, place: Callable[[str], Place]) -> None:
    there = place(kind)
    fill(there)
    for rule in ("auto", "keep"):
        assert copied(command, there, there, rule, "--tags", rule) == 0
        assert tags(there, f"{rule}/small") == tags(there, f"{rule}/large") == TAGS
        assert tags(there, f"{rule}/none") == {}
    assert copied(command, there, there, "drop", "--tags", "drop") == 0
    assert tags(there, "drop/small") == tags(there, "drop/large") == {}
    assert copied(command, there, there, "merged", "--tags", "keep", "--tag", "team=sea", "--tag", "n=1") == 0
    assert tags(there, "merged/small") == tags(there, "merged/large") == {**TAGS, "team": "sea", "n": "1"}
    assert copied(command, there, there, "set", "--tag", "n=1") == 0
    assert tags(there, "set/small") == {"n": "1"}


@pytest.mark.parametrize(("source", "destination"), [("versitygw", "azure"), ("azure", "moto"), ("moto", "versitygw")])
def test_tags_are_kept_between_stores(
    source: str, destination: str, command: Command, place: Callable[[str], Place]
) -> None:
    here, there = place(source), place(destination)
    fill(here)
    assert copied(command, here, there, "auto") == 0
    assert copied(command, here, there, "keep", "--tags", "keep") == 0
    for name in ("auto/small", "auto/large", "keep/small", "keep/large"):
        assert tags(there, name) == TAGS, name
    assert copied(command, here, there, "drop", "--tags", "drop") == 0
    assert tags(there, "drop/small") == tags(there, "drop/large") == tags(there, "keep/none") == {}


def test_lost_tags_are_counted_in_the_summary(command: Command, place: Callable[[str], Place], tmp_path: Path) -> None:
    here = place("versitygw")
    fill(here)
    words = ["cp", "-r", f"{here.url}/d", str(tmp_path / "out"), *here.flags("src"), *CHUNKS]
    assert "2 without the tags of their sources" in command.run(*words).expect(0).stderr
    dropped = command.run(*words, "--tags", "drop").expect(0)
    assert "without the tags" not in dropped.stderr


def test_tags_decide_nothing_about_what_is_the_same(command: Command, place: Callable[[str], Place]) -> None:
    here, there = place("versitygw"), place("moto")
    fill(here)
    both = [*here.flags("src"), *there.flags("dst"), *CHUNKS]
    command.run("sync", f"{here.url}/d", f"{there.url}/d", "--tags", "drop", *both).expect(0)
    check = command.run("check", f"{here.url}/d", f"{there.url}/d", *here.flags("src"), *there.flags("dst"))
    assert "0 differ" in check.stderr
    again = command.run("sync", f"{here.url}/d", f"{there.url}/d", "--tags", "keep", "--json", *both).expect(0)
    assert again.summary["progress"]["objects_done"] == 0


@pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (501, "NotImplemented")])
def test_a_destination_that_refuses_tags_gets_objects_without_them(
    status: int, code: str, command: Command, place: Callable[[str], Place]
) -> None:
    here = place("moto")
    fill(here)
    with OddStore("s3", Habits()) as store:
        there = OddPlace(store, command)
        store.add(Rule(Answer(status, code), when=lambda request: "x-amz-tagging" in request.headers))
        words = ["cp", "-r", f"{here.url}/d", f"{there.url}/d/", *here.flags("src"), *there.flags("dst"), *CHUNKS]
        kept = command.run(*words, "--tags", "keep")
        assert (kept.code, sorted(there.sizes())) == (4, ["d/none"]), kept.stderr
        done = command.run(*words, "--json").expect(0)
        assert done.summary["tags_dropped"] == 2
        assert sorted(there.sizes()) == ["d/large", "d/none", "d/small"]
        command.run(*words, "--tags", "auto", "--tag", "n=1").expect(7 if status == 403 else 1)


def test_a_store_that_may_not_copy_tags_copies_objects_without_them(
    command: Command, place: Callable[[str], Place]
) -> None:
    with OddStore("s3", Habits()) as store:
        there = OddPlace(store, command)
        there.put("d/k", b"tagged")
        refused = during("copy")
        store.add(Rule(Answer(403, "AccessDenied"), when=lambda each: refused(each) and copies_tags(each)))
        words = ["cp", "-r", f"{there.url}/d", f"{there.url}/to/", *there.flags("src"), *there.flags("dst")]
        assert command.run(*words, "--tags", "keep").code == 7
        assert there.sizes() == {"d/k": 6}
        assert command.run(*words, "--json").expect(0).summary["tags_dropped"] == 1
        assert there.sizes() == {"d/k": 6, "to/k": 6}
        store.add(Rule(Answer(403, "AccessDenied"), when=refused))
        assert command.run(*words, "--tags", "drop").code == 7


def copies_tags(request: Request) -> bool:
    return "x-amz-tagging-directive" not in request.headers


def test_keep_refuses_a_store_without_tags(command: Command, place: Callable[[str], Place], tmp_path: Path) -> None:
    here = place("versitygw")
    fill(here)
    refused = command.run("cp", f"{here.url}/d/small", str(tmp_path / "x"), "--tags", "keep", *here.flags("src"))
    assert refused.code == 2
    assert f"--tags keep: a file system does not keep tags of objects: {tmp_path / 'x'}" in refused.stderr
    assert not (tmp_path / "x").exists()
