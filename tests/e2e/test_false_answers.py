"""Stores with false answers to writes and deletes, and proxies that answer in their place."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from testbed.drive import Command
from testbed.faults import Rule
from testbed.odd_stores import (
    Answer,
    Asking,
    Call,
    Edit,
    Habits,
    Instead,
    Kind,
    OddPlace,
    OddStore,
    Reply,
    Request,
    during,
)
from testbed.places import AzurePlace, S3Place
from testbed.servers import Server, versitygw
from testbed.trees import MIB, payload

CHUNK = ("--chunk-size", "5MiB")
OLD, NEW = payload("old", 1_000), payload("new", 1_000)
PAGE = b"<!DOCTYPE html><html><body>Sign in to the network</body></html>"
DELETES = ("delete", "delete many")
SECOND_S = 1.1


def page(status: int) -> Instead:
    """Return the action of a proxy that answers with a page and does not forward the request."""
    return Instead(lambda _: Reply(status, {"content-type": "text/html"}, PAGE))


def deletes(asking: Request) -> bool:
    return any(during(operation)(asking) for operation in DELETES)


def damage(place: OddPlace, key: str, fault: str) -> Edit:
    """Return an action that answers with success, but leaves a shorter object, none, or another writer's."""

    def after(reply: Reply) -> None:
        if fault == "shorter":
            found = place.store.objects.find(place.bucket, key)
            found.body = found.body[:10]
        elif fault == "missing":
            place.store.objects.delete(place.bucket, key)
        else:
            place.put(key, b"another's")

    return Edit(after)


@pytest.mark.parametrize("fault", ["shorter", "missing", "replaced"])
def test_an_upload_that_is_not_stored_as_written_is_not_called_done(
    store: OddStore, command: Command, tmp_path: Path, fault: str
) -> None:
    place, source = OddPlace(store, command), tmp_path / "k"
    source.write_bytes(payload("big", 12 * MIB))
    store.add(Rule(damage(place, "k", fault), when=during("complete upload")))
    done = command.run("mv", "--json", source, f"{place.url}/k", *CHUNK, *place.flags("dst"))
    assert (done.code, done.failure_kinds) == ((1, ["overwritten"]) if fault == "replaced" else (6, ["mismatch"]))
    assert source.exists()
    assert place.contents() == ({"k": b"another's"} if fault == "replaced" else {})


@pytest.mark.parametrize("fault", ["shorter", "missing", "replaced"])
def test_standard_input_that_is_not_stored_as_written_is_not_called_done(
    store: OddStore, command: Command, fault: str
) -> None:
    place = OddPlace(store, command)
    store.add(Rule(damage(place, "k", fault), when=during("complete upload")))
    done = command.run("cp", "-", f"{place.url}/k", *CHUNK, *place.flags("dst"), stdin=payload("big", 12 * MIB))
    assert done.code == (1 if fault == "replaced" else 6), done.stderr
    assert place.contents() == ({"k": b"another's"} if fault == "replaced" else {})


@pytest.mark.parametrize("fault", ["shorter", "missing", "replaced"])
def test_a_wrong_server_side_copy_is_not_called_done(store: OddStore, command: Command, fault: str) -> None:
    """If the store's copy is wrong, the bytes are sent instead."""
    source, place = OddPlace(store, command), OddPlace(store, command)
    source.put("k", OLD)
    store.add(Rule(damage(place, "k", fault), when=during("copy")))
    arguments = [f"{source.url}/k", f"{place.url}/k", *source.flags("src"), *place.flags("dst")]
    done = command.run("mv", "--json", *arguments)
    if fault == "replaced":
        assert (done.code, done.failure_kinds) == (1, ["overwritten"])
        assert (source.contents(), place.contents()) == ({"k": OLD}, {"k": b"another's"})
    else:
        done.expect(0)
        assert (source.contents(), place.contents()) == ({}, {"k": OLD})


def test_a_pending_copy_that_is_replaced_is_not_called_done(azure_store: OddStore, command: Command) -> None:
    source, place = OddPlace(azure_store, command), OddPlace(azure_store, command)
    source.put("k", OLD)
    azure_store.habits.pending_copies = 3
    replace = Rule(Call(lambda: place.put("q", b"another's")), when=during("head", "q"), skip=2, count=1)
    azure_store.add(replace)
    arguments = [f"{source.url}/k", f"{place.url}/q", *source.flags("src"), *place.flags("dst")]
    done = command.run("cp", "--json", *arguments).expect(1)
    assert replace.strikes == 1
    assert done.failure_kinds == ["overwritten"]
    assert place.contents() == {"q": b"another's"}


def test_a_source_rewritten_before_a_server_side_copy_is_detected(store: OddStore, command: Command) -> None:
    """The server ignores the condition on the copy's source, and the new version has the same length."""
    store.habits.ignores_copy_conditions = True
    source, place = OddPlace(store, command), OddPlace(store, command)
    source.put("k", OLD)
    store.add(Rule(Call(lambda: source.put("k", NEW)), when=during("copy"), count=1))
    arguments = [f"{source.url}/k", f"{place.url}/k", *source.flags("src"), *place.flags("dst")]
    done = command.run("mv", "--json", *arguments)
    if store.kind != "azure":
        # The MD5 of the copy differs from that of the listed object, so the new version is sent.
        done.expect(0)
        assert (source.contents(), place.contents()) == ({}, {"k": NEW})
    else:
        assert done.code != 0, done.stdout
        assert done.failure_kinds == ["changed"]
        assert (source.contents(), place.contents()) == ({"k": NEW}, {})


@pytest.mark.parametrize("spelled", [lambda _: None, lambda key: key.replace("/", "%2F"), str.upper])
@pytest.mark.parametrize("verb", ["rm", "mv"])
def test_a_refused_deletion_of_an_unrequested_key_fails_the_batch(
    s3_store: OddStore, command: Command, tmp_path: Path, verb: str, spelled: Callable[[str], str | None]
) -> None:
    place = OddPlace(s3_store, command)
    contents = {f"d/{number}": b"locked" for number in range(3)}
    for key, content in contents.items():
        place.put(key, content)

    def refuse(asking: Asking) -> Reply:
        keys = [each.findtext("{*}Key", "") for each in ElementTree.fromstring(asking.body).iterfind("{*}Object")]
        named = [f"<Key>{spelling}</Key>" if (spelling := spelled(key)) else "" for key in keys]
        errors = [f"<Error>{name}<Code>AccessDenied</Code><Message>locked</Message></Error>" for name in named]
        return Reply(
            200, {"content-type": "application/xml"}, f"<DeleteResult>{''.join(errors)}</DeleteResult>".encode()
        )

    s3_store.add(Rule(Instead(refuse), when=during("delete many")))
    if verb == "rm":
        done = command.run("rm", "-r", "-y", f"{place.url}/d", *place.flags()).expect(4)
    else:
        done = command.run("mv", "-r", "--json", f"{place.url}/d", tmp_path / "to", *place.flags()).expect(4)
        assert done.failure_kinds == ["protocol"] * 3
    assert "which was not requested" in done.stderr + done.stdout
    assert place.contents() == contents


def test_a_key_that_a_list_of_deleted_keys_passes_over_is_looked_up(s3_store: OddStore, command: Command) -> None:
    """The server deletes only the first key of each request, and names only that one."""
    place = OddPlace(s3_store, command)
    for number in range(5):
        place.put(f"d/{number}", OLD)

    def delete_first(asking: Asking) -> Reply:
        key = ElementTree.fromstring(asking.body).findtext("{*}Object/{*}Key", "")
        s3_store.objects.delete(place.bucket, key)
        body = f"<DeleteResult><Deleted><Key>{key}</Key></Deleted></DeleteResult>"
        return Reply(200, {"content-type": "application/xml"}, body.encode())

    s3_store.add(Rule(Instead(delete_first), when=during("delete many")))
    done = command.run("rm", "-r", "-y", f"{place.url}/d", *place.flags())
    assert (done.code == 0) == (place.contents() == {}), done.stderr
    assert done.code in (0, 4)


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("verb", ["rm", "mv"])
def test_a_proxys_page_deletes_nothing(
    store: OddStore, command: Command, tmp_path: Path, verb: str, status: int
) -> None:
    place = OddPlace(store, command)
    place.put("k", OLD)
    store.add(Rule(page(status), when=deletes))
    if verb == "rm":
        done = command.run("rm", "-y", f"{place.url}/k", *place.flags())
    else:
        done = command.run("mv", f"{place.url}/k", tmp_path / "k", *place.flags())
    assert done.code in (1, 4), done.stderr
    assert "error: " in done.stderr
    assert place.contents() == {"k": OLD}


def test_a_proxys_page_writes_nothing(store: OddStore, command: Command, tmp_path: Path) -> None:
    place, source = OddPlace(store, command), tmp_path / "k"
    source.write_bytes(OLD)
    store.add(Rule(page(200), when=during("put")))
    done = command.run("mv", "--json", source, f"{place.url}/k", *place.flags("dst")).expect(1)
    assert done.failure_kinds == ["protocol"]
    assert source.read_bytes() == OLD


def test_mv_keeps_an_object_whose_version_cannot_be_checked(store: OddStore, command: Command, tmp_path: Path) -> None:
    """It is listed with an ETag, but read and checked without one: a rewrite in between could not be detected."""
    store.habits.no_times = True
    store.habits.ignores_delete_conditions = True
    place = OddPlace(store, command)
    place.put("d/k", OLD)

    def silence(reply: Reply) -> None:
        for name in ("etag", "x-goog-generation", "x-goog-hash"):
            reply.headers.pop(name, None)

    def rewrite(reply: Reply) -> None:
        silence(reply)
        place.put("d/k", NEW)

    store.add(Rule(Edit(rewrite), when=during("get"), count=1))
    store.add(Rule(Edit(silence), when=during("head")))
    done = command.run("mv", "-r", "--json", f"{place.url}/d", tmp_path / "to", *place.flags()).expect(4)
    assert done.failure_kinds == ["changed"]
    assert "it may have changed" in done.failures[0]["message"]
    assert place.contents() == {"d/k": NEW}


@pytest.mark.parametrize("verb", ["mv", "rm", "sync"])
def test_a_blob_with_snapshots_is_not_deleted(
    azure_server: Server, command: Command, tmp_path: Path, verb: str
) -> None:
    place = AzurePlace(azure_server, command)
    place.put("d/k", OLD)
    place.client.snapshot(place.container, "d/k")
    for key in ("d/k", "d/plain", "d/kept"):
        place.put(key, NEW)
    if verb == "mv":
        done = command.run("mv", "-r", f"{place.url}/d", tmp_path / "to", *place.flags("src"))
    elif verb == "rm":
        done = command.run("rm", "-r", "-y", f"{place.url}/d", *place.flags("src"))
    else:
        (tmp_path / "from").mkdir()
        (tmp_path / "from" / "kept").write_bytes(NEW)
        done = command.run("sync", "--delete", "-y", tmp_path / "from", f"{place.url}/d", *place.flags("dst"))
    assert done.code == 4, done.stderr
    assert "deleting it would also delete its snapshots" in done.stderr
    assert "hint: delete its snapshots first" in done.stderr
    assert set(place.sizes()) == ({"d/k", "d/kept"} if verb == "sync" else {"d/k"})


def test_a_wrong_blob_with_snapshots_is_not_removed(azure_store: OddStore, command: Command, tmp_path: Path) -> None:
    place, source = OddPlace(azure_store, command), tmp_path / "k"
    source.write_bytes(payload("big", 12 * MIB))
    azure_store.add(Rule(damage(place, "k", "shorter"), when=during("complete upload")))

    def keeps_snapshots(asking: Request) -> bool:
        return during("delete")(asking) and asking.headers.get("x-ms-delete-snapshots") != "include"

    refusal = azure_store.add(Rule(Answer(409, "SnapshotsPresent"), when=keeps_snapshots))
    done = command.run("cp", "--json", source, f"{place.url}/k", *CHUNK, *place.flags("dst")).expect(6)
    assert refusal.strikes > 0
    assert "it could not be removed" in done.failures[0]["message"]
    assert "k" in place.contents()


def gateway_etags(place: OddPlace, key: str) -> Edit:
    """Return an action that states another ETag than the answer to the write, and the upload's checksum."""

    def other(reply: Reply) -> None:
        if "etag" in reply.headers:
            reply.headers["etag"] = '"gateway-1"'
        given = [each.request.headers for each in place.store.requests(during("complete upload", key))]
        if given and "x-amz-checksum-crc64nvme" in given[-1]:
            reply.headers["x-amz-checksum-crc64nvme"] = given[-1]["x-amz-checksum-crc64nvme"]
            reply.headers["x-amz-checksum-type"] = "FULL_OBJECT"

    return Edit(other)


@pytest.mark.parametrize("verb", ["cp", "mv", "put"])
def test_another_etag_over_the_same_checksum_is_the_same_object(
    s3_store: OddStore, command: Command, tmp_path: Path, verb: str
) -> None:
    place, source = OddPlace(s3_store, command), tmp_path / "k"
    source.write_bytes(payload("big", 12 * MIB))
    s3_store.add(Rule(gateway_etags(place, "k"), when=during("head", "k")))
    if verb == "put":
        command.run("cp", "-", f"{place.url}/k", *CHUNK, *place.flags("dst"), stdin=source.read_bytes()).expect(0)
    else:
        command.run(verb, source, f"{place.url}/k", *CHUNK, *place.flags("dst")).expect(0)
    assert place.contents() == {"k": payload("big", 12 * MIB)}
    assert source.exists() == (verb != "mv")


def unstable_etags(reply: Reply) -> None:
    """State an ETag as a gateway that does not know the one in the answer to the write."""
    if "etag" in reply.headers:
        reply.headers["etag"] = '"gateway-1"'


@pytest.mark.parametrize(("verb", "verify"), [("cp", "auto"), ("cp", "read"), ("mv", "auto")])
def test_another_etag_without_a_checksum_is_resolved_by_reading_back(
    store: OddStore, command: Command, tmp_path: Path, verb: str, verify: str
) -> None:
    place, source = OddPlace(store, command), tmp_path / "k"
    source.write_bytes(payload("big", 12 * MIB))
    store.add(Rule(Edit(unstable_etags), when=during("head", "k")))
    store.add(Rule(Edit(unstable_etags), when=during("get", "k")))
    store.habits.ignores_if_match = True
    report = tmp_path / "report"
    options: list[str | Path] = [*CHUNK, "--verify", verify, "--report", report, *place.flags("dst")]
    command.run(verb, "--json", str(source), f"{place.url}/k", *options).expect(0)
    assert source.exists() == (verb != "mv")
    assert place.contents() == {"k": payload("big", 12 * MIB)}
    assert json.loads(report.read_text().splitlines()[0])["proof"]["destination"] == "read-back"


@pytest.mark.parametrize("verify", ["auto", "read"])
def test_reading_back_finds_another_writers_object(
    s3_store: OddStore, command: Command, tmp_path: Path, verify: str
) -> None:
    """The other object has the same length as ours, and is written right after ours."""
    place, source = OddPlace(s3_store, command), tmp_path / "k"
    source.write_bytes(payload("big", 12 * MIB))

    def replace(reply: Reply) -> None:
        place.put("k", payload("another", 12 * MIB))

    s3_store.add(Rule(Edit(replace), when=during("complete upload")))
    done = command.run("mv", "--json", source, f"{place.url}/k", *CHUNK, "--verify", verify, *place.flags("dst"))
    assert (done.code, done.failure_kinds) == (1, ["overwritten"])
    assert source.exists()
    assert place.contents() == {"k": payload("another", 12 * MIB)}


@pytest.mark.parametrize("tag", ["d41d8cd98f00b204e9800998ecf8427e", "0" * 32, "abcdef" * 5 + "ab"])
def test_an_etag_that_is_the_same_for_all_objects_proves_nothing(
    s3_store: OddStore, command: Command, tag: str
) -> None:
    with OddStore("s3") as other:
        place, there = OddPlace(s3_store, command), OddPlace(other, command)
        s3_store.habits.constant_etag = other.habits.constant_etag = tag
        for each in (place, there):
            each.put("longer", b"of another length")
        other.objects.put(there.bucket, "k", OLD, modified_s=1e9)
        place.put("k", NEW)
        sides = [*place.flags("src"), *there.flags("dst")]
        command.run("check", place.url, there.url, *sides).expect(4)
        for rule in ([], ["--compare", "checksum"]):
            s3_store.clear()
            done = command.run("sync", "--json", *rule, "--dry-run", place.url, there.url, *sides).expect(0)
            copied = [event["source"] for event in done.events if event["event"] == "would_copy"]
            assert f"{place.url}/k" in copied


@pytest.mark.parametrize("verb", ["rm", "sync", "mv"])
def test_a_key_that_is_listed_differently_is_reported_and_kept(command: Command, tmp_path: Path, verb: str) -> None:
    """A listing cannot contain a control character, and some servers state U+FFFD instead."""
    with versitygw() as server:
        place, source = S3Place(server, command), tmp_path / "from"
        source.mkdir()
        for key in ("a\x01b", "kept"):
            place.put(key, OLD)
        (source / "kept").write_bytes(OLD)
        if verb == "rm":
            done = command.run("rm", "-r", "-y", place.url, *place.flags("src"))
        elif verb == "mv":
            done = command.run("mv", "-r", place.url, tmp_path / "to", *place.flags("src"))
        else:
            done = command.run("sync", "--delete", "-y", source, place.url, *place.flags("dst"))
        assert done.code == 4, done.stderr
        assert "U+FFFD" in done.stderr
        assert place.get("a\x01b") == OLD


@pytest.mark.parametrize("verb", ["cp", "mv"])
def test_a_name_that_a_server_does_not_allow_fails_alone(s3_store: OddStore, command: Command, verb: str) -> None:
    place = OddPlace(s3_store, command)
    keys = ["L" * 300, *(f"k{number}" for number in range(5))]
    for key in keys:
        place.put(key, OLD)
    with versitygw() as server:
        there = S3Place(server, command)
        sides = [*place.flags("src"), *there.flags("dst")]
        time.sleep(SECOND_S)  # A copy from the same second could be the object itself under another name.
        done = command.run(verb, "-r", "--json", place.url, f"{there.url}/to/", *sides).expect(4)
        assert done.failure_kinds == ["invalid_key"]
        assert sorted(there.sizes()) == [f"to/k{number}" for number in range(5)]
        assert list(place.contents()) == (keys[:1] if verb == "mv" else sorted(keys))


@pytest.mark.parametrize(
    ("kind", "refusal"), [("s3", Answer(403, "InvalidObjectState")), ("azure", Answer(409, "BlobArchived"))]
)
def test_archived_objects_fail_and_the_others_are_copied(
    command: Command, tmp_path: Path, kind: Kind, refusal: Answer
) -> None:
    with OddStore(kind) as store:
        place = OddPlace(store, command)
        for number in range(300):
            place.put(f"a{number}", OLD)
        place.put("z", NEW)
        store.add(Rule(refusal, when=lambda request: during("get")(request) and "/a" in request.path))
        sides = ["--concurrency", "4", *place.flags("src")]
        done = command.run("cp", "-r", "--json", place.url, tmp_path / "to", *sides).expect(4)
        assert set(done.failure_kinds) == {"archived"}
        assert len(done.failures) == 300
        assert "restore" in done.failures[0]["hint"]
        assert (tmp_path / "to" / "z").read_bytes() == NEW
        command.run("cp", f"{place.url}/a1", tmp_path / "one", *place.flags("src")).expect(1)


@pytest.mark.parametrize("kind", ["s3", "gcs"])
@pytest.mark.parametrize("refusal", ["InvalidPart", "InvalidPartOrder"])
def test_parts_that_the_store_has_lost_are_sent_again(
    command: Command, tmp_path: Path, kind: Kind, refusal: str
) -> None:
    source = tmp_path / "k"
    source.write_bytes(payload("k", 11 * MIB))
    with OddStore(kind) as store:
        place = OddPlace(store, command)
        store.add(Rule(Answer(400, refusal), when=during("complete upload"), count=1))
        command.run("cp", *CHUNK, source, f"{place.url}/k", *place.flags("dst")).expect(0)
        assert place.contents() == {"k": source.read_bytes()}
        assert place.unfinished() == []


@pytest.mark.parametrize("kind", ["s3", "gcs"])
def test_a_completion_that_is_refused_once_is_retried(command: Command, tmp_path: Path, kind: Kind) -> None:
    source = tmp_path / "k"
    source.write_bytes(payload("k", 11 * MIB))
    with OddStore(kind) as store:
        place = OddPlace(store, command)
        store.add(Rule(Answer(501, "NotImplemented"), when=during("complete upload"), count=1))
        command.run("cp", *CHUNK, source, f"{place.url}/k", *place.flags("dst")).expect(0)
        assert place.contents() == {"k": source.read_bytes()}


@pytest.mark.parametrize("size", ["-1", "1e3"])
@pytest.mark.parametrize("verb", ["cp", "ls"])
def test_a_listed_length_that_is_not_a_number_is_a_bad_listing(
    s3_store: OddStore, command: Command, tmp_path: Path, verb: str, size: str
) -> None:
    place = OddPlace(s3_store, command)
    place.put("k", b"hello")

    def edit(reply: Reply) -> None:
        reply.body = reply.body.replace(b"<Size>5<", f"<Size>{size}<".encode())

    s3_store.add(Rule(Edit(edit), when=during("list")))
    words = ["ls", place.url] if verb == "ls" else ["cp", "-r", place.url, tmp_path / "to"]
    done = command.run(*words, *place.flags("src")).expect(1)
    assert "bad listing" in done.stderr and size in done.stderr
    assert len(s3_store.requests(during("list"))) <= 2


def test_mv_keeps_an_object_of_which_only_the_length_is_known(command: Command, tmp_path: Path) -> None:
    with OddStore("s3", Habits(etags="none", no_times=True)) as store:
        place = OddPlace(store, command)
        place.put("d/k", OLD)
        done = command.run("mv", "-r", "--json", f"{place.url}/d", tmp_path / "to", *place.flags()).expect(4)
        assert done.failure_kinds == ["changed"]
        assert place.contents() == {"d/k": OLD}
        assert (tmp_path / "to" / "k").read_bytes() == OLD
