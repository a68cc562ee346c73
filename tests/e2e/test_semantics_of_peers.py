"""Expectations of users of rclone and s5cmd, as a table: trees before, a command, trees after.

The cases have the names of rclone's `fs/sync/sync_test.go` and of s5cmd's `e2e/*_test.go`. Only the behaviour is taken
from there. Where Tradewind differs on purpose, the case says so, and docs/guides/coming-from.md explains it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import Place
from testbed.trees import tree_hashes

OLD_S, NEW_S = 1_500_000_000, 1_600_000_000
Tree = dict[str, str]


@dataclass(frozen=True)
class Case:
    """One command between two directories. SRC and DST in the command stand for them."""

    name: str
    source: Tree
    before: Tree
    command: str
    after: Tree
    code: int = 0
    #: The files that remain in the source; the whole source unless stated.
    left: Tree | None = None
    #: Names of files at the source that are newer than those at the destination.
    newer: tuple[str, ...] = field(default=())


SAME = {"a": "one", "d/b": "two"}
SYNC = [
    Case("TestCopy", SAME, {}, "cp -r SRC DST", SAME),
    Case("TestCopyWithDryRun", SAME, {}, "cp -r SRC DST --dry-run", {}),
    Case("TestCopyMissingDirectory", {}, {}, "cp -r SRC/none DST", {}, code=3),
    Case("TestCopyRedownload", SAME, SAME, "sync SRC DST", SAME),
    Case("TestSyncSizeOnly", {"a": "new"}, {"a": "old"}, "sync SRC DST --compare size", {"a": "old"}, newer=("a",)),
    Case(
        "TestSyncBasedOnCheckSum", {"a": "x"}, {"a": "x"}, "sync SRC DST --compare checksum", {"a": "x"}, newer=("a",)
    ),
    Case("TestSyncAfterChangingModtimeOnly", {"a": "x"}, {"a": "x"}, "sync SRC DST", {"a": "x"}, newer=("a",)),
    Case("TestSyncAfterAddingAFile", SAME, {"a": "one"}, "sync SRC DST", SAME),
    Case("TestSyncAfterChangingFilesSizeOnly", {"a": "longer"}, {"a": "x"}, "sync SRC DST", {"a": "longer"}),
    Case("TestSyncAfterChangingContentsOnly", {"a": "new"}, {"a": "old"}, "sync SRC DST", {"a": "new"}, newer=("a",)),
    Case(
        "TestSyncAfterRemovingAFileAndAddingAFileDryRun",
        {"n": "new"},
        {"x": "extra"},
        "sync SRC DST --delete --dry-run",
        {"x": "extra"},
    ),
    Case(
        "TestSyncAfterRemovingAFileAndAddingAFile",
        {"n": "new"},
        {"x": "extra"},
        "sync SRC DST --delete -y",
        {"n": "new"},
    ),
    Case(
        "TestSyncAfterRemovingAFileAndAddingAFileSubDir",
        {"d/n": "new"},
        {"d/x": "extra", "e/x": "extra"},
        "sync SRC DST --delete -y",
        {"d/n": "new"},
    ),
    Case(
        "TestSyncWithExclude",
        {"a": "one", "skip": "new"},
        {"skip": "old!", "x": "extra"},
        "sync SRC DST --delete -y --exclude skip",
        {"a": "one", "skip": "old!"},
    ),
    Case(
        "TestSyncWithMaxDelete: the deletions are refused as a whole",
        {"a": "one"},
        {"x": "1", "y": "2"},
        "sync SRC DST --delete --max-delete 1",
        {"a": "one", "x": "1", "y": "2"},
        code=1,
    ),
    Case(
        "TestSync of an empty source: refused", {}, {"x": "extra"}, "sync SRC DST --delete -y", {"x": "extra"}, code=3
    ),
    Case(
        "deleting more than half: refused without -y",
        {"n": "new"},
        {"x": "1"},
        "sync SRC DST --delete",
        {"n": "new", "x": "1"},
        code=1,
    ),
    Case("TestMoveWithoutDeleteEmptySrcDirs", SAME, {"a": "old"}, "mv -r SRC DST", SAME, left={}),
    Case(
        "TestServerSideMoveWithFilter",
        {"a.txt": "1", "b.log": "2"},
        {},
        "mv -r SRC DST --exclude *.log",
        {"a.txt": "1"},
        left={"b.log": "2"},
    ),
]
KEYS = {"a.txt": "1", "b.log": "2", "d/c.txt": "3"}
GLOBS = [
    Case("TestCopyMultipleFilesToS3WithWildcard", KEYS, {}, "cp SRC/*.txt DST/", {"a.txt": "1"}),
    Case("s5cmd's * crosses directories: **", KEYS, {}, "cp SRC/**.txt DST/", {"a.txt": "1", "d/c.txt": "3"}),
    Case("TestCopyDirToS3", KEYS, {}, "cp -r SRC DST/up/", {f"up/{key}": text for key, text in KEYS.items()}),
    Case("TestCopySingleFileToS3WithPrefix", KEYS, {}, "cp SRC/a.txt DST/p/", {"p/a.txt": "1"}),
    Case("TestCopySingleFileToS3WithAdjacentSlashes", KEYS, {}, "cp SRC/a.txt DST/p", {"p": "1"}),
    Case("TestCopyWithExcludeFilters", KEYS, {}, "cp -r SRC DST --exclude *.txt", {"b.log": "2"}),
    Case("TestRemoveMultipleObjects", {}, KEYS, "rm DST/*.txt", {"b.log": "2", "d/c.txt": "3"}),
    Case("TestRemoveTenThousandObjects", {}, KEYS, "rm -r DST/d", {"a.txt": "1", "b.log": "2"}),
    Case("TestRemoveMultipleFilesExclude", {}, KEYS, "rm -r DST --exclude *.log -y", {"b.log": "2"}),
    Case("TestRemoveNonexistingLocalFile", {}, KEYS, "rm DST/none", KEYS, code=3),
    Case("TestListS3ObjectsWithWildcard without a match", {}, KEYS, "ls DST/none*", KEYS, code=3),
]


def written(place: Place, tree: Tree) -> None:
    """Write the tree, with old times where a place has files."""
    for key, text in tree.items():
        place.put(key, text.encode())


@pytest.mark.parametrize("kind", ["file", pytest.param("versitygw", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", [*SYNC, *GLOBS], ids=lambda case: case.name)
def test_a_command_does_what_the_peers_users_expect(
    case: Case, kind: str, place: Callable[[str], Place], command: Command, tmp_path: Path
) -> None:
    source, there = tmp_path / "source", place(kind)
    source.mkdir()
    for key, text in case.source.items():
        path = source / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        # Without a stated difference both sides have one time, as after a copy.
        os.utime(path, (OLD_S, OLD_S))
    written(there, case.before)
    if kind == "file":
        for key in case.before:
            os.utime(Path(there.url) / key, (OLD_S, OLD_S))
    for key in case.newer:
        time_s = NEW_S if kind == "file" else 4_000_000_000
        os.utime(source / key, (time_s, time_s))
    words = [word.replace("SRC", str(source)).replace("DST", there.url) for word in case.command.split()]
    side = "src" if words[0] in ("rm", "ls") else "dst"
    done = command.run(*words, *there.flags(side))
    done.expect(case.code)
    assert {key: there.get(key).decode() for key in there.sizes()} == case.after
    left = case.source if case.left is None else case.left
    assert set(tree_hashes(source)) == set(left)
