"""Cases of s5cmd's `e2e/cp_test.go`, `sync_test.go`, `rm_test.go`, `ls_test.go`, `du_test.go` and `cat_test.go`."""

from __future__ import annotations

from tests.e2e.peers.case import Case

KEYS = {"a.txt": "1", "b.log": "2", "d/c.txt": "3"}
NESTED = {"t.txt": "1", "a/readme.md": "2", "a/b/x.gz": "3", "b/y.txt": "4", "c/d/e/y.txt": "5"}
STARS = {"f*.txt": "1", "f*1.txt": "2", "fox.txt": "3"}
STAR_DIRS = {"abc*/f.txt": "1", "abc*/g.py": "2", "abcd/f.txt": "3"}
FILTERED = {"t.txt": "1", "readme.md": "2", "x.gz": "3", "a/f.txt": "4", "a/f.py": "5"}

COPY = [
    Case("TestCopySingleFileToS3: to a directory", KEYS, {}, "cp SRC/a.txt DST/", {"a.txt": "1"}),
    Case("TestCopySingleFileToS3: to a name", KEYS, {}, "cp SRC/a.txt DST/new", {"new": "1"}),
    Case("TestCopySingleFileToS3WithPrefix", KEYS, {}, "cp SRC/a.txt DST/p/", {"p/a.txt": "1"}),
    Case("TestCopySingleFileToS3 below a prefix", KEYS, {}, "cp SRC/a.txt DST/p/x.txt", {"p/x.txt": "1"}),
    Case("TestCopySingleS3ObjectToLocalWithDestinationWildcard: literal", KEYS, {}, "cp SRC/a.txt DST/*", {"*": "1"}),
    Case("TestCopyS3PrefixToLocalMustReturnError", KEYS, {}, "cp SRC/d/ DST/", {}, code=2),
    Case("TestCopyDirToS3", KEYS, {}, "cp -r SRC DST/up/", {f"up/{key}": text for key, text in KEYS.items()}),
    Case("TestCopyMultipleFilesToS3WithWildcard", KEYS, {}, "cp SRC/*.txt DST/", {"a.txt": "1"}),
    Case("TestCopyMultipleFilesToS3: no slash", KEYS, {}, "cp SRC/*.txt DST/p", {}, code=2),
    Case("TestCopyMultipleNestedS3ObjectsToLocal: **", NESTED, {}, "cp SRC/** DST/", NESTED),
    Case("TestCopyMultipleNestedS3ObjectsToLocal: -r *", NESTED, {}, "cp -r SRC/* DST/", NESTED),
    Case("TestCopyMultipleNestedS3ObjectsToLocalWithPartial: *", NESTED, {}, "cp SRC/*/*.txt DST/", {"b/y.txt": "4"}),
    Case(
        "TestCopyMultipleNestedS3ObjectsToLocalWithPartial: **",
        NESTED,
        {},
        "cp SRC/*/**.txt DST/",
        {"b/y.txt": "4", "c/d/e/y.txt": "5"},
    ),
    Case("TestCopyMultipleS3ObjectsToS3_Issue70", {"config/.local/f1": "1"}, {}, "cp -r SRC/config DST/x/", {"x/.local/f1": "1"}),
    Case("TestCopyWithNoMatch", KEYS, {}, "cp SRC/none* DST/", {}, code=3),
    Case("TestCopyS3ObjectsWithRawFlag: the name wins", STARS, {}, "cp SRC/f*.txt DST/", {"f*.txt": "1"}),
    Case(
        "TestCopyS3ObjectsWithRawFlag: a directory",
        STAR_DIRS,
        {},
        "cp -r SRC/abc* DST/",
        {"f.txt": "1", "g.py": "2"},
    ),
    Case("TestCopyWithExcludeFilter", FILTERED, {}, "cp -r SRC DST --exclude *.txt", {"readme.md": "2", "x.gz": "3", "a/f.py": "5"}),
    Case(
        "TestCopyWithExcludeFilters",
        FILTERED,
        {},
        "cp -r SRC DST --exclude *.txt --exclude *.gz",
        {"readme.md": "2", "a/f.py": "5"},
    ),
    Case("TestCopyWithExcludeFilters and a pattern", FILTERED, {}, "cp SRC/** DST/ --exclude a/", {"t.txt": "1", "readme.md": "2", "x.gz": "3"}),
    Case("TestCopyWithIncludeFilter", FILTERED, {}, "cp -r SRC DST --include *.txt", {"t.txt": "1", "a/f.txt": "4"}),
    Case(
        "TestCopyLocalFilesWithSymlinks: links are skipped",
        {"a/f": "CAFE"},
        {},
        "cp -r SRC DST",
        {"a/f": "CAFE"},
        links={"b/l": "../a/f"},
        files_only=True,
    ),
    Case(
        "TestCopyLocalFilesWithSymlinks",
        {"a/f": "CAFE"},
        {},
        "cp -r SRC DST --follow-symlinks",
        {"a/f": "CAFE", "b/l": "CAFE"},
        links={"b/l": "../a/f"},
        files_only=True,
    ),
]
SYNC = [
    Case("TestSyncSingleS3ObjectToLocalTwice: sync takes directories", KEYS, {}, "sync SRC/a.txt DST/", {}, code=2),
    Case("TestSyncLocalFolderToS3EmptyBucket", NESTED, {}, "sync SRC/ DST/", NESTED),
    Case(
        "TestSyncMultipleFilesWithWildcardedDirectory",
        {"parent/child1/name": "A", "parent/child2/name": "B", "parent/other": "C"},
        {},
        "sync SRC/parent/*/name DST/new/",
        {"new/child1/name": "A", "new/child2/name": "B"},
    ),
    Case("TestSyncS3BucketToEmptyFolder", NESTED, {}, "sync SRC/** DST/", NESTED),
    Case("TestSyncS3BucketToEmptyS3Bucket", KEYS, {}, "sync SRC/** DST/p/", {f"p/{key}": text for key, text in KEYS.items()}),
    Case(
        "TestSyncLocalFolderToS3BucketSourceNewer",
        {"a": "updated", "d/b": "NEW"},
        {"a": "old", "d/b": "old"},
        "sync SRC DST",
        {"a": "updated", "d/b": "NEW"},
        newer=("a", "d/b"),
    ),
    Case(
        "TestSyncS3BucketToS3BucketSizeOnly",
        {"a": "updated", "b": "NEW"},
        {"a": "old", "b": "old"},
        "sync SRC DST --compare size",
        {"a": "updated", "b": "old"},
    ),
    Case(
        "TestSyncS3BucketToLocalWithDelete",
        {"new": "1"},
        {"t.txt": "2", "dir/main.py": "3"},
        "sync SRC DST --delete -y",
        {"new": "1"},
    ),
    Case(
        "TestSyncS3BucketToS3BucketWithDelete",
        {"readme": "1", "dir/main": "2", "t.txt": "3"},
        {"main.md": "4", "dir/test": "5", "t.txt": "longer", "Makefile": "6"},
        "sync SRC DST --delete -y --compare size",
        {"readme": "1", "dir/main": "2", "t.txt": "3"},
    ),
    Case(
        "TestSyncS3toLocalWithWildcard: --delete keeps what the pattern does not match",
        {"test.txt": "updated", "readme.md": "x", "sub/sub.txt": "y", "test.py": "z"},
        {"test.py": "old", "test.txt": "old"},
        "sync SRC/**.txt DST/ --delete -y",
        {"test.txt": "updated", "sub/sub.txt": "y", "test.py": "old"},
    ),
    Case(
        "TestSyncS3ObjectsIntoAnotherBucketWithExcludeFilters",
        {"there": "1", "new": "2", "main.py": "3", "main/f": "4", "readme.md": "5"},
        {"p/there": "1"},
        "sync SRC DST/p --exclude main* --exclude *.md",
        {"p/there": "1", "p/new": "2"},
    ),
]
REMOVE = [
    Case("TestRemoveSingleS3Object", {}, KEYS, "rm DST/a.txt", {"b.log": "2", "d/c.txt": "3"}),
    Case("TestRemoveMultipleS3Objects: *", {}, KEYS, "rm DST/* -y", {"d/c.txt": "3"}),
    Case("TestRemoveMultipleS3Objects: **", {}, KEYS, "rm DST/** -y", {"d/": ""}),
    Case("TestRemoveMultipleS3ObjectsDryRun", {}, KEYS, "rm DST/** -y --dry-run", KEYS),
    Case("TestRemoveMultipleLocalFilesShouldNotFail", {}, KEYS, "rm DST/*.txt", {"b.log": "2", "d/c.txt": "3"}),
    Case("TestRemoveS3PrefixWithoutSlash: not found", {}, KEYS, "rm DST/prefix", KEYS, code=3),
    Case("TestRemoveLocalDirectory: needs -r", {}, KEYS, "rm DST/d", KEYS, code=3),
    Case("TestRemoveLocalDirectory", {}, KEYS, "rm -r DST/d", {"a.txt": "1", "b.log": "2", "d/": ""}),
    Case(
        "TestRemoveLocalDirectoryWithGlob: the name wins",
        {},
        STAR_DIRS,
        "rm -r DST/abc*",
        {"abc*/": "", "abcd/f.txt": "3"},
    ),
    Case(
        "TestRemoveLocalDirectoryWithGlob",
        {},
        {"abc/f": "1", "abcd/f": "2", "b/f": "3"},
        "rm -r DST/abc*",
        {"abc/": "", "abcd/": "", "b/f": "3"},
    ),
    Case("TestVariadicMultipleLocalFiles: one place", {}, KEYS, "rm DST/a.txt DST/b.log", KEYS, code=2),
    Case("TestRemoveS3ObjectRawFlag", {}, STARS, "rm DST/f*.txt", {"f*1.txt": "2", "fox.txt": "3"}),
    Case("TestRemoveS3ObjectsPrefixRawFlag", {}, STAR_DIRS, "rm DST/abc*/f.txt", {"abc*/g.py": "2", "abcd/f.txt": "3"}),
    Case("TestRemoveS3PrefixRawFlag", {}, STAR_DIRS, "rm DST/abc*", STAR_DIRS, code=3),
    Case(
        "TestRemoveMultipleS3ObjectsWithExcludeFilter",
        {},
        FILTERED,
        "rm DST/** -y --exclude *.txt",
        {"t.txt": "1", "a/f.txt": "4"},
    ),
    Case(
        "TestRemoveMultipleS3ObjectsWithExcludeFilters",
        {},
        FILTERED,
        "rm DST/** -y --exclude *.txt --exclude *.gz",
        {"t.txt": "1", "x.gz": "3", "a/f.txt": "4"},
    ),
    Case(
        "TestRemoveLocalFilesWithPrefixandExcludeFilters",
        {},
        {"d/1.txt": "1", "d/abc.txt": "2", "d/r.md": "3", "abc.txt": "4"},
        "rm DST/d/*.txt --exclude abc*",
        {"d/abc.txt": "2", "d/r.md": "3", "abc.txt": "4"},
    ),
    Case("TestRemoveNonexistingLocalFile", {}, KEYS, "rm DST/none", KEYS, code=3),
]
LIST = [
    Case("TestListSingleS3Object", {}, KEYS, "ls DST/a.txt", KEYS, prints=("a.txt",)),
    Case("TestListS3ObjectsAndFolders", {}, KEYS, "ls DST", KEYS, prints=("a.txt", "b.log", "d/")),
    Case("TestListS3ObjectsAndFoldersWithPrefix: a directory", {}, KEYS, "ls DST/d", KEYS, prints=("c.txt",)),
    Case("TestListS3ObjectsAndFoldersWithPrefix: not a part of a name", {}, KEYS, "ls DST/a", KEYS, code=3, prints=()),
    Case("TestListSingleWildcardS3Object", {}, KEYS, "ls DST/*.txt", KEYS, prints=("a.txt",)),
    Case(
        "TestListMultipleWildcardS3Object",
        {},
        {"a/t1.txt": "1", "b/t2.txt": "2", "c/t3.gz": "3", "d/e/t4.txt": "4", "d/e/x.txt": "5"},
        "ls DST/*/**t*.txt",
        {"a/t1.txt": "1", "b/t2.txt": "2", "c/t3.gz": "3", "d/e/t4.txt": "4", "d/e/x.txt": "5"},
        prints=("a/t1.txt", "b/t2.txt", "d/e/t4.txt"),
    ),
    Case("TestListNonexistingS3Object", {}, KEYS, "ls DST/none*", KEYS, code=3, prints=()),
    Case("TestListS3ObjectsWithExcludeFilter", {}, KEYS, "ls -r DST --exclude *.txt", KEYS, prints=("b.log",)),
    Case("TestDiskUsage", {}, KEYS, "du DST", KEYS),
    Case("TestCatS3Object", {}, {"a": "one\n", "b": "two\n"}, "cat DST/*", {"a": "one\n", "b": "two\n"}, prints=("one", "two")),
]
CASES = [*COPY, *SYNC, *REMOVE, *LIST]
