"""Cases of rclone's `fs/sync/sync_test.go`, with their names there."""

from __future__ import annotations

from tests.e2e.peers.case import Case

DASHES = "-" * 60
SAME = {"a": "one", "d/b": "two"}
HELLO = {"sub dir/hello world": "hello world"}
EMPTY = {**HELLO, "dir2/": ""}
MOVED = {"potato2": DASHES, "empty space": "-", "potato3": f"{DASHES} UPDATED"}

COPY = [
    Case("TestCopy", HELLO, {}, "cp -r SRC DST", HELLO),
    Case("TestCopyWithDryRun", HELLO, {}, "cp -r SRC DST --dry-run", {}),
    Case("TestCopyMissingDirectory", {}, {}, "cp -r SRC/none DST", {}, code=3),
    Case("TestCopyWithDepth: a pattern", {**HELLO, "world2": "2"}, {}, "cp SRC/* DST/", {"world2": "2"}),
    Case(
        "TestCopyWithFilesFrom: a name that does not exist fails",
        {"potato2": "hello", "world2": "other"},
        {},
        "cp -r SRC DST --files-from LIST",
        {"potato2": "hello"},
        code=4,
        listed=("potato2", "notfound"),
    ),
    Case("TestCopyEmptyDirectories", EMPTY, {}, "cp -r SRC DST", EMPTY),
    Case("TestSyncEmptyDirectories", EMPTY, {}, "sync SRC DST", EMPTY),
    Case("TestMoveEmptyDirectories", EMPTY, {}, "mv -r SRC DST", EMPTY, left={}),
    Case("TestCopyAfterDelete: an empty source is refused", {}, HELLO, "cp -r SRC DST", HELLO, code=3),
    Case("TestCopyAfterDelete", {}, HELLO, "cp -r SRC DST --allow-empty", HELLO),
    Case("TestCopyRedownload", HELLO, HELLO, "sync SRC DST", HELLO),
    Case("TestCopyDeleteBefore", {"b": "in"}, {"a": "kept"}, "cp -r SRC DST", {"a": "kept", "b": "in"}),
    Case("TestSyncIgnoreTimes: cp copies all", SAME, SAME, "cp -r SRC DST", SAME, copies=2),
    Case("TestMaxTransfer", {"1": DASHES, "2": DASHES}, {}, "cp -r SRC DST --max-bytes 30B", {}, code=8),
]
COPY += [
    Case("TestCopyOverSelf", {"a": "hello again"}, {"a": "hello"}, "cp -r SRC DST", {"a": "hello again"}, newer=("a",)),
    Case("TestSyncIgnoreExisting", {"a": "new", "b": "1"}, {"a": "old"}, "cp -r -n SRC DST", {"a": "old", "b": "1"}),
    Case("TestNothingToTransferWithEmptyDirs", EMPTY, EMPTY, "sync SRC DST", EMPTY, files_only=True, copies=0),
]
COMPARE = [
    Case("TestSyncBasedOnCheckSum", {"a": "x"}, {"a": "x"}, "sync SRC DST --compare checksum", {"a": "x"}),
    Case(
        "TestSyncSizeOnly",
        {"a": "POTATO"},
        {"a": "potato"},
        "sync SRC DST --compare size",
        {"a": "potato"},
        newer=("a",),
        copies=0,
    ),
    Case("TestSyncAfterChangingModtimeOnly", {"a": "-"}, {"a": "-"}, "sync SRC DST", {"a": "-"}, newer=("a",)),
    Case(
        "TestSyncAfterChangingModtimeOnly: --dry-run",
        {"a": "x"},
        {"a": "-"},
        "sync SRC DST --dry-run",
        {"a": "-"},
        newer=("a",),
    ),
    Case("TestSyncDoesntUpdateModtime", {"foo": "foo"}, {"foo": "bar"}, "sync SRC DST", {"foo": "foo"}, newer=("foo",)),
    Case("TestSyncAfterAddingAFile", SAME, {"a": "one"}, "sync SRC DST", SAME),
    Case("TestSyncAfterChangingFilesSizeOnly", {"a": "longer"}, {"a": "x"}, "sync SRC DST", {"a": "longer"}),
    Case(
        "TestSyncAfterChangingContentsOnly: an older source",
        {"a": "NEW"},
        {"a": "old"},
        "sync SRC DST",
        {"a": "NEW"},
        older=("a",),
        files_only=True,
    ),
    Case("TestSyncUTFNorm: names are bytes", {"é": "1"}, {"e\u0301": "2"}, "sync SRC DST", {"é": "1", "e\u0301": "2"}),
    Case(
        "TestSyncIgnoreCase: names are bytes",
        {"existing": "1"},
        {"EXISTING": "1"},
        "sync SRC DST",
        {"existing": "1", "EXISTING": "1"},
    ),
]
DELETE = [
    Case(
        "TestSyncAfterRemovingAFileAndAddingAFileDryRun",
        {"potato2": DASHES, "empty space": "-"},
        {"potato": "small", "empty space": "-"},
        "sync SRC DST --delete --dry-run",
        {"potato": "small", "empty space": "-"},
    ),
    Case(
        "TestSyncAfterRemovingAFileAndAddingAFile",
        {"potato2": DASHES, "empty space": "-"},
        {"potato": "small", "empty space": "-"},
        "sync SRC DST --delete -y",
        {"potato2": DASHES, "empty space": "-"},
    ),
    Case(
        "TestSyncAfterRemovingAFileAndAddingAFileSubDir",
        {"a/potato2": DASHES, "c/non empty space": "AhHa!"},
        {"b/potato": "small", "c/non empty space": "AhHa!", "d/e/": ""},
        "sync SRC DST --delete -y",
        {"a/potato2": DASHES, "c/non empty space": "AhHa!"},
    ),
    Case(
        "TestSyncWithExclude",
        {"potato2": "-", "enormous": DASHES},
        {"x": "extra"},
        "sync SRC DST --delete -y --max-size 40B",
        {"potato2": "-"},
    ),
    Case(
        "TestSyncWithExclude: the other direction",
        {"potato2": "-"},
        {"potato2": "-", "enormous": DASHES},
        "sync SRC DST --delete -y --max-size 40B",
        {"potato2": "-", "enormous": DASHES},
    ),
    Case(
        "TestSyncWithExclude by name",
        {"a": "one", "skip": "new"},
        {"skip": "old!", "x": "extra"},
        "sync SRC DST --delete -y --exclude skip",
        {"a": "one", "skip": "old!"},
    ),
    Case(
        "TestSyncWithTrackRenames: copied and deleted",
        {"potato": "content", "yaml": "yam"},
        {"potato": "content", "yam": "yam"},
        "sync SRC DST --delete -y",
        {"potato": "content", "yaml": "yam"},
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
]
MOVE = [
    Case(
        "TestMoveOverSelf",
        {"a": "hello again"},
        {"a": "hello"},
        "mv -r SRC DST",
        {"a": "hello again"},
        newer=("a",),
        left={},
    ),
    Case(
        "TestMoveWithIgnoreExisting: what is skipped stays",
        {"existing": "new", "b": "1"},
        {"existing": "old"},
        "mv -r -n SRC DST",
        {"existing": "old", "b": "1"},
        left={"existing": "new"},
    ),
    Case(
        "TestSyncOverlapWithFilter: refused also with filters",
        SAME,
        {},
        "sync SRC SRC/below --exclude below",
        {},
        code=2,
    ),
    Case(
        "TestServerSideMove",
        MOVED,
        {"empty space": "-", "potato3": DASHES},
        "mv -r SRC DST",
        MOVED,
        left={},
    ),
    Case(
        "TestServerSideMove to a new place",
        MOVED,
        {},
        "mv -r SRC DST/new",
        {f"new/{k}": v for k, v in MOVED.items()},
        left={},
    ),
    Case(
        "TestServerSideMoveWithFilter",
        MOVED,
        {},
        "mv -r SRC DST --min-size 40B",
        {"potato2": DASHES, "potato3": f"{DASHES} UPDATED"},
        left={"empty space": "-"},
    ),
    Case(
        "TestMoveWithoutDeleteEmptySrcDirs",
        {**HELLO, "nested/sub dir/file": "nested"},
        {},
        "mv -r SRC DST",
        {**HELLO, "nested/sub dir/file": "nested"},
        left={},
    ),
    Case("TestServerSideMoveOverlap", SAME, {}, "mv -r SRC SRC/below", {}, code=2),
    Case("TestSyncOverlap: below the source", SAME, {}, "sync SRC SRC/below", {}, code=2),
    Case("TestSyncOverlap: above the source", SAME, {}, "sync SRC/d SRC", {}, code=2),
    Case("TestSyncOverlap: the source itself", SAME, {}, "sync SRC SRC", {}, code=2),
]
CASES = [*COPY, *COMPARE, *DELETE, *MOVE]
