"""Unlistable directories: their contents never count as deleted, and every command reports them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.faults.fuse import FuseError, FuseFolder
from testbed.trees import tree_hashes, write_tree

HIDDEN = os.fsdecode(b"hidden\xff")
FILES = {"hidden.log": 10, "one.log": 10, "two.log": 10, "three.log": 10}


def trees(tmp_path: Path) -> tuple[Path, Path]:
    """A source, and a copy of it with one more file. The source has a folder whose name is not UTF-8."""
    source, copy = tmp_path / "from", tmp_path / "to"
    write_tree(source, FILES)
    write_tree(copy, FILES | {"extra.log": 10})
    hidden = source / HIDDEN
    hidden.mkdir()
    (hidden / "in.log").write_bytes(b"1")
    return source, copy


def test_a_filter_by_name_does_not_hide_a_folder_that_cannot_be_listed(command: Command, tmp_path: Path) -> None:
    source, copy = trees(tmp_path)
    refused = command.run("sync", "--delete", source, copy, "--include", "*.log").expect(4)
    assert "not UTF-8" in refused.stderr
    assert (copy / "extra.log").exists()
    command.run("cp", "-r", source, tmp_path / "other", "--include", "*.log").expect(4)
    command.run("sync", "--delete", source, copy, "--include", "*.log", "--exclude", "hidden*/").expect(0)
    assert not (copy / "extra.log").exists()


def test_a_folder_of_the_destination_that_cannot_be_listed_is_reported(command: Command, tmp_path: Path) -> None:
    copy, source = trees(tmp_path)
    (source / "extra.log").unlink()
    (copy / "old.log").write_bytes(b"1")
    done = command.run("sync", "--delete", source, copy).expect(4)
    assert "not UTF-8" in done.stderr
    assert not (copy / "old.log").exists() and (copy / HIDDEN).exists()
    command.run("sync", source, copy).expect(0)


def test_check_ends_like_cp_if_names_cannot_be_listed(command: Command, tmp_path: Path) -> None:
    source, copy = trees(tmp_path)
    (copy / "extra.log").unlink()
    checked = command.run("check", "--read", source, copy).expect(4)
    assert "not UTF-8" in checked.stderr
    command.run("check", "--read", source, copy, "--exclude", "hidden*/").expect(0)


def test_a_change_within_the_same_second_is_copied(command: Command, tmp_path: Path) -> None:
    source, copy = tmp_path / "from", tmp_path / "to"
    write_tree(source, {"a": 4})
    for second, content in ((10, b"old1"), (11, b"new2"), (11.9, b"new3"), (12, b"new4")):
        (source / "a").write_bytes(content)
        os.utime(source / "a", (second, second))
        command.run("sync", source, copy).expect(0)
        assert (copy / "a").read_bytes() == content
    again = command.run("sync", source, copy, "--json").expect(0)
    assert again.summary["progress"]["objects_skipped"] == 1


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_a_file_longer_than_its_stated_size_is_refused(command: Command, tmp_path: Path) -> None:
    refused = command.run("cp", "/proc/self/status", tmp_path / "status").expect(1)
    assert "states its length as 0" in refused.stderr
    assert not (tmp_path / "status").exists()
    (tmp_path / "empty").touch()
    command.run("cp", tmp_path / "empty", tmp_path / "copy").expect(0)
    assert (tmp_path / "copy").read_bytes() == b""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc")
def test_a_destination_that_cannot_be_created_is_not_called_a_missing_source(command: Command, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1")
    command.run("cp", tmp_path / "one", "/proc/nope").expect(1)


def test_unlistable_names_are_quoted_for_a_shell(command: Command, tmp_path: Path) -> None:
    source, _ = trees(tmp_path)
    for words in (("ls", "-r"), ("du",), ("rm", "-r", "--dry-run"), ("rm", "-r")):
        done = command.run(*words, source).expect(4)
        assert r"$'hidden\xff/'" in done.stderr and "rename it" in done.stderr
    assert (source / HIDDEN / "in.log").exists()


def test_a_listing_that_breaks_off_is_not_called_complete(command: Command, tmp_path: Path) -> None:
    """The C library takes ENOENT for the end of a directory."""
    backing, copy = tmp_path / "from", tmp_path / "to"
    files = {f"{folder}/{number}": 10 for folder in ("short", "whole") for number in range(8)}
    write_tree(backing, files)
    write_tree(copy, files)
    before = tree_hashes(backing)
    try:
        with FuseFolder(tmp_path / "shown", backing, breaks_off="short") as shown:
            synced = command.run("sync", "--delete", "-y", shown.path, copy).expect(5)
            assert "nothing was deleted: the source was not listed completely" in synced.stderr
            assert tree_hashes(copy) == before
            assert command.run("check", "--one-way", shown.path, copy).code != 0
            command.run("mv", "-r", shown.path, tmp_path / "moved").expect(5)
    except FuseError as error:
        pytest.skip(str(error))
    assert {f"short/{number}" for number in range(8)} == set(tree_hashes(backing))
