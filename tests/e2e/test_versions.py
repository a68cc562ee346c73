"""Other writers during a job: only the version that was copied is ever deleted or called proven; none are mixed."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from testbed.chains import chain, with_limits, write
from testbed.drive import Command
from testbed.faults import Rule
from testbed.odd_stores import KINDS, Call, Delay, Kind, OddPlace, OddStore, during
from testbed.places import S3Place
from testbed.trees import MIB, payload

OLD, NEW = payload("old", 12 * MIB), payload("new", 12 * MIB)
IDLE_S = 1
DEFAULT_IDLE_S = 30
"""Default of ``store_idle_s``."""
SLOW_S = 3.5
"""Longer than the idle timeout of a request in these tests."""


def rewrite_unseen(path: Path, content: bytes) -> None:
    """Rewrite a file in place and restore its modification time."""
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_mv_keeps_a_file_that_was_rewritten_after_it_was_read(
    store: OddStore, command: Command, tmp_path: Path
) -> None:
    place, source = OddPlace(store, command), tmp_path / "source"
    source.mkdir()
    for name in ("kept", "moved"):
        (source / name).write_bytes(b"old")
    store.add(Rule(Call(lambda: rewrite_unseen(source / "kept", b"new")), when=during("put", "kept"), count=1))
    done = command.run("mv", "-r", "--json", str(source), place.url, *place.flags("dst")).expect(4)
    assert done.failure_kinds == ["changed"]
    assert (source / "kept").read_bytes() == b"new"
    assert not (source / "moved").exists()
    assert place.contents() == {"kept": b"old", "moved": b"old"}


@pytest.mark.parametrize("objects", [1, 3])
@pytest.mark.parametrize("moment", ["before the look", "before the delete"])
def test_mv_keeps_an_object_that_was_rewritten_after_it_was_copied(
    store: OddStore, command: Command, tmp_path: Path, objects: int, moment: str
) -> None:
    place = OddPlace(store, command)
    for number in range(objects):
        place.put(f"d/{number}", b"old")
    rewrite = Call(lambda: place.put("d/0", b"new"))
    if moment == "before the look":
        # The server ignores conditions on deletes, so only the check detects the rewrite.
        store.habits.ignores_delete_conditions = True
        # It follows two checks before the copy, which prove that the places differ.
        store.add(Rule(rewrite, when=during("head", "d/0"), skip=2, count=1))
    else:
        deletes = [during("delete", "d/0"), during("delete many")]
        store.add(Rule(rewrite, when=lambda asking: any(each(asking) for each in deletes), count=1))
    done = command.run("mv", "-r", "--json", f"{place.url}/d", str(tmp_path / "to"), *place.flags("src")).expect(4)
    assert done.failure_kinds == ["changed"]
    assert place.contents() == {"d/0": b"new"}


def test_sync_keeps_an_extraneous_object_that_was_rewritten_after_it_was_listed(
    store: OddStore, command: Command, tmp_path: Path
) -> None:
    place, source = OddPlace(store, command), tmp_path / "source"
    source.mkdir()
    for key in ("a", "b", "c"):
        (source / key).write_bytes(b"same")
        place.put(key, b"same")
    for key in ("extra", "gone"):
        place.put(key, b"old")
    deletes = [during("delete", "extra"), during("delete many")]
    rewrite = Call(lambda: place.put("extra", b"new"))
    store.add(Rule(rewrite, when=lambda asking: any(each(asking) for each in deletes), count=1))
    done = command.run("sync", "--delete", "--json", str(source), place.url, *place.flags("dst")).expect(4)
    assert done.failure_kinds == ["changed"]
    assert place.contents()["extra"] == b"new" and "gone" not in place.contents()


def test_sync_keeps_an_extraneous_object_that_was_rewritten_with_the_same_bytes(
    store: OddStore, command: Command, tmp_path: Path
) -> None:
    place, source = OddPlace(store, command), tmp_path / "source"
    source.mkdir()
    for key in ("a", "b", "c"):
        (source / key).write_bytes(b"same")
        place.put(key, b"same")
    store.objects.put(place.bucket, "extra", b"old", modified_s=1_700_000_000)
    rewrite = Call(lambda: store.objects.put(place.bucket, "extra", b"old", modified_s=1_700_000_005))
    store.add(Rule(rewrite, when=during("head", "extra"), count=1))
    done = command.run("sync", "--delete", "--json", str(source), place.url, *place.flags("dst")).expect(4)
    assert done.failure_kinds == ["changed"]
    assert place.contents()["extra"] == b"old"


def test_rm_keeps_an_object_that_was_filled_after_it_was_listed(store: OddStore, command: Command) -> None:
    place = OddPlace(store, command)
    for key in ("p/empty", "p/filled"):
        place.put(key, b"")
    place.put("p/full", b"full")
    store.add(Rule(Call(lambda: place.put("p/filled", b"new")), when=during("head", "p/filled"), count=1))
    words = ("rm", "-r", f"{place.url}/p/", "--max-size", "0", "--json", *place.flags())
    done = command.run(*words).expect(4)
    assert '"kind":"changed"' in done.stdout.replace(" ", "")
    assert place.contents() == {"p/filled": b"new", "p/full": b"full"}


def test_an_excluded_folder_is_not_deleted(command: Command, tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    for name in ("a", "b", "c", "extra", "node_modules/p/q", "deep/node_modules/r"):
        for folder in (source, there) if len(name) == 1 else (there,):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"content")
    left = {"a", "b", "c", "deep/node_modules/r", "node_modules/p/q"}

    def names() -> set[str]:
        return {str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()}

    command.run("sync", "--delete", source, there, "--exclude", "node_modules").expect(0)
    assert names() == left
    command.run("rm", "-r", there, "--exclude", "node_modules").expect(0)
    assert names() == {name for name in left if "node_modules" in name}


def test_sync_keeps_objects_that_it_wrote_under_another_name(store: OddStore, command: Command, s3: S3Place) -> None:
    """This server stores objects as files, so `logs//x` and `logs/x` are the same object.

    An object that was written before shows that. So `logs//x` is refused, unless it is the first one.
    """
    place = OddPlace(store, command)
    for key, data in {"p/logs//x": b"only here", "p/a": b"a", "p/b": b"b"}.items():
        place.put(key, data)
    words = ("sync", "--delete", f"{place.url}/p/", f"{s3.url}/p/", *place.flags("src"), *s3.flags("dst"))
    first = command.run(*words)
    assert first.code == 0 or "it was not written" in first.stderr, first.stderr
    kept = {"p/a": 1, "p/b": 1} | ({} if first.code else {"p/logs/x": 9})
    assert s3.sizes() == kept
    time.sleep(1.1)  # Times are compared in seconds.
    command.run(*words).expect(4)
    assert s3.sizes() == kept


def test_a_source_that_shrinks_is_reread_at_once(store: OddStore, command: Command, tmp_path: Path) -> None:
    """The server ignores the condition, so it answers that the rest of the old object does not exist."""
    store.habits.ignores_if_match = True
    place, to = OddPlace(store, command), tmp_path / "to"
    place.put("k", OLD)
    shorter = payload("shorter", 6 * MIB)
    store.add(Rule(Call(lambda: place.put("k", shorter)), when=during("get", "k"), skip=1, count=1))
    arguments = [f"{place.url}/k", str(to), "--chunk-size", "5MiB", *place.flags("src")]
    command.run("cp", "--json", *arguments).expect(0)
    assert to.read_bytes() == shorter
    assert len(store.requests(during("get", "k"))) <= 6


def test_a_source_that_keeps_shrinking_has_changed(store: OddStore, command: Command, tmp_path: Path) -> None:
    store.habits.ignores_if_match = True
    place, to = OddPlace(store, command), tmp_path / "to"
    place.put("k", OLD)
    sizes = iter(range(11 * MIB, 0, -MIB))
    store.add(Rule(Call(lambda: place.put("k", payload("k", next(sizes)))), when=during("get", "k"), skip=1))
    arguments = [f"{place.url}/k", str(to), "--chunk-size", "5MiB", *place.flags("src")]
    done = command.run("cp", "--json", *arguments).expect(1)
    assert done.failure_kinds == ["changed"]
    assert not to.exists()
    assert len(store.requests(during("get", "k"))) <= 6


def test_a_source_that_is_rewritten_is_copied_when_it_is_complete(
    s3_store: OddStore, command: Command, tmp_path: Path
) -> None:
    """It is empty for a moment, and so was the copy."""
    source, to = OddPlace(s3_store, command), tmp_path / "to"
    source.put("k", b"old")

    def rewrite() -> None:
        source.put("k", b"")
        threading.Timer(0.3, lambda: source.put("k", b"new")).start()

    s3_store.add(Rule(Call(rewrite), when=during("get", "k"), count=1))
    command.run("cp", f"{source.url}/k", str(to), *source.flags()).expect(0)
    assert to.read_bytes() == b"new"


def test_a_source_that_changes_again_after_a_restart_has_changed(
    s3_store: OddStore, azure_store: OddStore, command: Command
) -> None:
    """Somebody writes it while the job runs, so the second version may be half of what is meant."""
    source, to = OddPlace(s3_store, command), OddPlace(azure_store, command)
    source.put("k", b"old")
    source.put("calm", b"calm")
    s3_store.add(Rule(Call(lambda: source.put("k", b"")), when=during("get", "k"), count=1))
    azure_store.add(Rule(Call(lambda: source.put("k", b"new")), when=during("put", "k"), count=1))
    done = command.run("cp", "-r", "--json", source.url, to.url, *source.flags(), *to.flags("dst")).expect(4)
    assert done.failure_kinds == ["changed"]
    assert to.get("calm") == b"calm"
    command.run("sync", "--compare", "size", source.url, to.url, *source.flags(), *to.flags("dst")).expect(0)
    assert to.get("k") == b"new"


@pytest.mark.parametrize("etags", ["md5", "none"])
def test_two_versions_are_never_mixed_in_one_object(
    store: OddStore, command: Command, tmp_path: Path, etags: str
) -> None:
    store.habits.ignores_if_match = True
    store.habits.etags = "md5" if etags == "md5" else "none"
    place, to = OddPlace(store, command), tmp_path / "to"
    store.objects.put(place.bucket, "k", OLD, modified_s=1_700_000_000)
    rewrite = Call(lambda: store.objects.put(place.bucket, "k", NEW, modified_s=1_700_000_005))
    store.add(Rule(rewrite, when=during("get", "k"), skip=1, count=1))
    arguments = [f"{place.url}/k", str(to), "--chunk-size", "5MiB", *place.flags("src")]
    command.run("cp", "--json", *arguments).expect(0)
    assert to.read_bytes() == NEW, "it was restarted with the new version"


def test_a_file_rewritten_between_two_parts_is_restarted(s3_store: OddStore, command: Command, tmp_path: Path) -> None:
    place, source = OddPlace(s3_store, command), tmp_path / "k"
    source.write_bytes(OLD)
    s3_store.add(Rule(Call(lambda: rewrite_unseen(source, NEW)), when=during("put part"), count=1))
    options = ["--chunk-size", "5MiB", "--limit-rate", "5MiB/s", *place.flags("dst")]
    done = command.run("cp", "--json", str(source), f"{place.url}/k", *options)
    assert done.code in (0, 4), done.stderr
    assert place.contents().get("k", NEW) == NEW
    assert (done.code == 0) == ("k" in place.contents())


def test_reading_back_neither_accepts_nor_deletes_another_writers_object(
    azure_store: OddStore, command: Command, tmp_path: Path
) -> None:
    place, source = OddPlace(azure_store, command), tmp_path / "k"
    source.write_bytes(OLD)
    azure_store.add(Rule(Call(lambda: place.put("k", b"another's")), when=during("get", "k"), count=1))
    options = ["--chunk-size", "5MiB", "--verify", "read", *place.flags("dst")]
    done = command.run("cp", "--json", str(source), f"{place.url}/k", *options).expect(1)
    assert done.failure_kinds == ["overwritten"]
    assert place.contents() == {"k": b"another's"}


def test_a_slow_completion_is_requested_once(s3_store: OddStore, command: Command, tmp_path: Path) -> None:
    place, source = OddPlace(s3_store, command), tmp_path / "k"
    source.write_bytes(OLD)
    s3_store.add(Rule(Delay(SLOW_S), when=during("complete upload")))
    topology = write(with_limits(chain(), store_idle_s=IDLE_S), tmp_path / "topology.json")
    options = ["--topology", str(topology), "--chunk-size", "5MiB", *place.flags("dst")]
    command.run("cp", "--json", str(source), f"{place.url}/k", *options).expect(0)
    assert len(s3_store.requests(during("complete upload"))) == 1
    assert place.contents() == {"k": OLD}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_slower_than_the_request_timeout_is_requested_once(kind: Kind, command: Command) -> None:
    # Server-side copies use no gateways, whose limits the test could lower.
    with OddStore(kind) as store:
        place = OddPlace(store, command)
        place.put("from", b"bytes")
        if kind == "azure":
            store.habits.pending_copies = 2 * DEFAULT_IDLE_S + 6
        else:
            store.add(Rule(Delay(DEFAULT_IDLE_S + 3), when=during("copy")))
        arguments = [f"{place.url}/from", f"{place.url}/k", *place.flags("src"), *place.flags("dst")]
        command.run("cp", "--json", *arguments).expect(0)
        assert len(store.requests(during("copy"))) == 1
        assert place.contents()["k"] == b"bytes"


def test_a_new_hard_link_does_not_hide_a_rewrite(s3_store: OddStore, command: Command, tmp_path: Path) -> None:
    place, source = OddPlace(s3_store, command), tmp_path / "source"
    source.mkdir()
    for name in ("kept", "moved"):
        (source / name).write_bytes(b"old")

    def rewrite() -> None:
        rewrite_unseen(source / "kept", b"new")
        os.link(source / "kept", tmp_path / "second name")

    s3_store.add(Rule(Call(rewrite), when=during("put", "kept"), count=1))
    done = command.run("mv", "-r", "--json", str(source), place.url, *place.flags("dst")).expect(4)
    assert done.failure_kinds == ["changed"]
    assert (source / "kept").read_bytes() == b"new"
    assert not (source / "moved").exists()


def test_a_removed_hard_link_does_not_hide_a_rewrite(s3_store: OddStore, command: Command, tmp_path: Path) -> None:
    place, source = OddPlace(s3_store, command), tmp_path / "source"
    source.mkdir()
    (source / "kept").write_bytes(b"old")
    os.link(source / "kept", tmp_path / "second name")

    def rewrite() -> None:
        rewrite_unseen(source / "kept", b"new")
        (tmp_path / "second name").unlink()

    s3_store.add(Rule(Call(rewrite), when=during("put", "kept"), count=1))
    done = command.run("mv", "-r", "--json", str(source), place.url, *place.flags("dst")).expect(4)
    assert done.failure_kinds == ["changed"]
    assert (source / "kept").read_bytes() == b"new"


def test_all_names_of_a_file_are_moved(command: Command, tmp_path: Path) -> None:
    source, to = tmp_path / "source", tmp_path / "to"
    for folder in (source, to):
        folder.mkdir()
    (source / "0").write_bytes(b"content")
    for number in range(1, 200):
        os.link(source / "0", source / str(number))
        os.link(source / "0", to / str(number))
    command.run("mv", "-r", f"{source}/", to).expect(0)
    assert list(source.iterdir()) == []
    assert {path.name: path.read_bytes() for path in to.iterdir()} == {str(n): b"content" for n in range(200)}


@pytest.mark.parametrize("size", [100, 12 * MIB])
def test_a_file_rewritten_between_its_read_and_the_end_of_its_write_is_copied_again(
    store: OddStore, command: Command, tmp_path: Path, size: int
) -> None:
    """Otherwise the copy would be newer than the file, and no later sync would copy it again."""
    place, source = OddPlace(store, command), tmp_path / "source"
    source.mkdir()
    old, new = payload("old", size), payload("new", size)
    (source / "k").write_bytes(old)
    (source / "other").write_bytes(b"1")
    last = during("put", "k") if size < MIB else during("complete upload")
    store.add(Rule(Call(lambda: (source / "k").write_bytes(new)), when=last, count=1))
    words = (f"{source}/", place.url, *place.flags("dst"), "--chunk-size", "5MiB")
    command.run("sync", *words).expect(0)
    assert place.get("k") == new
    # A file that is rewritten all the time is reported.
    (source / "k").write_bytes(old)
    store.clear()
    store.add(Rule(Call(lambda: (source / "k").touch()), when=last))
    done = command.run("sync", "--json", *words).expect(4)
    assert done.failure_kinds == ["changed"]
    assert len(store.requests(last)) == 2


@pytest.mark.parametrize("times", ["milliseconds", "whole seconds"])
def test_sync_keeps_an_extraneous_object_that_was_rewritten_in_the_second_of_the_listing(
    s3_store: OddStore, command: Command, tmp_path: Path, times: str
) -> None:
    place, source = OddPlace(s3_store, command), tmp_path / "source"
    s3_store.habits.whole_seconds = times == "whole seconds"
    source.mkdir()
    for key in ("a", "b", "c"):
        (source / key).write_bytes(b"same")
        place.put(key, b"same")
    (source / "new").write_bytes(b"1")
    second = int(time.time()) + 60  # Later than the job's start by the server's clock.

    def write(key: str, at_s: float) -> None:
        s3_store.objects.put(place.bucket, key, b"old", modified_s=at_s)

    write("extra", second + 0.25)
    write("gone", second - 3600)
    s3_store.add(Rule(Call(lambda: write("extra", second + 0.75)), when=during("put", "new"), count=1))
    words = ("sync", "--delete", "--json", str(source), place.url, *place.flags("dst"))
    done = command.run(*words).expect(4)
    assert done.failure_kinds == ["changed"]
    assert "extra" in place.contents() and "gone" not in place.contents()
    command.run(*words).expect(0)
    assert "extra" not in place.contents(), "this job wrote nothing"
