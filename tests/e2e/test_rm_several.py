"""`rm` of several places and of lists, and what the commands say about an object in place of a directory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.faults import Answer, HttpProxy, Request, Rule
from testbed.places import FilePlace, Place, S3Place

KINDS = ["versitygw", "moto", "gcs", "azure", "file"]


def quick(*quick_kinds: str, kinds: list[str] = KINDS) -> list[object]:
    """Return kinds of stores, the others than the quick ones marked slow."""
    return [pytest.param(kind, marks=[] if kind in quick_kinds else [pytest.mark.slow]) for kind in kinds]


@pytest.mark.parametrize("kind", quick("moto", "file"))
def test_rm_takes_several_places_and_one_that_is_missing_fails_alone(
    place: Callable[[str], Place], command: Command, kind: str
) -> None:
    there = place(kind)
    for key in ("a", "b", "c", "d/x", "d/y", "e/x", "e/z.log", "f"):
        there.put(key, key.encode())
    flags, url = there.flags("src"), there.url
    shown = command.run("rm", f"{url}/a", f"{url}/b", "--dry-run", *flags).expect(0)
    assert shown.stdout.count("would delete ") == 2 and len(there.sizes()) == 8
    done = command.run("rm", f"{url}/a", f"{url}/missing", f"{url}/b", f"{url}/a", *flags).expect(4)
    assert "error: no object has this name: " in done.stderr and done.stdout.count("deleted ") == 2
    assert "error: 1 of 3 objects could not be deleted" in done.stderr
    command.run("rm", f"{url}/a", f"{url}/b", *flags).expect(3)
    command.run("rm", f"{url}/a", f"{url}/b", "--allow-empty", *flags).expect(0)
    command.run("rm", "-r", f"{url}/d", f"{url}/missing/", *flags).expect(4)
    command.run("rm", f"{url}/c", f"{url}/e/*.log", *flags).expect(0)
    assert sorted(there.sizes()) == ["e/x", "f"]
    command.run("rm", "-r", "-q", f"{url}/e", "--older", "2001-01-01", *flags).expect(3)


@pytest.mark.parametrize("kind", quick("versitygw", "file"))
def test_rm_takes_a_list_of_names(place: Callable[[str], Place], command: Command, kind: str) -> None:
    there = place(kind)
    for key in ("d/a", "d/b", "d/x/c", "d/[*]", "e"):
        there.put(key, key.encode())
    flags, url = there.flags("src"), there.url
    names = b"a\n\r\nx/c\r\n[*]\nmissing\n"
    done = command.run("rm", "--json", f"{url}/d", "--files-from", "-", *flags, stdin=names).expect(4)
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["verdict"] for each in verdicts] == ["failed", "deleted", "deleted", "deleted"]
    assert verdicts[0]["kind"] == "not_found"
    urls = f"{url}/d/b\n{url}/e\n".encode()
    command.run("rm", "--files-from", "-", *flags, stdin=urls).expect(0)
    assert there.sizes() == {}
    assert "not UTF-8" in command.run("rm", "--files-from", "-", *flags, stdin=b"\xff\n").expect(2).stderr


@pytest.mark.parametrize("kind", quick("file", "moto"))
def test_a_listed_directory_is_deleted_only_if_it_is_empty(
    place: Callable[[str], Place], command: Command, kind: str
) -> None:
    there = place(kind)
    there.put("d/full/a", b"x")
    there.put("d/kept/a", b"x")
    if isinstance(there, FilePlace):
        (there.folder / "d" / "empty").mkdir()
    else:
        for key in ("d/full/", "d/empty/", "d/kept/"):
            there.put(key, b"")
    is_file = kind == "file"
    url = f"{'file://' if is_file else ''}{there.url}/d"
    words = ["rm", url, "--files-from", "-", *there.flags("src")]
    names = b"empty/\nfull/a\nfull/\nkept/\n"
    for dry, verb in ((["--dry-run"], "would delete"), ([], "deleted")):
        done = command.run(*words, *dry, stdin=names).expect(4 if is_file else 0)
        shown = done.stdout.splitlines()
        expected = [f"{verb} {there.url}/d/{key}" for key in ("empty/", "full/a", "full/", "kept/")]
        assert sorted(shown) == sorted(expected[:3] if is_file else expected)
        if is_file:
            assert f"error: delete {there.url}/d/kept/: the directory is not empty" in done.stderr
            assert "error: 1 of 4 objects could not be deleted" in done.stderr
    assert list(there.sizes()) == ["d/kept/a"]


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=str)
def test_a_list_may_name_a_directory_before_what_is_in_it(
    command: Command, tmp_path: Path, dry: tuple[str, ...]
) -> None:
    there = FilePlace(tmp_path / "there")
    names = ["a/", "a/b/", "a/b/x", "a/b/c/", "a/y", *(f"a/b/c/{number}" for number in range(6_000))]
    for name in names:
        if not name.endswith("/"):
            there.put(name, b"x")
    done = command.run("rm", there.url, "--files-from", "-", *dry, stdin="\n".join(names).encode()).expect(0)
    assert done.stdout.count("deleted " if not dry else "would delete ") == len(names)
    assert list(there.folder.iterdir()) == ([there.folder / "a"] if dry else [])


def test_a_link_is_neither_followed_nor_deleted(command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    done = command.run("rm", tmp_path / "file", tmp_path / "link").expect(2)
    assert f"{tmp_path}/link is a symbolic link, and rm deletes only files" in done.stderr
    listed = command.run("rm", tmp_path, "--files-from", "-", stdin=b"link\n../x\n").expect(4)
    assert listed.stderr.count("error: ") == 3 and (tmp_path / "file").exists() and (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("kind", quick("moto", kinds=KINDS[:-1]))
def test_an_object_in_place_of_a_directory_is_named_with_what_to_type(
    place: Callable[[str], Place], command: Command, kind: str
) -> None:
    there, other = place(kind), place("file")
    there.put("d/a", b"content")
    other.put("a", b"content")
    flags, url = there.flags("src"), there.url

    def said(code: int, *words: str) -> str:
        return command.run(*words, *flags).expect(code).stderr

    is_object = f"error: {url}/d/a is an object, not a directory\nhint: "
    assert f"{is_object}leave out the slash at its end: tradewind ls {url}/d/a" in said(3, "ls", f"{url}/d/a/")
    assert f"{is_object}leave out the slash at its end: tradewind du {url}/d/a" in said(3, "du", f"{url}/d/a/")
    assert f"{is_object}to delete one object: tradewind rm {url}/d/a" in said(3, "rm", "-r", f"{url}/d/a")
    assert f"{is_object}check compares directories" in said(3, "check", f"{url}/d/a", other.url)
    reverse = command.run("check", other.url, f"{url}/d/a", *there.flags("dst")).expect(3).stderr
    assert f"{is_object}check compares directories" in reverse
    missing = command.run("check", other.url, f"{url}/missing", *there.flags("dst")).expect(6).stderr
    assert f"hint: nothing exists at {url}/missing/: check the name" in missing
    assert f"{url}/d is a directory, not an object" in said(3, "cat", f"{url}/d")
    assert f"hint: to print the objects in it: tradewind cat '{url}/d/*'" in said(3, "cat", f"{url}/d")
    assert "it is a directory; add -r" in said(3, "rm", f"{url}/d")
    assert f"nothing exists at {url}/d/missing/" in said(3, "rm", "-r", f"{url}/d/missing")


def test_a_name_that_needs_authentication_fails_alone(
    s3: S3Place, proxy: HttpProxy, command: Command, tmp_path: Path
) -> None:
    """As with anonymous access to a bucket where only some objects are public."""

    def rejected(request: Request) -> bool:
        return request.method == "HEAD" and "/private" in request.path

    s3.endpoint = proxy.endpoint
    proxy.add(Rule(Answer(401, "AccessDenied"), when=rejected))
    for key in ("a", "private-1", "b"):
        s3.put(key, b"x")
    flags = s3.flags("src")
    done = command.run("rm", "--json", *(f"{s3.url}/{key}" for key in ("private-1", "a", "b")), *flags).expect(4)
    verdicts = {line["url"].rpartition("/")[2]: line for line in map(json.loads, done.stdout.splitlines())}
    assert verdicts["private-1"]["kind"] == "unauthenticated" and sorted(s3.sizes()) == ["private-1"]
    assert "error: 1 of 3 objects could not be deleted" in done.stderr

    # If every name is rejected, that is one error. A long row of rejections ends a list.
    alone = command.run("rm", s3.url, "--files-from", "-", *flags, stdin=b"private-1\nprivate-2\n").expect(7)
    assert alone.stderr.count("error: ") == 1 and "tradewind doctor" in alone.stderr
    s3.put("a", b"x")
    names = "a\n" + "".join(f"private-{number}\n" for number in range(40)) + "missing\n"
    ended = command.run("rm", s3.url, "--files-from", "-", *flags, stdin=names.encode()).expect(4)
    assert "error: 33 names not tried: the store keeps rejecting the credentials" in ended.stderr
    assert "error: 41 of 42 objects could not be deleted" in ended.stderr and "a" not in s3.sizes()
