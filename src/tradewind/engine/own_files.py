"""Protects files that a job must not touch: its own report, and Tradewind's state and configuration.

Places are compared by device and inode, of a path and of all directories above it, so that links, bind mounts of a
directory and other spellings make no difference. A path that does not exist yet is compared by its name, with links
resolved.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

from tradewind.errors import UsageError
from tradewind.model.files import STATE_ENTRIES, config_folder
from tradewind.model.job import JobSpec, ListSelection, ObjectSelection, PrefixSelection
from tradewind.model.records import dataclass
from tradewind.model.store import StoreSpec
from tradewind.model.url import as_typed

__all__ = ["refuse_deletion_of_state", "refuse_own_files"]

#: Names of files that this process has open already: the gateway would open its own.
_OPEN_FILES = ("/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")


@dataclass(frozen=True, slots=True)
class _Local:
    """A file, or a directory with everything below it, that a job reads or writes."""

    path: str
    is_tree: bool

    def holds(self, path: str) -> bool:
        """Return whether the path is this file, this directory, or inside it."""
        return _lies_in(path, self.path) if self.is_tree else _is_same(path, self.path)


def refuse_own_files(spec: JobSpec, state_dir: str) -> None:
    """Refuse a report inside the job's places, and places where the job could change Tradewind's own files.

    Raises:
        UsageError: one line that names both, and a hint.
    """
    sources = list(_sources(spec))
    targets = [place for target in spec.targets for place in _targets(spec, target.store, target.key)]
    if spec.report_file is not None:
        _refuse_report(spec.report_file, [*sources, *targets])
    losing = [*(sources if spec.delete_source else ()), *(targets if spec.delete is not None else ())]
    for place in losing:
        if place.is_tree:
            refuse_deletion_of_state(place.path, state_dir, by_job=True)


def refuse_deletion_of_state(folder: str, state_dir: str, *, by_job: bool = False) -> None:
    """Refuse to delete from a folder that contains the state folder or the configuration, or is part of the state.

    A job creates the state folder if it is missing, and works in it. So with `by_job` the state folder is refused even
    if it does not exist yet, and folders in it are refused too.

    Raises:
        UsageError: one line that names both, and a hint.
    """
    own = [state_dir, *(os.path.join(state_dir, entry) for entry in sorted(STATE_ENTRIES))]
    kept = [path for path in own if by_job or os.path.isdir(path)]
    if any(_lies_in(path, folder) for path in kept) or (by_job and _lies_in(folder, state_dir)):
        raise UsageError(
            f"{folder}: the state folder {state_dir} is in it and would be deleted with all jobs",
            hint="name the other folders one by one, or set TRADEWIND_STATE_DIR to a folder elsewhere",
        )
    configuration = config_folder()
    if os.path.isdir(configuration) and _lies_in(configuration, folder):
        raise UsageError(
            f"{folder}: the folder of the configuration, {configuration}, is in it and would be deleted",
            hint="name the other folders one by one",
        )


def _refuse_report(report: str, places: Sequence[_Local]) -> None:
    for place in places:
        if place.holds(report):
            what = "lies in" if place.is_tree else "is"
            raise UsageError(
                f"--report {report}: it {what} {place.path}, which the job reads or writes",
                hint="write the report to a file outside the source and the destinations",
            )
    if report == os.devnull:
        return
    if not os.path.isdir(folder := os.path.dirname(report)):
        raise UsageError(f"--report {report}: no directory {folder}", hint="create the directory, or choose another")
    try:
        found = os.stat(report)
    except OSError:
        return  # The lead makes it, or reports why it cannot.
    if not stat.S_ISREG(found.st_mode) or report.startswith(_OPEN_FILES):
        raise UsageError(f"--report {report}: not a regular file", hint="--json writes verdicts to standard output")
    if found.st_nlink > 1:
        raise UsageError(
            f"--report {report}: this file has other hard links, which would be overwritten too",
            hint="choose a new file",
        )


def _sources(spec: JobSpec) -> Iterator[_Local]:
    selection = spec.selection
    if isinstance(selection, ObjectSelection):
        yield from _local(spec.source, selection.key, is_tree=False)
    elif isinstance(selection, (PrefixSelection, ListSelection)):
        yield from _local(spec.source, selection.prefix, is_tree=True)
    else:
        for member in selection.members:
            yield from _local(spec.source, member.key, is_tree=member.key.endswith("/"))


def _targets(spec: JobSpec, store: StoreSpec, key: str) -> Iterator[_Local]:
    selection = spec.selection
    if isinstance(selection, ObjectSelection):
        yield from _local(store, key, is_tree=False)
    elif isinstance(selection, (PrefixSelection, ListSelection)):
        yield from _local(store, key, is_tree=True)
    else:
        for member in selection.members:
            yield from _local(store, key + member.name, is_tree=member.key.endswith("/"))


def _local(store: StoreSpec, key: str, *, is_tree: bool) -> Iterator[_Local]:
    if store.url.startswith("file://"):
        yield _Local(os.path.join(as_typed(store.url), key), is_tree)


def _lies_in(path: str, folder: str) -> bool:
    """Return whether the path is the folder or inside it."""
    path = os.path.realpath(path)
    while not _is_same(path, folder):
        parent = os.path.dirname(path)
        if parent == path:
            return False
        path = parent
    return True


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)
