"""Cases of `juicefs sync`, from `pkg/sync/sync_test.go`. There the first rule that matches wins; here the last one."""

from __future__ import annotations

from tests.e2e.peers.case import Case, Tree

NAMES = ["a1/z1/z2", "a2", "ab1", "ab2", "b1", "b2", "c1", "c2"]
SIMPLE = {name: name for name in NAMES}
DEEP = {name: name for name in ("a1/b1/c1", "a1/b1/c2", "a1/b2/c1", "a1/b2/c2", "a2/b1/c2", "a3/b2/c2", "a4")}


def filtered(name: str, source: Tree, rules: str, *expected: str) -> Case:
    """A copy of what the rules include."""
    return Case(
        f"TestSyncIncludeAndExclude: {name}", source, {}, f"sync SRC DST {rules}", {key: key for key in expected}
    )


CASES = [
    Case(
        "TestSync",
        {"a1": "a1", "a2": "a2", "abc": "abc", "c1": "c1"},
        {"a1": "a1", "ba": "a1"},
        "sync SRC DST --exclude a* --exclude c* --include a[1-9]",
        {"a1": "a1", "a2": "a2", "ba": "a1"},
        copies=1,
    ),
    filtered("--exclude '*' first, as --include alone excludes the rest", SIMPLE, "--include *", *NAMES),
    filtered("two --exclude", SIMPLE, "--exclude a* --exclude c*", "b1", "b2"),
    filtered("an exception first", SIMPLE, "--exclude a[1-2]", "ab1", "ab2", "b1", "b2", "c1", "c2"),
    filtered("?", SIMPLE, "--exclude ab?", "a1/z1/z2", "a2", "b1", "b2", "c1", "c2"),
    filtered(
        "a rule with slashes",
        DEEP,
        "--exclude a*/b[1-2]/c1 --exclude a4",
        "a1/b1/c2",
        "a1/b2/c2",
        "a2/b1/c2",
        "a3/b2/c2",
    ),
    filtered("the last match wins", SIMPLE, "--exclude a* --include a2 --exclude c*", "a2", "b1", "b2"),
    filtered("a directory", DEEP, "--exclude b1/", "a1/b2/c1", "a1/b2/c2", "a3/b2/c2", "a4"),
    filtered("only at the top", {"x": "x", "d/x": "d/x"}, "--exclude /x", "d/x"),
    Case(
        "TestSyncLinkWithOutFollow: a broken link fails",
        {"a1": "test"},
        {},
        "sync SRC DST --follow-symlinks",
        {"a1": "test", "l1": "test"},
        code=4,
        links={"l1": "a1", "l3": "../none"},
        files_only=True,
    ),
    Case(
        "TestFilterSizeAndAge",
        {"s": "1", "m": "x" * 15, "l": "x" * 200, "old": "x" * 15},
        {},
        "sync SRC DST --min-size 10B --max-size 100B --newer 2016-01-01",
        {"m": "x" * 15},
        older=("old",),
        files_only=True,
    ),
    Case(
        "TestSyncFilesFromSymlinkDirWithLinks: a list names files",
        {"dir1/file1": "1"},
        {},
        "cp -r SRC DST --files-from LIST",
        {"dir1/file1": "1"},
        code=4,
        listed=("dir-link", "dir1/file1"),
        links={"dir-link": "dir1"},
        files_only=True,
    ),
    Case(
        "test_sync_files_from_ignore_nonexistent: `./` of find",
        {"a": "1", "d/b": "2"},
        {},
        "cp -r SRC DST --files-from LIST",
        {"a": "1", "d/b": "2"},
        listed=("./a", "./d/b"),
        files_only=True,
    ),
    Case("--delete-src", SIMPLE, {}, "mv -r SRC DST", SIMPLE, left={}),
    Case("TestSyncForceUpdateDeleteDst", {"a": "1"}, {"b": "2"}, "sync SRC DST --delete -y", {"a": "1"}),
    Case("--force-update", {"a": "1"}, {"a": "2"}, "cp -r SRC DST", {"a": "1"}, older=("a",)),
    Case("--dry", SIMPLE, {}, "sync SRC DST --dry-run", {}),
]
