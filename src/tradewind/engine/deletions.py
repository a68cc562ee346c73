"""Tasks that delete objects: one place, several places, or the names of a list.

With one place the task replaces this process. Several places are checked before the first one is deleted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from tradewind.engine.patterns import Pattern, fixed_folder, is_all
from tradewind.engine.sources import opened_list
from tradewind.engine.store_places import directory_place, object_place
from tradewind.engine.tasks import become, find_gateway, parse_place, refuse_file
from tradewind.errors import SomeObjectsFailed, SourceNotFound, TransferError, Unavailable, UsageError
from tradewind.model.document import to_document
from tradewind.model.job import ObjectFilter
from tradewind.model.records import dataclass
from tradewind.model.store import Access

__all__ = ["ObjectRemoval", "check_deletion", "names_of_list", "refuse_link", "whole_store"]

#: Maximum length of the names in one task, in bytes of JSON. A task has at most 16 MiB.
NAMES_BYTES_MAX = 12 << 20
#: Maximum number of names in a list, as for `cp --files-from`.
NAMES_MAX = 4_000_000


@dataclass(frozen=True, slots=True)
class ObjectRemoval:
    """Options of all deletions of one command. `mute` discards their output, but not their errors."""

    gateway: str | None
    access: Access
    rules: ObjectFilter
    recursive: bool
    dry_run: bool
    allow_empty: bool
    as_json: bool
    mute: bool

    def of_places(self, places: Sequence[tuple[str, Pattern | None]]) -> int:
        """Delete places, each with the pattern that `find_pattern` returned for it. Return the exit code.

        A place that does not exist does not keep the others. Raises UsageError before anything is deleted,
        GatewayError.
        """
        if len(places) == 1:
            become(self.gateway, self._task(*places[0]), mute=self.mute, quiet=self.mute)
        named = [url for url, pattern in places if pattern is None and not self.recursive]
        others = [(url, pattern) for url, pattern in places if pattern is not None or self.recursive]
        return self._run([*self._named_tasks(named), *(self._task(*each) for each in others)])

    def of_names(self, names: Sequence[str], folder: str | None) -> int:
        """Delete the objects with these names: keys below `folder`, or URLs. Wildcards in them have no meaning.

        Return the exit code. Raises UsageError, SourceNotFound for an empty list, GatewayError.
        """
        if not names and not self.allow_empty:
            raise SourceNotFound("the list has no names", hint="pass --allow-empty if that is expected")
        if self.rules != ObjectFilter():
            raise UsageError("filters do not apply to a list of names", hint="leave out the filters or --files-from")
        if folder is None:
            return self._run(list(self._named_tasks(names)))
        place = parse_place(folder)
        store, prefix = directory_place(place, self.access)
        if place.kind == "file":
            names = _directories_last([name for name in map(_file_name, names) if name])
        return self._run(list(self._tasks_of_keys(to_document(store), prefix, list(dict.fromkeys(names)))))

    def _task(self, url: str, pattern: Pattern | None) -> dict[str, Any]:
        """Return the task that deletes one place."""
        rules, recursive = self.rules, self.recursive
        if pattern is not None:
            rules = pattern.rules(rules, below=recursive)
            recursive, (store, key) = True, directory_place(pattern.folder, self.access)
        elif not recursive and rules != ObjectFilter():
            raise UsageError("filters apply only to the objects of a directory", hint="add -r")
        else:
            place = parse_place(url)
            if recursive:
                refuse_file(place, f"to delete one file: tradewind rm {place.key}")
            store, key = (directory_place if recursive else object_place)(place, self.access)
        chosen = {"store": to_document(store), "key": key, "recursive": recursive, "filter": to_document(rules)}
        return self._with_options(chosen)

    def _named_tasks(self, urls: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield tasks that delete the objects with these URLs, grouped by store."""
        if urls and self.rules != ObjectFilter():
            raise UsageError("filters apply only to the objects of a directory", hint="add -r")
        stores: dict[str, tuple[Any, list[str]]] = {}
        for url in dict.fromkeys(urls):
            store, key = object_place(parse_place(url), self.access)
            stores.setdefault(repr(store), (to_document(store), []))[1].append(key)
        for document, keys in stores.values():
            yield from self._tasks_of_keys(document, "", keys)

    def _tasks_of_keys(self, store: Any, prefix: str, keys: Sequence[str]) -> Iterator[dict[str, Any]]:
        for number, part in enumerate(_parts(keys, NAMES_BYTES_MAX)):
            chosen = {"store": store, "key": prefix, "keys": part, "recursive": False}
            yield self._with_options({**chosen, **({"continues_list": True} if number else {})})

    def _with_options(self, chosen: dict[str, Any]) -> dict[str, Any]:
        options = {"dry_run": self.dry_run, "json": self.as_json, "allow_empty": self.allow_empty}
        return {"task": "rm", **chosen, **options}

    def _run(self, tasks: Sequence[dict[str, Any]]) -> int:
        from tradewind.gateway.task import run_task

        binary = self.gateway or find_gateway()
        return combined([run_task(binary, task, mute=self.mute, quiet=self.mute) for task in tasks])


def combined(codes: Sequence[int]) -> int:
    """Return the exit code of several deletions: the one they share, 5 if a retry may help, 4 if some objects are
    deleted, else 1.
    """
    kinds = set(codes)
    if len(kinds) <= 1:
        return kinds.pop() if kinds else 0
    if kinds == {0, Unavailable.exit_code}:
        return Unavailable.exit_code
    if kinds & {0, SomeObjectsFailed.exit_code, Unavailable.exit_code}:
        return SomeObjectsFailed.exit_code
    return TransferError.exit_code


def _parts(names: Sequence[str], bytes_max: int) -> Iterator[list[str]]:
    """Yield the names in groups of at most `bytes_max` bytes of JSON, and at least one name."""
    part: list[str] = []
    left = bytes_max
    for name in names:
        size = len(json.dumps(name)) + len(", ")
        if part and size > left:
            yield part
            part, left = [], bytes_max
        part.append(name)
        left -= size
    if part:
        yield part


def _file_name(line: str) -> str:
    """Return the name in a line of a list of files, which may begin with `./`, as `find .` prints it."""
    while line.startswith("./"):
        line = line[2:].lstrip("/")
    return "" if line == "." else line


def _directories_last(names: Sequence[str]) -> list[str]:
    """Return the names with the directories at the end, each one after those in it: only empty ones can be deleted."""
    directories = sorted((name for name in names if name.endswith("/")), reverse=True)
    return [*(name for name in names if not name.endswith("/")), *directories]


def names_of_list(path: str) -> list[str]:
    """Return the names of a list, `-` for standard input: one per line, without empty lines. Raises UsageError."""
    with opened_list(path) as file:
        assert file is not None, "a path was given"
        names = []
        for number, line in enumerate(file, 1):
            try:
                name = line.decode().removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError:
                raise UsageError(f"--files-from {path}: line {number} is not UTF-8") from None
            if name:
                names.append(name)
            if len(names) > NAMES_MAX:
                raise UsageError(f"--files-from {path}: more than {NAMES_MAX:,} names", hint="split the list")
    return names


def check_deletion(url: str, state_dir: str | None, pattern: Pattern | None) -> None:
    """Refuse to delete through a symbolic link, or what holds the state folder. Raises UsageError.

    A link may lead anywhere, and a user who removes it seldom means its target. Filters make no difference: a user who
    deletes around the state folder can name the folders beside it.
    """
    from tradewind.engine.own_files import refuse_deletion_of_state
    from tradewind.model.files import state_home

    place = parse_place(url)
    if place.kind != "file":
        return
    state = state_home(state_dir)
    if pattern is not None:
        place = pattern.folder  # What a pattern matches is below its fixed directory.
    if os.path.islink(place.key):
        raise UsageError(
            f"{url} is a symbolic link", hint=f"to delete what is in the directory that it leads to, write {url}/"
        )
    refuse_deletion_of_state(place.key, state)


def refuse_link(url: str) -> None:
    """Refuse to delete a symbolic link, or what it leads to. Raises UsageError."""
    place = parse_place(url)
    if place.kind == "file" and os.path.islink(place.key):
        raise UsageError(
            f"{url} is a symbolic link, and rm deletes only files", hint=f"`unlink {url}` removes the link"
        )


def whole_store(url: str) -> str | None:
    """Return a name for the whole store that a recursive deletion would empty: `the whole of s3://bucket`; else None.

    A bare bucket is often a prefix that a script left empty; filters do not make it safer. A pattern of
    wildcards alone, such as `s3://b/*`, counts as the whole.
    """
    place = parse_place(url)
    if (fixed := fixed_folder(place)) is not None and is_all(place.key[len(fixed.key) :]):
        place = fixed
    if (place.key if place.kind != "file" else os.path.realpath(place.key)) not in ("", "/"):
        return None
    return "everything on this machine" if place.kind == "file" else f"the whole of {place.root}"
