"""The examples in the documentation of `aws s3`."""

from __future__ import annotations

from tests.e2e.peers.case import Case

TWO = {"test1.txt": "1", "test2.jpg": "2"}
BELOW = {"test1.txt": "1", "another/test1.txt": "2"}
GIT = {".git/config": "1", ".git/x/y": "2", "foo.txt": "3", "bar.txt": "4", "baz.jpg": "5"}
LOGS = {"test3.log": "1", "test/test.log": "2", "test/x.txt": "3"}

CASES = [
    Case("cp 1", {"test.txt": "1"}, {}, "cp SRC/test.txt DST/test2.txt", {"test2.txt": "1"}),
    Case("cp 3", {}, {"test.txt": "1"}, "cp DST/test.txt DST/test2.txt", {"test.txt": "1", "test2.txt": "1"}),
    Case("cp 5", {"test.txt": "1"}, {}, "cp SRC/test.txt DST/", {"test.txt": "1"}),
    Case("cp 6", TWO, {}, "cp SRC DST --recursive", TWO),
    Case("cp 7", TWO, {}, "cp SRC DST/ --recursive --exclude *.jpg", {"test1.txt": "1"}),
    Case("cp 8", BELOW, {}, "cp SRC/ DST/ --recursive --exclude another/*", {"test1.txt": "1"}),
    Case(
        "cp 8: only logs",
        LOGS,
        {},
        "cp SRC DST --recursive --exclude * --include *.log",
        {"test3.log": "1", "test/test.log": "2"},
    ),
    Case("cp 8: the order of rules", LOGS, {}, "cp SRC DST -r --include *.log --exclude *", {}, code=3),
    Case("cp 11", {}, {}, "cp - DST/stream.txt", {"stream.txt": "piped"}, stdin="piped"),
    Case("cp 13", {"s.txt": "piped\n"}, {}, "cp SRC/s.txt -", {}, prints=("piped",)),
    Case("mv 1", {"test.txt": "1"}, {}, "mv SRC/test.txt DST/test2.txt", {"test2.txt": "1"}, left={}),
    Case("mv 2", {}, {"test.txt": "1"}, "mv DST/test.txt DST/test2.txt", {"test2.txt": "1"}),
    Case("mv 4", {"test.txt": "1"}, {}, "mv SRC/test.txt DST/", {"test.txt": "1"}, left={}),
    Case("mv 5", TWO, {}, "mv SRC DST --recursive", TWO, left={}),
    Case("mv 6", TWO, {}, "mv SRC DST/ -r --exclude *.jpg", {"test1.txt": "1"}, left={"test2.jpg": "2"}),
    Case("mv 7", BELOW, {}, "mv SRC/ DST/ -r --exclude another/*", {"test1.txt": "1"}, left={"another/test1.txt": "2"}),
    Case("rm 1", {}, TWO, "rm DST/test2.jpg", {"test1.txt": "1"}),
    Case("rm 2", {}, TWO, "rm DST --recursive -y", {}),
    Case("rm 3", {}, TWO, "rm DST/ --recursive -y --exclude *.jpg", {"test2.jpg": "2"}),
    Case("rm 4", {}, BELOW, "rm DST/ --recursive -y --exclude another/*", {"another/test1.txt": "2"}),
    Case("sync 1", {"test.txt": "1", "test2.txt": "2"}, {}, "sync SRC DST", {"test.txt": "1", "test2.txt": "2"}),
    Case("sync 4", {"test.txt": "1"}, {"test3.txt": "3"}, "sync SRC DST --delete -y", {"test.txt": "1"}),
    Case(
        "sync 5",
        {"test.jpg": "longer", "test2.txt": "2"},
        {"test.jpg": "x"},
        "sync SRC DST --exclude *.jpg",
        {"test.jpg": "x", "test2.txt": "2"},
    ),
    Case(
        "sync 6",
        {"test1.txt": "1", "another/test5.txt": "5"},
        {"another/test2.txt": "2"},
        "sync SRC DST --exclude *another/*",
        {"test1.txt": "1", "another/test2.txt": "2"},
    ),
    Case(
        "filters: .git/*", GIT, {}, "cp SRC DST -r --exclude .git/*", {"foo.txt": "3", "bar.txt": "4", "baz.jpg": "5"}
    ),
    Case("filters: /ba*", GIT, {}, "cp SRC DST -r --exclude /ba* --exclude .git", {"foo.txt": "3"}),
    Case(
        "filters: two --include",
        GIT,
        {},
        "cp SRC DST -r --exclude * --include *.jpg --include f*",
        {"foo.txt": "3", "baz.jpg": "5"},
    ),
    Case(
        "ls 2",
        {},
        {"test.txt": "1", "p/test.txt": "2"},
        "ls DST",
        {"test.txt": "1", "p/test.txt": "2"},
        prints=("p/", "test.txt"),
    ),
    Case(
        "sync --delete keeps a directory whose name only begins like the destination's",
        {"a": "1"},
        {"foo/a": "1", "foo/b": "2", "foobar/b": "3"},
        "sync SRC DST/foo --delete -y",
        {"foo/a": "1", "foobar/b": "3"},
    ),
    Case("ls 3", {}, {"test.txt": "1"}, "ls DST/none", {"test.txt": "1"}, code=3, prints=()),
    Case(
        "ls 4",
        {},
        {"z.txt": "1", "foo/bar/.baz/a": "2", "a.txt": "3", "foo.zip": "4"},
        "ls DST --recursive",
        {"z.txt": "1", "foo/bar/.baz/a": "2", "a.txt": "3", "foo.zip": "4"},
        prints=("a.txt", "foo.zip", "foo/bar/.baz/a", "z.txt"),
    ),
]
