"""Several sources of one job, and lists of names (`--files-from`)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, BinaryIO

from tradewind.errors import JobUnreadable, UsageError
from tradewind.model.files import open_regular
from tradewind.model.job import Member, ObjectFilter, SeveralSelection
from tradewind.model.url import Location

__all__ = ["LIST_FILE", "STANDARD_INPUT", "keep_list", "list_path", "opened_list", "require_kept_list"]

#: Maximum sources of one job (`MEMBERS_MAX` of the gateway).
SOURCES_MAX = 10_000


def several_sources(
    starts: Sequence[Location], *, recursive: bool, object_filter: ObjectFilter
) -> tuple[Location, SeveralSelection]:
    """Return the place that contains all sources, and each source in it. Reads the file system only for local paths.
    Raises UsageError.
    """
    if len(starts) > SOURCES_MAX:
        raise UsageError(
            f"{len(starts):,} sources: the maximum is {SOURCES_MAX:,}",
            hint="copy their directory with -r, and select with --include",
        )
    first = starts[0]
    for start in starts:
        if start.kind in ("mem", "pipe"):
            raise UsageError(f"{start} cannot be one of several sources", hint="give it as the only source")
        if (start.kind, start.root) != (first.kind, first.root):
            raise UsageError(
                f"{first} and {start} are in different stores",
                hint="run one command per store, or name several destinations with --to",
            )
    if first.kind == "file":
        root, members = _of_files(starts, recursive)
        holder = Location("file", first.root, root)
    else:
        holder = Location(first.kind, first.root, "", endpoint=first.endpoint, region=first.region)
        members = [_of_bucket(start, recursive) for start in starts]
    _refuse_equal_names(starts, members)
    _refuse_nested(members)
    if object_filter != ObjectFilter() and not any(member.key.endswith("/") for member in members):
        raise UsageError("filters apply only to the objects of a directory", hint="add -r")
    return holder, SeveralSelection(tuple(members), object_filter)


def _of_bucket(start: Location, recursive: bool) -> Member:
    if not start.name:
        raise UsageError(f"{start} has no name", hint="give it as the only source")
    if not recursive and start.is_directory:
        raise UsageError(f"{start} is a directory", hint="add -r to include what is in it")
    return Member(start.key.rstrip("/") + "/" if recursive else start.key, start.name)


def _of_files(starts: Sequence[Location], recursive: bool) -> tuple[str, list[Member]]:
    """Return the directory that contains all sources, and each path in it. Links in the path of a directory are
    resolved.
    """
    paths = [_real_path(start, recursive) for start in starts]
    root = os.path.commonpath([os.path.dirname(path.rstrip("/")) for path in paths])
    cut = len(root.rstrip("/")) + 1
    return root, [Member(path[cut:], path.rstrip("/").rpartition("/")[2]) for path in paths]


def _real_path(start: Location, recursive: bool) -> str:
    """Return the path, with a trailing slash for a directory. The lead reports a missing source."""
    try:
        start.key.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{start.key!r}: the path must be UTF-8", hint="copy its directory with -r") from None
    try:
        is_directory = stat.S_ISDIR(os.stat(start.key).st_mode)
    except OSError:
        is_directory = start.is_directory
    if is_directory:
        if not recursive:
            raise UsageError(f"{start} is a directory", hint="add -r to include directories, too")
        path = os.path.realpath(start.key)
        if path == "/":
            raise UsageError("/ has no name", hint="give it as the only source")
        return path + "/"
    if start.is_directory:
        raise UsageError(f"{start} is a file, not a directory", hint="leave out the trailing slash")
    folder, _, name = start.key.rpartition("/")
    return os.path.join(os.path.realpath(folder or "/"), name)


def _refuse_equal_names(starts: Sequence[Location], members: Sequence[Member]) -> None:
    known: dict[str, Location] = {}
    for start, member in zip(starts, members, strict=True):
        other = known.setdefault(member.name, start)
        if other is not start:
            raise UsageError(
                f"{other} and {start} would both be called {member.name} at the destination",
                hint="copy them one by one, to different names",
            )


def _refuse_nested(members: Sequence[Member]) -> None:
    """Refuse a source below another: it would be copied twice. In byte order it follows the one that contains it."""
    for outer, inner in pairwise(sorted(member.key for member in members)):
        if outer.endswith("/") and inner.startswith(outer):
            raise UsageError(f"the source {inner} is within the source {outer}", hint="name only one of them")


#: Name of the copy in the job's folder.
LIST_FILE = "names"
#: Path that means standard input.
STANDARD_INPUT = "-"
_BUFFER_BYTES = 1 << 20


@contextmanager
def opened_list(path: str | None) -> Iterator[BinaryIO | None]:
    """Yield the open list; None without a list. Waits for the writer of a pipe. Raises UsageError."""
    if path is None:
        yield None
        return
    with _open(path) as file:
        yield file


def list_path(folder: str) -> str:
    """Return the path of the copy of a list in a job's folder."""
    return os.path.join(folder, LIST_FILE)


def keep_list(names: BinaryIO, folder: str) -> dict[str, Any]:
    """Copy an open list to a job's folder, byte by byte, readable only by its owner. Return what `require_kept_list`
    compares the copy with.

    Raises:
        UsageError: the list cannot be read.
        OSError: the copy cannot be written.
    """
    from hashlib import sha256

    digest = sha256()
    descriptor = os.open(list_path(folder), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as copy:
        while part := _read(names):
            copy.write(part)
            digest.update(part)
        copy.flush()
        os.fsync(descriptor)  # The job's record survives a power loss, so its list must, too.
    return {"sha256": digest.hexdigest()}


def require_kept_list(folder: str, kept: Mapping[str, Any] | None) -> None:
    """Raise JobUnreadable if the copy of a list in a job's folder is not the one that `keep_list` wrote.

    A job would end as done without the names that it lacks. `kept` is None for a job of an older version, whose list is
    not checked.
    """
    from hashlib import sha256

    if kept is None:
        return
    path, digest = list_path(folder), sha256()
    try:
        with open(open_regular(path), "rb") as copy:
            while part := copy.read(_BUFFER_BYTES):
                digest.update(part)
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from None
    if digest.hexdigest() != kept.get("sha256"):
        raise _damaged(path, "it is not the list with which the job began")


def _damaged(path: str, why: str) -> JobUnreadable:
    return JobUnreadable(f"{path} is unreadable: {why}", hint="start the transfer again with the same list")


def _open(path: str) -> BinaryIO:
    try:
        return open(0, "rb", closefd=False) if path == STANDARD_INPUT else open(path, "rb")
    except OSError as error:
        raise _unreadable(path, error) from None


def _read(names: BinaryIO) -> bytes:
    try:
        return names.read(_BUFFER_BYTES)
    except OSError as error:
        raise _unreadable(str(names.name), error) from None


def _unreadable(path: str, error: OSError) -> UsageError:
    return UsageError(
        f"--files-from {path}: {error.strerror}", hint="name a file with one key per line, or - for standard input"
    )
