"""Symbolic links inside a source: none leads a job into its own destination, into itself, or outside unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.drive import Command, Finished
from testbed.places import FilePlace
from testbed.trees import payload, write_tree

SOURCE = {"a": 10, "deep/b": 20}
DESTINATION = {"kept": 30, "folder/x": 40, "folder/y/z": 50}
LINKS = {
    "to the destination": "../dst",
    "to a folder of it": "../dst/folder",
    "deep in it": "../dst/folder/y",
    "to a file of it": "../dst/kept",
    "above it": "..",
    "around": "../around",
}
"""Forbidden targets of a link in the source, with the reason."""
VERBS = [("cp", "-r"), ("mv", "-r"), ("sync", "--delete", "-y"), ("sync",)]


@pytest.fixture
def sides(tmp_path: Path) -> tuple[FilePlace, FilePlace]:
    """A source and a destination beside each other, and a second path to the destination."""
    source, destination = FilePlace(tmp_path / "src"), FilePlace(tmp_path / "dst")
    write_tree(source.folder, SOURCE)
    write_tree(destination.folder, DESTINATION)
    (tmp_path / "around").mkdir()
    (tmp_path / "around" / "link").symlink_to("../dst")
    return source, destination


def contents(place: FilePlace, names: dict[str, int]) -> dict[str, bytes]:
    return {name: place.get(name) for name in names}


def refused_links(done: Finished) -> set[str]:
    return {Path(failure["source"]).name for failure in done.failures}


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
@pytest.mark.parametrize("name", LINKS)
def test_no_link_leads_into_the_destination(
    command: Command, sides: tuple[FilePlace, FilePlace], name: str, verb: tuple[str, ...]
) -> None:
    source, destination = sides
    before = contents(destination, DESTINATION)
    (source.folder / "link").symlink_to(LINKS[name])
    done = command.run(verb[0], *verb[1:], "--follow-symlinks", source.folder, destination.folder, "--json").expect(4)
    assert refused_links(done) == {"link"}
    (failure,) = done.failures
    assert "symbolic link" in failure["message"]
    assert contents(destination, DESTINATION) == before
    assert set(destination.sizes()) == {*DESTINATION, *SOURCE}, "the rest is copied, and no copy is copied again"


def test_a_link_that_leads_out_of_the_source_is_followed(command: Command, tmp_path: Path) -> None:
    source = FilePlace(tmp_path / "src")
    write_tree(source.folder, SOURCE)
    write_tree(tmp_path / "elsewhere", {"x": 5, "y/z": 6})
    (source.folder / "link").symlink_to("../elsewhere")
    (source.folder / "file").symlink_to("../elsewhere/x")
    (tmp_path / "dst").mkdir()
    write_tree(tmp_path / "dst" / "other", {"x": 7})
    (source.folder / "beside").symlink_to("../dst/other")
    copy = tmp_path / "dst" / "copy"
    command.run("cp", "-r", "--follow-symlinks", source.folder, copy).expect(0)
    assert set(FilePlace(copy).sizes()) == {*SOURCE, "link/x", "link/y/z", "file", "beside/x"}


def test_a_link_to_a_folder_above_the_source_is_refused_before_its_siblings_are_copied(
    command: Command, tmp_path: Path
) -> None:
    source = FilePlace(tmp_path / "home" / "src")
    write_tree(source.folder, SOURCE)
    write_tree(tmp_path / "home", {"private": 5})
    (source.folder / "deep" / "up").symlink_to(tmp_path / "home")
    (source.folder / "self").symlink_to(".")
    done = command.run("mv", "-r", "--follow-symlinks", source.folder, tmp_path / "dst", "--json").expect(4)
    assert refused_links(done) == {"up", "self"}
    assert (tmp_path / "home" / "private").read_bytes() == payload("private", 5)
    assert set(FilePlace(tmp_path / "dst").sizes()) == set(SOURCE)


def test_no_name_in_a_list_leads_through_a_link_into_the_destination(
    command: Command, sides: tuple[FilePlace, FilePlace], tmp_path: Path
) -> None:
    source, destination = sides
    before = contents(destination, DESTINATION)
    (source.folder / "link").symlink_to("../dst/folder")
    (tmp_path / "names").write_text("a\nlink/x\n")
    words = ("mv", "--files-from", tmp_path / "names", "--follow-symlinks", source.folder, destination.folder)
    done = command.run(*words, "--json").expect(4)
    assert len(done.failures) == 1
    assert contents(destination, DESTINATION) == before


def test_a_link_to_a_folder_as_source_is_followed_by_mv_only_with_a_slash(command: Command, tmp_path: Path) -> None:
    write_tree(tmp_path / "real", SOURCE)
    (tmp_path / "link").symlink_to("real")
    refused = command.run("mv", "-r", tmp_path / "link", tmp_path / "dst").expect(2)
    assert f"write {tmp_path}/link/" in refused.stderr
    assert set(FilePlace(tmp_path / "real").sizes()) == set(SOURCE)
    command.run("mv", "-r", f"{tmp_path}/link/", tmp_path / "dst").expect(0)
    assert (tmp_path / "link").is_symlink()
    assert set(FilePlace(tmp_path / "dst").sizes()) == set(SOURCE)


def test_mv_keeps_the_target_of_a_link_to_a_folder(command: Command, tmp_path: Path) -> None:
    source = FilePlace(tmp_path / "src")
    write_tree(source.folder, SOURCE)
    write_tree(tmp_path / "out", {"f": 5, "g/h": 6})
    (tmp_path / "file").write_bytes(b"content")
    (source.folder / "link").symlink_to("../out")
    (source.folder / "file").symlink_to("../file")
    done = command.run("mv", "-r", "--follow-symlinks", source.folder, tmp_path / "dst", "--json").expect(4)
    assert refused_links(done) == {"link"}
    assert FilePlace(tmp_path / "out").sizes() == {"f": 5, "g/h": 6}
    assert (source.folder / "link").is_symlink()
    assert not (source.folder / "file").is_symlink()
    assert (tmp_path / "file").read_bytes() == (tmp_path / "dst" / "file").read_bytes() == b"content"
    assert set(FilePlace(tmp_path / "dst").sizes()) == {*SOURCE, "file"}


BROKEN = {
    "vanished": "../elsewhere",
    "in a circle": "link",
    "through a file": "a.log/below",
}
"""Target of a link that used to be a folder and does not exist any more."""


@pytest.mark.parametrize("rules", [(), ("--include", "*.log"), ("--exclude", "link/")], ids=" ".join)
@pytest.mark.parametrize("fault", BROKEN)
def test_a_dangling_link_causes_no_deletion(
    command: Command, tmp_path: Path, fault: str, rules: tuple[str, ...]
) -> None:
    source, copy = tmp_path / "src", tmp_path / "dst"
    write_tree(source, dict.fromkeys(("a.log", "b.log", "c.log"), 10))
    write_tree(copy, dict.fromkeys(("a.log", "b.log", "c.log", "link/x.log"), 10))
    (source / "link").symlink_to(BROKEN[fault])
    words = ("sync", "--delete", "-y", "--follow-symlinks", source, copy)
    done = command.run(*words, *rules).expect(4)
    assert "symbolic link" in done.stderr
    assert (copy / "link" / "x.log").exists()
    command.run(*words, *rules, "--exclude", "link").expect(0)
    assert (copy / "link" / "x.log").exists()


def test_what_is_in_the_place_of_a_skipped_link_is_not_deleted(command: Command, tmp_path: Path) -> None:
    """A folder was moved to another disk, and a link to it left in its place."""
    source, copy, elsewhere = tmp_path / "src", tmp_path / "dst", tmp_path / "disk"
    write_tree(source, dict.fromkeys(("a", "b", "c", "gone", "data/x", "data/y/z", "in/file"), 10))
    command.run("sync", source, copy).expect(0)
    elsewhere.mkdir()
    for moved in ("data", "in/file"):
        (source / moved).rename(elsewhere / Path(moved).name)
        (source / moved).symlink_to(elsewhere / Path(moved).name)
    (source / "gone").unlink()
    command.run("sync", "--delete", "-y", source, copy).expect(0)
    assert {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()} == {
        *("a", "b", "c", "data/x", "data/y/z", "in/file"),
    }
