"""One place under two names, and overlapping places: refused on every store before anything is copied or deleted."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.faults import Call, HttpProxy, Rule
from testbed.odd_stores import Habits, OddPlace, OddStore
from testbed.places import FilePlace, Place, S3Place
from testbed.servers import Server, versitygw
from testbed.trees import payload

STORES = ["file", "versitygw", "moto", "gcs", "azure"]
#: Time after which the clock of a store that counts whole seconds has advanced. The date that versitygw states is up to
#: 1 s late.
SECOND_S = 2.1
SIZES = {"par/a": 10, "par/ss/a": 20, "par/ss/b": 30, "par/ss/ss/a": 40, "other": 5}
NESTED = [
    ("mv", ["-r"], "par/ss", "par"),
    ("mv", ["-r"], "par", "par/ss"),
    ("cp", ["-r"], "par/ss", "par"),
    ("cp", ["-r"], "par", "par/new"),
    ("sync", ["--delete"], "par/ss", "par"),
    ("sync", ["--delete"], "par", "par/ss"),
    ("sync", [], "par/ss", ""),
    ("mv", ["-r"], "par", "par/"),
]


def fill(place: Place) -> None:
    for key, size in SIZES.items():
        place.put(key, payload(key, size))


def assert_untouched(place: Place) -> None:
    assert place.sizes() == SIZES
    for key, size in SIZES.items():
        assert place.get(key) == payload(key, size), key


def assert_refused(command: Command, *arguments: str | Path) -> str:
    """Check for exit code 2, and return the message."""
    ended = command.run(*arguments).expect(2)
    assert "hint: " in ended.stderr
    return ended.stderr


@pytest.mark.parametrize("kind", STORES)
def test_overlapping_trees_are_refused(command: Command, place: Callable[[str], Place], kind: str) -> None:
    there = place(kind)
    fill(there)
    for verb, flags, source, destination in NESTED:
        sides = [f"{there.url}/{source}", f"{there.url}/{destination}", *there.flags("src"), *there.flags("dst")]
        assert_refused(command, verb, *flags, *sides)
    assert_untouched(there)


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[Callable[[Path, str], Path]]:
    """Mounts a folder a second time, which needs root."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a folder a second time")
    made: list[Path] = []

    def bind(folder: Path, name: str) -> Path:
        view = tmp_path / name
        view.mkdir(parents=True)
        done = subprocess.run(["mount", "--bind", str(folder), str(view)], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"this machine lets nobody mount: {done.stderr.strip()}")
        made.append(view)
        return view

    yield bind
    for view in reversed(made):
        subprocess.run(["umount", "--lazy", str(view)], check=True)


def test_overlaps_through_bind_mounts_are_detected(
    command: Command, tmp_path: Path, bound: Callable[[Path, str], Path]
) -> None:
    there = FilePlace(tmp_path / "tree")
    fill(there)
    whole, part = bound(there.folder, "whole"), bound(there.folder / "par" / "ss", "part")
    nested = bound(there.folder / "par", "host/mounted").parent
    for source, destination in [
        (there.folder, whole),
        (whole, there.folder),
        (there.folder, part),
        (part, there.folder / "par"),
        (part / "ss", there.folder),
        (there.folder, part / "new"),
        (nested, there.folder / "par"),
        (there.folder / "par", nested),
    ]:
        assert_refused(command, "mv", "-r", source, destination)
        assert_refused(command, "cp", "-r", source, destination)
        assert_refused(command, "sync", "--delete", source, destination)
    assert_refused(command, "mv", whole / "other", there.folder / "other")
    assert_untouched(there)


def test_overlaps_through_links_are_detected(command: Command, tmp_path: Path) -> None:
    there = FilePlace(tmp_path / "tree")
    fill(there)
    (tmp_path / "link").symlink_to("tree/par")
    os.link(there.folder / "other", tmp_path / "second name")
    assert_refused(command, "mv", "-r", tmp_path / "link", there.folder / "par")
    assert_refused(command, "mv", "-r", there.folder / "par" / "ss", tmp_path / "link")
    assert_refused(command, "sync", "--delete", tmp_path / "link" / "ss", there.folder)
    assert_refused(command, "mv", there.folder / "other", tmp_path / "second name")
    assert_refused(command, "cp", there.folder / "par" / "a", tmp_path / "link" / "a")
    assert_untouched(there)


def test_hard_links_within_two_trees_are_moved_as_two_files(command: Command, tmp_path: Path) -> None:
    source, destination = FilePlace(tmp_path / "source"), FilePlace(tmp_path / "destination")
    source.put("a", b"content")
    os.link(source.folder / "a", destination.folder / "a")
    command.run("mv", "-r", source.folder, destination.folder).expect(0)
    assert (source.sizes(), destination.get("a")) == ({}, b"content")


def test_two_destinations_in_the_same_place_are_refused(command: Command, tmp_path: Path, s3: S3Place) -> None:
    source = FilePlace(tmp_path / "source")
    fill(source)
    (tmp_path / "to").mkdir()
    (tmp_path / "link").symlink_to("to")
    assert_refused(command, "cp", "-r", source.folder, "--to", tmp_path / "to", "--to", tmp_path / "link" / "below")
    assert_refused(command, "cp", "-r", source.folder, "--to", f"{s3.url}/x", "--to", f"{s3.url}/x/y", *s3.flags("dst"))
    assert (list((tmp_path / "to").iterdir()), s3.sizes()) == ([], {})


def respelled(endpoint: str) -> list[str]:
    port = endpoint.rpartition(":")[2]
    return [f"http://localhost:{port}", f"HTTP://LocalHost:{port}/", f"http://127.0.0.1.:{port}"]


def test_different_spellings_of_an_endpoint_are_one_place(command: Command, s3: S3Place) -> None:
    fill(s3)
    for endpoint in respelled(s3.endpoint):
        other = s3.flags("dst")
        other[other.index(s3.endpoint)] = endpoint
        for verb, flags, source, destination in [*NESTED, ("mv", ["-r"], "", ""), ("mv", [], "other", "other")]:
            sides = [f"{s3.url}/{source}", f"{s3.url}/{destination}", *s3.flags("src"), *other]
            assert_refused(command, verb, *flags, *sides)
    assert_untouched(s3)


def test_a_proxy_to_the_same_bucket_is_detected(command: Command, s3: S3Place, proxy: HttpProxy) -> None:
    fill(s3)
    other = s3.flags("dst")
    other[other.index(s3.endpoint)] = proxy.endpoint
    for verb, flags, source, destination in [*NESTED, ("mv", ["-r"], "", ""), ("mv", [], "other", "other")]:
        sides = [f"{s3.url}/{source}", f"{s3.url}/{destination}", *s3.flags("src"), *other]
        assert "cannot be told apart" in assert_refused(command, verb, *flags, *sides)
    assert_untouched(s3)


def through(proxy: HttpProxy, place: S3Place, side: str) -> list[str]:
    """Return the flags of a side that is reached through the proxy."""
    flags = place.flags(side)
    flags[flags.index(place.endpoint)] = proxy.endpoint
    return flags


def test_sources_that_are_missing_prove_nothing(
    command: Command, s3: S3Place, proxy: HttpProxy, tmp_path: Path
) -> None:
    """A name that is missing at both places does not prove that they differ."""
    fill(s3)
    sides = [*s3.flags("src"), *through(proxy, s3, "dst")]
    named = [f"{s3.url}/par/{name}" for name in ("aa-missing", "a")]
    assert "cannot be told apart" in assert_refused(command, "mv", *named, f"{s3.url}/par/", *sides)
    names = tmp_path / "names"
    missing = "".join(f"missing-{index}\n" for index in range(20))
    names.write_text(f"{missing}ss/a\nss/b\n")
    words: list[str | Path] = ["--files-from", names, f"{s3.url}/par/", f"{s3.url}/par/"]
    assert "cannot be told apart" in assert_refused(command, "mv", *words, *sides)
    names.write_text("".join(f"missing-{index}\n" for index in range(80)) + "ss/a\n")
    assert "cannot prove that" in assert_refused(command, "mv", *words, *sides)
    assert_untouched(s3)
    command.run("mv", f"{s3.url}/nowhere", f"{s3.url}/par/", *sides).expect(3)


def test_sources_that_change_prove_nothing(command: Command, s3: S3Place, proxy: HttpProxy) -> None:
    """A source that is written between the two checks differs from itself."""
    fill(s3)
    sides = [*s3.flags("src"), *through(proxy, s3, "dst")]
    contents = iter(range(1, 1000))

    def rewrite() -> None:
        s3.put("par/a", b"x" * next(contents))

    looked_at = Rule(Call(rewrite), when=lambda request: request.method == "HEAD" and request.path.endswith("/par/a"))
    proxy.add(looked_at)
    words = ["-r", f"{s3.url}/par/", f"{s3.url}/par/"]
    assert "cannot be told apart" in assert_refused(command, "mv", *words, *sides)
    assert "cannot prove that" in assert_refused(command, "mv", f"{s3.url}/par/a", f"{s3.url}/par/a", *sides)
    assert {key: size for key, size in s3.sizes().items() if key != "par/a"} == {
        key: size for key, size in SIZES.items() if key != "par/a"
    }
    assert "par/a" in s3.sizes()


def test_a_source_that_appears_after_the_proof_is_not_deleted(command: Command, s3: S3Place, proxy: HttpProxy) -> None:
    """It was missing at both places when they were compared, and its copy is the source itself."""
    looks = iter(range(1000))

    def write_late() -> None:
        if next(looks) == 1:
            s3.put("par/late", b"only copy")

    proxy.add(Rule(Call(write_late), when=lambda request: request.method == "HEAD"))
    sides = [*through(proxy, s3, "src"), *s3.flags("dst")]
    command.run("mv", f"{s3.url}/par/late", f"{s3.url}/par/late", *sides).expect(4)
    assert s3.get("par/late") == b"only copy"


def test_an_overlay_and_its_upper_directory_are_one_place(command: Command, tmp_path: Path) -> None:
    """A file of the lower directory is missing in the upper one, which does not prove that the places differ."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount an overlay")
    disk = tmp_path / "disk"
    disk.mkdir()
    # The upper directory of an overlay cannot be on another overlay, such as a container's root.
    mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(disk)], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"this machine lets nobody mount: {mounted.stderr.strip()}")
    lower, upper, work, merged = (disk / name for name in ("lower", "upper", "work", "merged"))
    for folder in (lower / "below", upper, work, merged):
        folder.mkdir(parents=True)
    (lower / "only in lower").write_text("low")
    (lower / "below" / "a").write_text("low")
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    try:
        words = ["mount", "-t", "overlay", "overlay", "-o", options, str(merged)]
        mounted = subprocess.run(words, capture_output=True, text=True)
        if mounted.returncode != 0:
            pytest.skip(f"this machine lets nobody mount an overlay: {mounted.stderr.strip()}")
        for source, destination in [(merged, upper), (upper, merged), (merged / "below", upper / "below")]:
            assert_refused(command, "mv", "-r", source, destination)
        assert_refused(command, "mv", merged / "only in lower", upper / "only in lower")
        assert (merged / "only in lower").read_text() == (merged / "below" / "a").read_text() == "low"
        command.run("mv", "-r", merged, tmp_path / "elsewhere").expect(0)
        assert (tmp_path / "elsewhere" / "below" / "a").read_text() == "low"
    finally:
        subprocess.run(["umount", "--lazy", str(merged)], check=False)
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_another_name_in_another_place_is_moved(command: Command, place: Callable[[str], Place]) -> None:
    source, destination = place("versitygw"), place("versitygw")
    fill(source)
    source.put("stays", b"x")
    time.sleep(SECOND_S)  # A copy from the same second could be the object itself under another name.
    sides = [*source.flags("src"), *destination.flags("dst")]
    command.run("mv", "-r", f"{source.url}/par", f"{destination.url}/par/ss", *sides).expect(0)
    assert destination.sizes() == {f"par/ss/{key[4:]}": size for key, size in SIZES.items() if key[:4] == "par/"}
    assert set(source.sizes()) == {"other", "stays"}


def test_a_bucket_that_is_a_link_to_another_is_detected(command: Command, tmp_path: Path) -> None:
    """That a server lists both buckets does not prove that they differ."""
    with versitygw(data_parent=tmp_path, bucket_links=True) as server:
        there = S3Place(server, command)
        fill(there)
        (folder,) = tmp_path.rglob(f"data/{there.bucket}")
        linked = f"{there.bucket}-linked"
        (folder.parent / linked).symlink_to(folder.name)
        listed = command.run("ls", "s3://", *there.flags("src")).expect(0).stdout
        assert {there.bucket, linked} <= set(listed.split())
        for verb, flags, source, destination in [*NESTED, ("mv", ["-r"], "", ""), ("mv", [], "other", "other")]:
            for one, other in [(there.bucket, linked), (linked, there.bucket)]:
                sides = [f"s3://{one}/{source}", f"s3://{other}/{destination}"]
                said = assert_refused(command, verb, *flags, *sides, *there.flags("src"), *there.flags("dst"))
                assert "cannot be told apart" in said
        assert_untouched(there)


def test_files_behind_a_server_are_detected(command: Command, tmp_path: Path) -> None:
    with versitygw(data_parent=tmp_path) as server:
        there = S3Place(server, command)
        fill(there)
        (folder,) = tmp_path.rglob(f"data/{there.bucket}")
        assert_refused(command, "mv", "-r", folder, there.url, *there.flags("dst"))
        assert_refused(command, "mv", "-r", there.url, folder, *there.flags("src"))
        assert_untouched(there)


@pytest.mark.parametrize("verb", [["mv"], ["mv", "-r"]])
def test_the_folder_of_rclone_is_detected(command: Command, rclone_server: Server, verb: list[str]) -> None:
    """Its `HEAD` has the time at which it received an object, and not that of the file."""
    there, source = S3Place(rclone_server, command), command.home / "source"
    source.mkdir()
    (source / "a").write_bytes(b"only copy")
    os.utime(source / "a", (1_000_000_000, 1_000_000_000))
    command.run("cp", "-r", source, f"{there.url}/par", *there.flags("dst")).expect(0)
    folder = rclone_server.folder / "data" / there.bucket / "par"
    name = "" if "-r" in verb else "/a"
    assert_refused(command, *verb, f"{there.url}/par{name}", f"{folder}{name}", *there.flags("src"))
    assert_refused(command, *verb, f"{folder}{name}", f"{there.url}/par{name}", *there.flags("dst"))
    assert (folder / "a").read_bytes() == b"only copy"


@pytest.mark.parametrize(
    "words",
    [["-r", "--flatten", "{url}"], ["--flatten", "--files-from", "{list}", "{url}"], ["{url}/other/b", "{url}/par/a"]],
    ids=["flat", "listed", "several"],
)
def test_an_object_that_would_be_moved_onto_itself_is_detected(
    command: Command, rclone_server: Server, words: list[str]
) -> None:
    """Only one of two directories is the destination under another name."""
    there, source = S3Place(rclone_server, command), command.home / "source"
    for name in ("other/b", "par/a"):
        (source / name).parent.mkdir(parents=True)
        (source / name).write_bytes(b"only copy")
        os.utime(source / name, (1_000_000_000, 1_000_000_000))
    command.run("cp", "-r", source, there.url, *there.flags("dst")).expect(0)
    time.sleep(1.1)  # A source that has just been written is not deleted: it may change within the second.
    folder = rclone_server.folder / "data" / there.bucket
    names = command.home / "names"
    names.write_text("other/b\npar/a\n")
    sources = [word.format(url=there.url, list=names) for word in words]
    moved = command.run("mv", *sources, f"{folder}/par/", *there.flags("src"))
    assert moved.code == (4 if "--flatten" in words else 2), moved.stderr
    assert "may be one" in moved.stderr
    assert (folder / "par/a").read_bytes() == b"only copy"
    assert [(folder / name).exists() for name in ("other/b", "par/b")].count(True) == 1


@pytest.mark.parametrize("other", ["other/b", "zzz/b"])
def test_a_flat_move_writes_nothing_over_an_object_that_it_has_yet_to_move(
    command: Command, rclone_server: Server, other: str
) -> None:
    there, source = S3Place(rclone_server, command), command.home / "source"
    contents = {other: b"another only copy", "par/b": b"only copy", "third/c": b"moved"}
    for name, content in contents.items():
        (source / name).parent.mkdir(parents=True)
        (source / name).write_bytes(content)
        os.utime(source / name, (1_000_000_000, 1_000_000_000))
    command.run("cp", "-r", source, there.url, *there.flags("dst")).expect(0)
    folder = rclone_server.folder / "data" / there.bucket
    command.run("mv", "-r", "--flatten", there.url, f"{folder}/par/", *there.flags("src")).expect(4)
    for name, content in contents.items():
        assert (folder / name).read_bytes() == content
    assert (folder / "par/c").read_bytes() == b"moved"


@pytest.mark.parametrize("other", ["other/b", "zzz/b"])
def test_a_flat_copy_writes_nothing_over_an_object_that_it_has_yet_to_copy(
    command: Command, rclone_server: Server, other: str
) -> None:
    there, source = S3Place(rclone_server, command), command.home / "source"
    contents = {other: b"another only copy", "par/b": b"only copy", "third/c": b"copied"}
    for name, content in contents.items():
        (source / name).parent.mkdir(parents=True)
        (source / name).write_bytes(content)
    command.run("cp", "-r", source, there.url, *there.flags("dst")).expect(0)
    folder = rclone_server.folder / "data" / there.bucket
    for _ in range(2):
        command.run("cp", "-r", "--flatten", there.url, f"{folder}/par/", *there.flags("src")).expect(4)
        for name, content in contents.items():
            assert (folder / name).read_bytes() == content
        assert (folder / "par/c").read_bytes() == b"copied"
    # An object that is none of the source is replaced.
    (folder / "third/c").write_bytes(b"changed")
    command.run(
        "cp", "-r", "--flatten", there.url, f"{folder}/par/", "--include", "/third/", *there.flags("src")
    ).expect(0)
    assert (folder / "par/c").read_bytes() == b"changed"


@pytest.mark.parametrize("flags", [[], ["--flatten"]])
@pytest.mark.parametrize("kind", ["file", "versitygw"])
def test_a_list_copied_below_its_source_names_nothing_in_its_destination(
    command: Command, place: Callable[[str], Place], kind: str, flags: list[str]
) -> None:
    there = place(kind)
    fill(there)
    names = command.home / "names"
    sides = [there.url, f"{there.url}/par/", *there.flags("src"), *there.flags("dst")]
    for listed in ("other\npar/a\n", "other\npar/ss/a\n"):
        names.write_text(listed)
        assert_refused(command, "cp", *flags, "--files-from", names, *sides)
        assert_untouched(there)
    names.write_text("other\n")
    command.run("cp", *flags, "--files-from", names, *sides).expect(0)
    assert there.get("par/other") == payload("other", SIZES["other"])


@pytest.mark.parametrize("verb", ["cp", "mv"])
@pytest.mark.parametrize("kind", ["file", "versitygw"])
def test_several_sources_are_not_written_over_each_other(
    command: Command, place: Callable[[str], Place], kind: str, verb: str
) -> None:
    there = place(kind)
    fill(there)
    there.put("new/ss/a", b"new")
    there.put("par/ss/tree/b", b"old")
    for inner in ("par/ss/a", "par/ss/tree"):
        sources = [f"{there.url}/new/ss", f"{there.url}/{inner}"]
        to = f"{there.url}/par/"
        said = assert_refused(command, verb, "-r", *sources, to, *there.flags("src"), *there.flags("dst"))
        assert inner in said and "could be overwritten before it is read, because" in said
        assert (
            "hint: transfer it first, with a command of its own; --as-subdir keeps the name of a single directory"
            in said
        )
    assert there.get("par/ss/a") == payload("par/ss/a", SIZES["par/ss/a"])
    assert there.get("new/ss/a") == b"new"


@pytest.mark.parametrize("kind", ["file", "versitygw"])
@pytest.mark.parametrize("inner", ["special", "special/b"], ids=["object", "tree"])
def test_a_source_that_would_be_written_over_can_be_moved_first(
    command: Command, place: Callable[[str], Place], kind: str, inner: str
) -> None:
    there = place(kind)
    for key in ("new/d/a", f"new/d/{inner}", f"t/d/{inner}"):
        there.put(key, key.encode())
    flags, to = [*there.flags("src"), *there.flags("dst")], f"{there.url}/t/"
    outer, first = f"{there.url}/new/d", f"{there.url}/t/d/special"
    assert_refused(command, "mv", "-r", outer, first, to, *flags)
    recursive = ["-r", "--as-subdir"]
    command.run("mv", *(recursive if "/" in inner else []), first, to, *flags).expect(0)
    command.run("mv", *recursive, outer, to, *flags).expect(0)
    assert set(there.sizes()) == {f"t/{inner}", "t/d/a", f"t/d/{inner}"}
    assert there.get(f"t/{inner}") == f"t/d/{inner}".encode()
    assert there.get(f"t/d/{inner}") == f"new/d/{inner}".encode()


@pytest.mark.parametrize(("here", "there"), [("x", "X"), ("stra\u00dfe", "STRASSE"), ("caf\u00e9", "cafe\u0301")])
@pytest.mark.parametrize("shape", ["tree", "one object"])
def test_names_that_a_server_treats_as_one_are_detected(command: Command, here: str, there: str, shape: str) -> None:
    with OddStore("s3", Habits(folds_names=True)) as store:
        place = OddPlace(store, command)
        keys = {"tree": (f"{here}/", f"{there}/"), "one object": (f"{here}/a", f"{there}/a")}
        source, destination = keys[shape]
        words = [f"{place.url}/{source}", f"{place.url}/{destination}", *place.flags("src"), *place.flags("dst")]
        place.put(f"{here}/a", b"only copy")
        if shape == "tree":
            place.put(f"{here}/b", b"only copy")
        before = place.contents()
        assert_refused(command, "mv", *(["-r"] if shape == "tree" else []), *words)
        assert place.contents() == before
    with OddStore("s3") as store:
        place = OddPlace(store, command)
        place.put(f"{here}/a", b"only copy")
        sides = [*place.flags("src"), *place.flags("dst")]
        command.run("mv", "-r", f"{place.url}/{here}/", f"{place.url}/{there}/", *sides).expect(0)
        assert place.contents() == {f"{there}/a": b"only copy"}
