"""Expectations of users of rclone, s5cmd, juicefs and aws, as tables: trees before, a command, trees after.

Where Tradewind differs on purpose, the case says so, and docs/guides/coming-from.md explains it.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import FilePlace, Place, S3Place
from testbed.servers import Server
from tests.e2e.peers import aws, juicefs, rclone, s5cmd
from tests.e2e.peers.case import Case, Tree

OLD_S, SAME_S, NEW_S = 1_400_000_000, 1_500_000_000, 4_000_000_000
PEERS = {"rclone": rclone.CASES, "s5cmd": s5cmd.CASES, "juicefs": juicefs.CASES, "aws": aws.CASES}
#: The examples of aws mostly repeat what cases of the others say.
SLOW = {"aws"}
#: Ages of the objects in a bucket of the destination and of the source [s].
THERE_AGE_S, SOURCE_AGE_S = 40, 20
ALL = [
    pytest.param(case, id=f"{peer} {case.name}", marks=[pytest.mark.slow] if peer in SLOW else [])
    for peer, cases in PEERS.items()
    for case in cases
]


def write(place: Place, tree: Tree) -> None:
    """Write the tree. All files get the same time."""
    for key, text in tree.items():
        if isinstance(place, FilePlace) and key.endswith("/"):
            (place.folder / key).mkdir(parents=True)
            continue
        place.put(key, text.encode())
        if isinstance(place, FilePlace):
            os.utime(place.folder / key, (SAME_S, SAME_S))


def files(tree: Tree) -> Tree:
    """Return the tree without its empty directories."""
    return {name: text for name, text in tree.items() if not name.endswith("/")}


def read(place: Place) -> Tree:
    """Return the tree, without links. Empty directories of a folder are part of it."""
    if not isinstance(place, FilePlace):
        return {key: place.get(key).decode() for key in place.sizes()}
    found: Tree = {}
    for path in place.folder.rglob("*"):
        name = str(path.relative_to(place.folder))
        if path.is_symlink():
            continue
        if path.is_file():
            found[name] = path.read_text()
        elif not any(path.iterdir()):
            found[f"{name}/"] = ""
    return found


def after(case: Case, place: Place) -> Tree:
    """Return the tree that the command leaves at the destination. A store has only directories that were copied."""
    copied = {name: text for name, text in case.source.items() if name.endswith("/")}
    return case.after if isinstance(place, FilePlace) else {**files(case.after), **copied}


def change_source(place: FilePlace, case: Case) -> None:
    """Set the times of files that are older or newer than those at the destination, and make the links."""
    for names, time_s in ((case.older, OLD_S), (case.newer, NEW_S)):
        for name in names:
            os.utime(place.folder / name, (time_s, time_s))
    for name, target in case.links.items():
        path = place.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)


def words_of(case: Case, source: Place, there: Place, listed: Path) -> list[str]:
    """Return the command line, with the flags of the places in it."""
    listed.write_text("".join(f"{name}\n" for name in case.listed))
    words: list[str] = []
    flags: list[str] = []
    # All places of `rm` are in one store.
    sides = ["src"] if case.command.startswith("rm ") else ["src", "dst"]
    for word in shlex.split(case.command):
        named = next((place for name, place in (("SRC", source), ("DST", there)) if word.startswith(name)), None)
        if sides and (named is not None or word == "-"):
            side = sides.pop(0)
            flags += named.flags(side) if named is not None else []
        words.append(word.replace("SRC", source.url).replace("DST", there.url).replace("LIST", str(listed)))
    return [*words, *flags, *(["--json"] if case.copies is not None else [])]


def set_age(place: Place, age_s: int, request: pytest.FixtureRequest) -> None:
    """Make the objects of a bucket of versitygw, which are files, that old.

    versitygw states times in whole seconds. Two equal objects of one second may be a single one in a bucket of two
    names, so Tradewind refuses `mv`, or keeps the sources. The server's list of buckets proves nothing: with
    `--bucketlinks` it names one bucket twice (tests/e2e/test_places.py).
    """
    if isinstance(place, S3Place):
        server: Server = request.getfixturevalue("s3_server")
        written_s = time.time() - age_s
        for key in place.sizes():
            os.utime(server.folder / "data" / place.bucket / key, (written_s, written_s))


@pytest.mark.parametrize(
    "kinds",
    [
        ("file", "file"),
        *(
            pytest.param(kinds, marks=pytest.mark.slow)
            for kinds in [("file", "versitygw"), ("versitygw", "file"), ("versitygw", "versitygw")]
        ),
    ],
    ids="-".join,
)
@pytest.mark.parametrize("case", ALL)
def test_a_command_does_what_the_peers_users_expect(
    case: Case,
    kinds: tuple[str, str],
    place: Callable[[str], Place],
    command: Command,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    if case.files_only and kinds != ("file", "file"):
        pytest.skip("this case is about files")
    source, there = place(kinds[0]), place(kinds[1])
    write(there, case.before)
    write(source, case.source)
    set_age(there, THERE_AGE_S, request)
    set_age(source, SOURCE_AGE_S, request)
    if isinstance(source, FilePlace):
        change_source(source, case)
    words = words_of(case, source, there, tmp_path / "names")
    stdin = None if case.stdin is None else case.stdin.encode()
    done = command.run(*words, stdin=stdin).expect(case.code)
    assert read(there) == after(case, there)
    assert files(read(source)) == files(case.source if case.left is None else case.left)
    if case.prints is not None:
        printed = done.stdout.replace(there.url, "DST")
        assert tuple(printed.splitlines()) == case.prints
    if case.copies is not None:
        assert done.summary["progress"]["objects_done"] == case.copies
