"""Two names of one job that a server treats as one: one of them fails, and the other is not damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from testbed.drive import Command, Finished
from testbed.odd_stores import KINDS, Habits, Kind, OddPlace, OddStore, during
from testbed.places import Place, S3Place
from testbed.servers import versitygw

CASE = ("NAME", "name")
SEGMENTS = [("y//z", "y/z"), ("A/./b", "A/b"), ("/k", "k"), ("d/../e", "e")]
SLOW_KINDS = ["minio", "seaweedfs", "ceph"]
#: Names that servers store under another name. The object `a/b` shows it.
CHANGED = {
    "versitygw": ["a//y", "/lead", "./dot", "a/./e", "a/../f"],
    "minio": ["/lead", "//lead"],
    "seaweedfs": ["a//y", "/lead", "back\\slash"],
}
SAME, OTHER = (b"same bytes", b"same bytes"), (b"one content", b"another one")


@pytest.fixture
def source(command: Command) -> Iterator[OddPlace]:
    with OddStore("s3") as store:
        yield OddPlace(store, command)


def fill(source: OddPlace, contents: dict[str, bytes]) -> None:
    """Write objects with an old time, so that they cannot be mistaken for their copies."""
    for key, content in contents.items():
        source.store.objects.put(source.bucket, key, content, modified_s=1e9)


def transfer(command: Command, verb: str, source: OddPlace, there: OddPlace | Place) -> Finished:
    recursive = [] if verb == "sync" else ["-r"]
    sides = [*source.flags("src"), *there.flags("dst")]
    return command.run(verb, *recursive, "--json", f"{source.url}/", f"{there.url}/", *sides)


def assert_one_failed(done: Finished, source: OddPlace, there: OddPlace | S3Place, contents: dict[str, bytes]) -> None:
    """Check that the destination has the object that did not fail, and that ``mv`` has kept the other one."""
    done.expect(4)
    (failure,) = done.failures
    assert failure["kind"] == "occupied"
    assert "treats this name as that of another object" in failure["message"]
    (failed,) = (key for key in contents if failure["source"] == f"{source.url}/{key}")
    (written,) = set(contents) - {failed}
    (left,) = there.sizes()
    assert there.get(left) == contents[written]
    assert source.contents()[failed] == contents[failed]


@pytest.mark.parametrize("contents", [SAME, OTHER], ids=["same", "other"])
@pytest.mark.parametrize("verb", ["cp", "sync", "mv"])
@pytest.mark.parametrize("ignores_conditions", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_names_that_differ_in_case(
    command: Command,
    source: OddPlace,
    kind: Kind,
    ignores_conditions: bool,
    verb: str,
    contents: tuple[bytes, bytes],
) -> None:
    named = dict(zip(CASE, contents, strict=True))
    fill(source, named)
    with OddStore(kind, Habits(folds_names=True, ignores_write_conditions=ignores_conditions)) as store:
        there = OddPlace(store, command)
        done = transfer(command, verb, source, there)
        assert_one_failed(done, source, there, named)
        assert len(source.contents()) == (1 if verb == "mv" else 2)
        if verb == "sync":
            assert_one_failed(transfer(command, verb, source, there), source, there, named)


@pytest.mark.parametrize("contents", [SAME, OTHER], ids=["same", "other"])
@pytest.mark.parametrize("verb", ["cp", "sync", "mv"])
@pytest.mark.parametrize("names", SEGMENTS)
def test_names_that_a_server_merges(
    command: Command, source: OddPlace, names: tuple[str, str], verb: str, contents: tuple[bytes, bytes]
) -> None:
    named = dict(zip(names, contents, strict=True))
    fill(source, named)
    with OddStore("s3", Habits(merges_segments=True, ignores_write_conditions=True)) as store:
        there = OddPlace(store, command)
        assert_one_failed(transfer(command, verb, source, there), source, there, named)


@pytest.mark.parametrize("verb", ["cp", "sync"])
@pytest.mark.parametrize("kind", ["versitygw", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW_KINDS)])
def test_a_server_that_merges_segments_still_distinguishes_case(
    command: Command, source: OddPlace, place: Callable[[str], Place], kind: str, verb: str
) -> None:
    named = {"Dir/Name": b"one content", "dir/name": b"another one", "dir/caf\u00e9": b"1", "dir/cafe\u0301": b"2"}
    fill(source, named)
    there = place(kind)
    for _ in range(2):
        transfer(command, verb, source, there).expect(0)
        assert {key: there.get(key) for key in there.sizes()} == named


@pytest.mark.parametrize("verb", ["cp", "mv"])
def test_names_that_a_file_server_merges(command: Command, source: OddPlace, verb: str) -> None:
    named = dict(zip(SEGMENTS[0], SAME, strict=True))
    fill(source, named)
    with versitygw() as server:
        there = S3Place(server, command)
        assert_one_failed(transfer(command, verb, source, there), source, there, named)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["cp", "mv"])
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        # It finds a directory by each Unicode form of its name, and lists its objects by the form that is asked for.
        ("rclone", ("caf\u00e9/x", "cafe\u0301/x")),
        ("seaweedfs", ("d/b\\c", "d/b/c")),
    ],
)
def test_names_that_a_real_server_merges(
    command: Command, source: OddPlace, place: Callable[[str], Place], kind: str, names: tuple[str, str], verb: str
) -> None:
    named = dict(zip(names, OTHER, strict=True))
    fill(source, named)
    there = place(kind)
    assert isinstance(there, S3Place)
    assert_one_failed(transfer(command, verb, source, there), source, there, named)


@pytest.mark.parametrize("verb", ["cp", "sync", "mv"])
def test_a_name_that_a_server_changes_is_refused(command: Command, source: OddPlace, verb: str) -> None:
    named = {key: f"content of {key}".encode() for key in ("a/b", "/lead", "d/./e", "x//y")}
    fill(source, named)
    with OddStore("s3", Habits(merges_segments=True)) as store:
        there = OddPlace(store, command)
        assert_changed_names_are_refused(transfer(command, verb, source, there), source, there, named)
        if verb != "mv":
            assert_changed_names_are_refused(transfer(command, verb, source, there), source, there, named)


@pytest.mark.parametrize(
    "kind", ["versitygw", *(pytest.param(kind, marks=pytest.mark.slow) for kind in CHANGED if kind != "versitygw")]
)
def test_a_name_that_a_real_server_changes_is_refused(
    command: Command, source: OddPlace, place: Callable[[str], Place], kind: str
) -> None:
    named = {key: f"content of {key}".encode() for key in ("a/b", *CHANGED[kind])}
    fill(source, named)
    there = place(kind)
    for verb in ("cp", "sync"):
        assert_changed_names_are_refused(transfer(command, verb, source, there), source, there, named)
    sides = [*source.flags("src"), *there.flags("dst")]
    for key in CHANGED[kind]:
        refused = command.run("cp", f"{source.url}/a/b", f"{there.url}/{key}", *sides).expect(1)
        assert "so it would have another name there" in refused.stderr
    assert there.sizes().keys() == {"a/b"}


@pytest.mark.slow
def test_a_name_that_a_server_rejects_is_explained_by_the_server(
    command: Command, source: OddPlace, place: Callable[[str], Place]
) -> None:
    source.put("a", b"content")
    there = place("minio")
    sides = [*source.flags("src"), *there.flags("dst")]
    for key in ("x//y", "d/../e"):
        refused = command.run("cp", f"{source.url}/a", f"{there.url}/{key}", *sides).expect(1)
        assert "XMinioInvalid" in refused.stderr and "hint: choose another destination name" in refused.stderr


def assert_changed_names_are_refused(
    done: Finished, source: OddPlace, there: OddPlace | Place, named: dict[str, bytes]
) -> None:
    """Check that only `a/b` was written."""
    done.expect(4)
    failed = {failure["source"].removeprefix(f"{source.url}/"): failure for failure in done.failures}
    assert failed.keys() == named.keys() - {"a/b"}
    assert all("so it would have another name there" in failure["message"] for failure in failed.values())
    assert {key: there.get(key) for key in there.sizes()} == {"a/b": named["a/b"]}
    assert failed.keys() <= source.contents().keys()


def test_a_name_that_overwrites_the_copy_of_another_one_is_detected(command: Command, source: OddPlace) -> None:
    """The destination already has a correct copy of one of them when the other one is written."""
    source.put("y/z", b"only this at first")
    with OddStore("s3", Habits(merges_segments=True, ignores_write_conditions=True)) as store:
        there = OddPlace(store, command)
        transfer(command, "sync", source, there).expect(0)
        source.put("y//z", b"another one")
        done = transfer(command, "sync", source, there).expect(4)
        assert [failure["kind"] for failure in done.failures] == ["occupied"]


def test_a_name_without_letters_shows_nothing_about_case(command: Command, source: OddPlace) -> None:
    """`name` is looked up after the others, because `Name` may be the same name, too."""
    named = {key: f"content of {key}".encode() for key in ("0/1", "0/\uff11", "NAME", "Name", "name")}
    fill(source, named)
    with OddStore("s3", Habits(folds_names=True)) as store:
        there = OddPlace(store, command)
        for _ in range(2):
            done = transfer(command, "cp", source, there).expect(4)
            assert [failure["kind"] for failure in done.failures] == ["occupied"] * 2
            assert there.contents() == {key: named[key] for key in ("0/1", "0/\uff11", "NAME")}


def test_a_moved_object_is_not_overwritten_by_a_resumed_job(command: Command, source: OddPlace) -> None:
    named = dict(zip(SEGMENTS[0], OTHER, strict=True))
    fill(source, named)
    with OddStore("s3", Habits(merges_segments=True)) as store:
        there = OddPlace(store, command)
        transfer(command, "mv", source, there).expect(4)
        (moved,), (left,) = there.contents().values(), source.contents().values()
        (job,) = command.jobs()
        command.run("jobs", "resume", str(job["id"])).expect(4)
        assert list(there.contents().values()) == [moved]
        assert list(source.contents().values()) == [left]


@pytest.mark.parametrize("verb", ["cp", "sync", "mv"])
def test_a_server_that_distinguishes_names_gets_all_of_them(command: Command, source: OddPlace, verb: str) -> None:
    keys = [f"{case}{slash}{number}" for case in CASE for slash in ("/", "//") for number in range(10)]
    for key in keys:
        source.put(key, f"content of {key}".encode())
    before = source.contents()
    with OddStore("s3") as store:
        there = OddPlace(store, command)
        transfer(command, verb, source, there).expect(0)
        assert there.contents() == before
        if verb != "mv":
            store.clear()
            transfer(command, verb, source, there).expect(0)
            assert len(store.requests(during("put"))) == (0 if verb == "sync" else len(keys))
            assert there.contents() == before


def test_ordinary_names_need_no_additional_requests(command: Command, source: OddPlace) -> None:
    for number in range(200):
        source.put(f"README-{number}.md", b"content")
    with OddStore("s3") as store:
        there = OddPlace(store, command)
        transfer(command, "cp", source, there).expect(0)
        assert len(store.requests(during("head"))) <= 2
