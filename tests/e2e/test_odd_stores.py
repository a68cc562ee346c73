"""Stores that break their protocol: no good data is deleted, and no wrong object is visible or called done.

Each store is our own server of a dialect (``testbed.odd_stores``), which the real command uses over HTTP.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.chains import chain, with_limits, write
from testbed.drive import Command, Finished
from testbed.odd_stores import (
    KINDS,
    Answer,
    Cut,
    Edit,
    FlipResponse,
    Habits,
    Kind,
    OddPlace,
    OddStore,
    Reply,
    Rule,
    Truncate,
    during,
)
from testbed.places import FilePlace
from testbed.trees import MIB, payload

XML: list[Kind] = ["s3", "gcs"]
PAGE_KEYS = 3
#: Time after which the clock of a store that counts whole seconds has advanced.
SECOND_S = 1.1
PREFIX = "d/"
OBJECTS = {f"{PREFIX}{number:02}": payload(f"{number}", 1_000 + number) for number in range(10)}
SECRETS = {"a-secret": b"before the prefix", "z/secret": b"behind the prefix"}
MANY = 5_000
"""Number of objects from which a listing is divided into key ranges (at least two pages of 1,000 keys each)."""


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest) -> Iterator[OddStore]:
    with OddStore(request.param, Habits(page_keys=PAGE_KEYS)) as made:
        yield made


@pytest.fixture
def make(command: Command) -> Iterator[Callable[..., OddPlace]]:
    """Makes a bucket of a new odd store, with ten objects below ``d/`` on four pages, one before and one after them."""
    stores: list[OddStore] = []

    def make(kind: Kind, **habits: Any) -> OddPlace:
        stores.append(OddStore(kind, Habits(**{"page_keys": PAGE_KEYS, **habits})))
        place = OddPlace(stores[-1], command)
        for key, content in {**SECRETS, **OBJECTS}.items():
            place.put(key, content)
        return place

    yield make
    for each in stores:
        each.stop()


def below(contents: dict[str, bytes]) -> dict[str, bytes]:
    """Return the objects below ``d/``, by relative name."""
    return {key.removeprefix(PREFIX): content for key, content in contents.items() if key.startswith(PREFIX)}


def files_with(folder: Path, contents: dict[str, bytes]) -> FilePlace:
    place = FilePlace(folder)
    for name, content in contents.items():
        place.put(name, content)
    return place


def files_in(place: FilePlace) -> dict[str, bytes]:
    return {name: place.get(name) for name in place.sizes()}


def test_a_store_without_faults_serves_every_verb(store: OddStore, command: Command) -> None:
    place, other, back = OddPlace(store, command), OddPlace(store, command), FilePlace(command.home / "back")
    contents = {**OBJECTS, "big": payload("big", 6 * MIB)}
    for key, content in contents.items():
        place.put(key, content)
    src, dst = place.flags("src"), other.flags("dst")
    listed = command.run("ls", "-r", place.url, *place.flags()).expect(0).stdout
    assert listed.splitlines() == sorted(contents)
    assert command.run("ls", place.url, *place.flags()).expect(0).stdout.splitlines() == ["big", "d/"]
    assert command.run("du", place.url, *place.flags()).expect(0).stdout.split()[1] == "11"
    command.run("cp", "-r", place.url, back.url, *src).expect(0)
    assert files_in(back) == contents
    command.run("cp", "-r", back.url, other.url, *dst, "--chunk-size", "5MiB").expect(0)
    assert other.contents() == contents and other.unfinished() == []
    other.put("extra", b"extra")
    command.run("sync", "--delete", place.url, other.url, *src, *dst).expect(0)
    command.run("check", "--read", place.url, other.url, *src, *dst).expect(0)
    command.run("mv", "-r", f"{place.url}/d", f"{other.url}/moved", *src, *dst).expect(0)
    assert sorted(place.sizes()) == ["big"]
    command.run("rm", "-r", f"{other.url}/d", *other.flags()).expect(0)
    assert other.contents() == {"big": contents["big"]} | {key.replace("d/", "moved/"): OBJECTS[key] for key in OBJECTS}


# Listings that do not match the request.

BAD_LISTINGS: dict[str, tuple[list[Kind], dict[str, Any], str]] = {
    "no-token": (KINDS, {"omits_token": True}, "more"),
    "nothing-said": (XML, {"omits_truncated": True, "omits_token": True}, "IsTruncated"),
    "one-token": (KINDS, {"repeats_token": True}, "repeats a page|repeats its continuation"),
    "one-page": (KINDS, {"repeats_page": True}, "repeats a page"),
    "border-twice": (KINDS, {"repeats_last": True}, "lists the key|order of the keys|repeats its continuation"),
    "no-prefix": (KINDS, {"ignores_prefix": True, "page_keys": 1_000}, "ignores the prefix"),
    "no-prefix-in-pages": (XML, {"ignores_prefix": True}, "ignores the prefix"),
    "folded": (KINDS, {"folds_unasked": True, "ignores_prefix": True}, "ignores the prefix"),
    "v1-no-marker": (XML, {"v1_only": True, "ignores_start_after": True}, "ignores the marker"),
}
OLD_S = 1_000_000_000
"""A time long before the test [Unix s]."""
VERBS = ["ls", "du", "cp", "mv", "rm", "sync-from", "sync-to", "check"]
DELETING = ["mv", "rm", "sync-from", "sync-to"]


def run_verb(verb: str, command: Command, place: OddPlace, files: FilePlace) -> Finished:
    """Run a verb on ``d/`` of the odd store, and on a folder if it needs a second side."""
    url, src = f"{place.url}/d", place.flags("src")
    return {
        "ls": lambda: command.run("ls", "-r", url, *src),
        "du": lambda: command.run("du", url, *src),
        "cp": lambda: command.run("cp", "-r", url, files.url, *src),
        "mv": lambda: command.run("mv", "-r", url, files.url, *src),
        "rm": lambda: command.run("rm", "-r", "-y", url, *src),
        "sync-from": lambda: command.run("sync", "--delete", "-y", url, files.url, *src),
        "sync-to": lambda: command.run("sync", "--delete", "-y", files.url, url, *place.flags("dst")),
        "check": lambda: command.run("check", url, files.url, *src),
    }[verb]()


def bad_listings() -> list[Any]:
    """Return the cases: all verbs over S3, and verbs that delete over the other two dialects.

    Quick are verbs that delete over S3, one over each other dialect, and all cases of the first fault.
    """
    found = []
    for fault, (kinds, _, _) in BAD_LISTINGS.items():
        for kind in kinds:
            for verb in VERBS if kind == "s3" else DELETING:
                quick = fault == next(iter(BAD_LISTINGS)) or verb in (DELETING if kind == "s3" else ["sync-to"])
                found.append(pytest.param(kind, fault, verb, marks=[] if quick else pytest.mark.slow))
    return found


@pytest.mark.parametrize(("kind", "fault", "verb"), bad_listings())
def test_an_invalid_listing_fails_the_verb_and_deletes_nothing(
    make: Callable[..., OddPlace], command: Command, tmp_path: Path, kind: Kind, fault: str, verb: str
) -> None:
    _, habits, message = BAD_LISTINGS[fault]
    place = make(kind, **habits)
    before = place.contents()
    kept = {"00": OBJECTS["d/00"], "09": OBJECTS["d/09"], "extra": b"extra"}
    files = files_with(tmp_path / "files", kept)
    if verb == "mv":
        # With the same second, length and bytes on both sides, the places would be taken for the same one.
        for name in kept:
            os.utime(files.folder / name, (OLD_S, OLD_S))
    done = run_verb(verb, command, place, files)
    assert done.code == 1, (done.code, done.stderr, done.stdout)
    assert re.search(f"bad listing: .*({message})", done.stderr), done.stderr
    assert "hint: " in done.stderr, done.stderr
    after, there = place.contents(), files_in(files)
    if verb == "sync-to":
        assert after == {**before, **{f"{PREFIX}{name}": after[f"{PREFIX}{name}"] for name in kept if name in after}}
    else:
        assert after == before
    right = {**below(before), "extra": b"extra"}
    assert kept.items() <= there.items() <= right.items()


@pytest.mark.parametrize("kind", KINDS)
def test_endless_empty_pages_end_the_listing(make: Callable[..., OddPlace], command: Command, kind: Kind) -> None:
    place = make(kind, empty_pages=-1)
    done = command.run("du", place.url, *place.flags()).expect(1)
    assert "pages in a row are empty" in done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_an_ignored_delimiter_is_detected(make: Callable[..., OddPlace], command: Command, kind: Kind) -> None:
    place = make(kind, ignores_delimiter=True)
    done = command.run("ls", place.url, *place.flags()).expect(1)
    assert "ignores the delimiter" in done.stderr


FINE_LISTINGS: dict[str, tuple[list[Kind], dict[str, Any]]] = {
    "v1": (XML, {"v1_only": True}),
    "v1-next-marker": (XML, {"v1_only": True, "v1_next_marker": True}),
    "claims-end": (XML, {"claims_end": True}),
    "empty-pages": (KINDS, {"empty_pages": 40}),
    "whole-seconds": (KINDS, {"whole_seconds": True}),
    "opaque-etags": (["gcs", "azure"], {"etags": "opaque"}),
    "no-etags": (KINDS, {"etags": "none"}),
}


@pytest.mark.parametrize(
    ("kind", "oddity"), [(kind, name) for name, (kinds, _) in FINE_LISTINGS.items() for kind in kinds]
)
def test_harmless_oddities(
    make: Callable[..., OddPlace], command: Command, tmp_path: Path, kind: Kind, oddity: str
) -> None:
    place = make(kind, **FINE_LISTINGS[oddity][1])
    files = files_with(tmp_path / "files", {"extra": b"extra"})
    assert command.run("ls", f"{place.url}/d", *place.flags()).expect(0).stdout.split() == sorted(below(OBJECTS))
    run_verb("sync-from", command, place, files).expect(0)
    assert files_in(files) == below(OBJECTS)
    command.run("check", "--read", f"{place.url}/d", files.url, *place.flags()).expect(0)
    files.put("05", b"new")
    (files.folder / "06").unlink()
    time.sleep(SECOND_S)  # An object of the second in which the job starts could be the job's own.
    run_verb("sync-to", command, place, files).expect(0)
    expected = {f"{PREFIX}{name}": content for name, content in files_in(files).items()}
    assert place.contents() == {**SECRETS, **expected}
    run_verb("rm", command, place, files).expect(0)
    assert place.contents() == SECRETS


def test_an_etag_that_only_looks_like_an_md5_is_a_mismatch(
    make: Callable[..., OddPlace], command: Command, tmp_path: Path
) -> None:
    """An S3 ETag of 32 hex digits is an MD5 unless the object is encrypted. An object that does not match it fails."""
    place, files = make("s3", etags="opaque"), FilePlace(tmp_path / "files")
    run_verb("cp", command, place, files).expect(6)
    assert files_in(files) == {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ["reversed", "shuffled"])
def test_unordered_listings_are_copied_but_not_compared(
    make: Callable[..., OddPlace], command: Command, tmp_path: Path, kind: Kind, order: str
) -> None:
    place = make(kind, order=order)
    files = files_with(tmp_path / "files", {"extra": b"extra"})
    run_verb("cp", command, place, files).expect(0)
    assert files_in(files) == {**below(OBJECTS), "extra": b"extra"}
    for verb in ("sync-from", "sync-to", "check"):
        done = run_verb(verb, command, place, files).expect(1)
        assert "its keys are not listed in order" in done.stderr
        assert "hint: `cp -r` and `rm -r` work there" in done.stderr
    assert place.contents() == {**SECRETS, **OBJECTS}
    assert files.get("extra") == b"extra"


@pytest.mark.parametrize(
    ("kind", "habits", "code"),
    [
        ("s3", {}, 0),
        ("gcs", {}, 0),
        ("azure", {}, 0),
        ("s3", {"v1_only": True}, 0),
        ("gcs", {"v1_only": True}, 0),
        ("azure", {"ignores_start_after": True}, 0),
        ("s3", {"ignores_start_after": True}, 0),
        ("gcs", {"ignores_start_after": True}, 0),
        ("s3", {"order": "shuffled"}, None),
        ("azure", {"order": "reversed"}, None),
    ],
    ids=str,
)
def test_listings_in_parallel_ranges(
    make: Callable[..., OddPlace], command: Command, kind: Kind, habits: dict[str, Any], code: int | None
) -> None:
    """An unordered listing may be divided or not (code None). The result is correct, or the command fails."""
    place = make(kind, page_keys=1_000, **habits)
    for number in range(MANY):
        place.put(f"{number % 50:02}/{number}", b"x")
    done = command.run("du", place.url, *place.flags())
    assert done.code in ((0, 1) if code is None else (code,)), done.stderr
    if done.code == 0:
        assert int(done.stdout.split()[1]) == len(place.contents())
    else:
        assert "bad listing: " in done.stderr
    if code == 0:
        queries = [exchange.request.query for exchange in place.store.requests(during("list"))]
        assert any({"start-after", "marker", "startFrom"} & query.keys() for query in queries)


@pytest.mark.parametrize("kind", XML)
@pytest.mark.parametrize("habits", [{"omits_token": True}, {"repeats_page": True}], ids=str)
def test_unlistable_unfinished_uploads_do_not_end_the_job(
    make: Callable[..., OddPlace], command: Command, tmp_path: Path, kind: Kind, habits: dict[str, Any]
) -> None:
    """An upload is looked up if the answer to its opening was lost. A truncated listing must not hide it."""
    place = make(kind, page_keys=1, **habits)
    files = files_with(tmp_path / "files", {"big": payload("big", 12 * MIB)})
    for _ in range(3):
        place.store.objects.open_upload(place.bucket, "big", {})
    place.store.add(Rule(Edit(lambda _: Reply(500)), when=during("open upload"), count=1))
    done = command.run("cp", f"{files.url}/big", f"{place.url}/big", *place.flags("dst"), "--chunk-size", "5MiB")
    done.expect(0)
    assert place.get("big") == files.get("big")


# Objects.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("offset", [-1, 1])
def test_an_object_with_a_wrong_listed_length_is_never_called_done(
    make: Callable[..., OddPlace], command: Command, tmp_path: Path, kind: Kind, offset: int
) -> None:
    place, files = make(kind, listed_size_offset=offset), FilePlace(tmp_path / "files")
    place.put("d/big", payload("big", 12 * MIB))
    done = command.run("mv", "-r", f"{place.url}/d", files.url, *place.flags("src"), "--chunk-size", "5MiB")
    right = {**OBJECTS, "d/big": payload("big", 12 * MIB)}
    there = files_in(files)
    assert there.items() <= below(right).items()
    left = below(place.contents())
    assert {**left, **there} == below(right), "each object is on at least one side"
    assert done.code != 0 or there == below(right), done.stderr


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lie", ["range", "length", "short", "longer", "flipped", "cut", "ignored-range"])
def test_bytes_with_false_headers_never_become_visible(
    make: Callable[..., OddPlace], command: Command, tmp_path: Path, kind: Kind, lie: str
) -> None:
    place, files = make(kind, ignores_range=lie == "ignored-range"), FilePlace(tmp_path / "files")
    # These stores state only an MD5, which can only be checked for objects that are read in one piece.
    content = payload("big", 3 * MIB if lie == "flipped" else 12 * MIB)
    place.put("big", content)

    def change(reply: Reply) -> None:
        if lie == "range" and "content-range" in reply.headers:
            reply.headers["content-range"] = "bytes 0-4/5"
        elif lie == "length":
            reply.headers["content-length"] = str(len(reply.body) - 7)
        elif lie == "short":
            reply.body = reply.body[:-7]
        elif lie == "longer":
            reply.body += b"more"

    action = {"flipped": FlipResponse(4_321), "cut": Truncate(4_321)}.get(lie, Edit(change))
    if lie != "ignored-range":
        place.store.add(Rule(action, when=during("get")))
    topology = write(with_limits(chain(), store_tries_max=2), tmp_path / "topology.json")
    source = [f"{place.url}/big", *place.flags("src"), "--chunk-size", "5MiB", "--topology", str(topology)]
    done = command.run("mv", source[0], f"{files.url}/big", *source[1:])
    if lie == "flipped" and kind == "azure":
        pytest.skip("this store states no checksum")
    assert place.contents().get("big") == content or files_in(files) == {"big": content}
    assert files_in(files) in ({}, {"big": content}), "no wrong object is visible"
    assert done.code != 0 or files_in(files) == {"big": content}, done.stderr


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", ["put", "open upload", "put part", "complete upload", "copy", "list", "delete"])
@pytest.mark.parametrize("how", ["error-in-200", "cut"])
def test_an_error_with_a_success_status_is_detected(
    make: Callable[..., OddPlace], command: Command, tmp_path: Path, kind: Kind, operation: str, how: str
) -> None:
    place, there = make(kind), make(kind)
    files = files_with(tmp_path / "files", {"small": b"small", "big": payload("big", 12 * MIB)})
    action = Answer(200, "InternalError") if how == "error-in-200" else Cut()
    # An object may be deleted by a request for one object or for many.
    matches = [during(operation), *([during("delete many")] if operation == "delete" else [])]
    rule = there.store.add(Rule(action, when=lambda request: any(match(request) for match in matches), count=1))
    command.run("cp", "-r", files.url, f"{there.url}/up", *there.flags("dst"), "--chunk-size", "5MiB").expect(0)
    expected = {"up/small": files.get("small"), "up/big": files.get("big")}
    assert {key: there.get(key) for key in expected} == expected
    other = OddPlace(there.store, command)
    command.run("mv", "-r", f"{there.url}/up", other.url, *there.flags("src"), *other.flags("dst")).expect(0)
    assert other.contents() == files_in(files)
    assert there.contents() == {**SECRETS, **OBJECTS}
    assert place.contents() == {**SECRETS, **OBJECTS}
    assert rule.strikes == (0 if kind == "azure" and operation == "open upload" else 1)


def without_keys(reply: Reply) -> Reply:
    """A page of a listing without its objects."""
    return Reply(reply.status, reply.headers, re.sub(rb"<Contents>.*</Contents>", b"", reply.body, flags=re.DOTALL))


@pytest.mark.parametrize("lists_late", [False, True])
@pytest.mark.parametrize("kind", XML)
def test_nothing_is_deleted_that_the_source_has_and_did_not_list(
    make: Callable[..., OddPlace], command: Command, tmp_path: Path, kind: Kind, lists_late: bool
) -> None:
    """The listing ends after its first page and claims to be complete, or lacks all objects after that page."""
    place = make(kind, omits_token=not lists_late, claims_end=not lists_late)
    if lists_late:
        place.store.add(Rule(Edit(without_keys), when=during("list"), skip=1))
    files = files_with(tmp_path / "files", {**below(OBJECTS), "extra": b"extra"})
    done = command.run("sync", "--delete", "-y", f"{place.url}/d", files.url, *place.flags("src"), "--json").expect(4)
    assert files_in(files) == below(OBJECTS)
    assert done.summary["objects_deleted"] == 1
    kept = [failure for failure in done.failures if "which was not in its listing" in failure["message"]]
    assert len(done.failures) == len(kept) == done.summary["objects_not_deleted"] > 0


@pytest.mark.parametrize("kind", XML)
def test_nothing_is_deleted_if_the_source_does_not_say_whether_it_has_it(
    make: Callable[..., OddPlace], command: Command, tmp_path: Path, kind: Kind
) -> None:
    """The source may be listed at first, and then forbids to look up single names."""
    place = make(kind)
    files = files_with(tmp_path / "files", {"extra": b"extra"})
    command.run("cp", "-r", f"{place.url}/d", files.url, *place.flags("src")).expect(0)
    refused = Answer(403, "AccessDenied")
    place.store.add(Rule(refused, when=during("head")))
    place.store.add(Rule(refused, when=lambda asked: asked.query.get("prefix") == f"{PREFIX}extra"))
    done = command.run("sync", "--delete", "-y", f"{place.url}/d", files.url, *place.flags("src"), "--json").expect(4)
    assert files_in(files) == {**below(OBJECTS), "extra": b"extra"}
    (kept,) = done.failures
    assert "cannot look for it at the source" in kept["message"]
