"""Tasks that delete versions of objects and delete markers."""

from __future__ import annotations

from typing import Any, NoReturn

from tradewind.engine.patterns import Pattern
from tradewind.engine.store_places import directory_place, object_place
from tradewind.engine.tasks import become, find_gateway, parse_place
from tradewind.errors import UsageError
from tradewind.model.document import to_document
from tradewind.model.job import ObjectFilter
from tradewind.model.records import dataclass
from tradewind.model.store import Access

__all__ = ["VersionCount", "become_version_deletion", "count_versions"]


@dataclass(frozen=True, slots=True)
class VersionCount:
    """The versions and delete markers that a deletion would delete, and the bytes of the versions."""

    versions: int
    markers: int
    size_bytes: int


def count_versions(
    gateway: str | None, url: str, access: Access, rules: ObjectFilter, pattern: Pattern | None, *, recursive: bool
) -> VersionCount:
    """Count the versions of one object, below a directory, or of what matches `pattern`.

    Raises UsageError, GatewayError, and the errors of the store.
    """
    from tradewind.gateway.task import answer_of_task

    task = {"task": "count_versions", **_chosen(url, access, rules, pattern, recursive=recursive)}
    return VersionCount(**answer_of_task(gateway or find_gateway(), task))


def become_version_deletion(
    gateway: str | None,
    url: str,
    access: Access,
    rules: ObjectFilter,
    pattern: Pattern | None,
    *,
    recursive: bool,
    dry_run: bool,
    allow_empty: bool,
    as_json: bool,
    mute: bool,
) -> NoReturn:
    """Delete the versions that `count_versions` counts, for good. Raises UsageError, GatewayError."""
    chosen = _chosen(url, access, rules, pattern, recursive=recursive)
    options = {"dry_run": dry_run, "json": as_json, "allow_empty": allow_empty, "versions": True}
    become(gateway, {"task": "rm", **chosen, **options}, mute=mute, quiet=mute)


def _chosen(
    url: str, access: Access, rules: ObjectFilter, pattern: Pattern | None, *, recursive: bool
) -> dict[str, Any]:
    """Return the fields of a task that say which versions. Raises UsageError."""
    if pattern is not None:
        rules = pattern.rules(rules, below=recursive)
        recursive, (store, key) = True, directory_place(pattern.folder, access)
    elif not recursive and rules != ObjectFilter():
        raise UsageError("filters apply only to the objects of a directory", hint="add -r")
    else:
        store, key = (directory_place if recursive else object_place)(parse_place(url), access)
    return {"store": to_document(store), "key": key, "recursive": recursive, "filter": to_document(rules)}
