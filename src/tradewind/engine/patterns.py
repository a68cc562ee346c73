"""Wildcards in places: `s3://b/2024-*/x`.

A place is a pattern if its key has a `*` or a `?`, unless an object or a directory has exactly that name. In a pattern,
`*`, `?` and `[…]` match within a directory and `**` across directories; `[*]` is a literal star. The names of what
matches are relative to the fixed directory, the part before the first part with a wildcard.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from tradewind.errors import UsageError
from tradewind.model.document import to_document
from tradewind.model.job import NameGlob, ObjectFilter
from tradewind.model.records import dataclass, replace
from tradewind.model.store import StoreSpec
from tradewind.model.url import Location

if TYPE_CHECKING:
    from tradewind.fleet.given import GivenCredentials

__all__ = ["Existence", "Pattern", "fixed_folder", "gateway_existence", "is_all", "looks_like_pattern", "pattern_of"]

#: Characters that make a place a pattern. A bracket alone does not: it is common in names of files.
WILDCARDS = "*?"
#: A part with any of these belongs to the pattern, not to the fixed directory.
_IN_PATTERN = r"[*?\[]"
#: A class of more than one character, such as `[!a]`.
_SEVERAL = r"\[[^/\]][^/\]]+\]"

#: Returns whether an object has exactly this key, and whether there are objects below it. Raises TradewindError.
Existence = Callable[[StoreSpec, str], tuple[bool, bool]]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A place with wildcards: the fixed directory (its key is empty or ends in `/`), and the glob below it."""

    place: Location
    folder: Location
    glob: str

    def rules(self, rules: ObjectFilter, *, below: bool) -> ObjectFilter:
        """Return the rules limited to the pattern; with `below` also to all below directories that match.

        Raises UsageError for a pattern of directories without `below`.
        """
        if self.glob.endswith("/") and not below:
            raise UsageError(f"{self.place} matches only directories", hint="add -r to include their content")
        return replace(rules, within=NameGlob(self.glob, below))


def looks_like_pattern(place: Location) -> bool:
    """Return whether the place has wildcards. Something may have exactly this name all the same."""
    return place.kind not in ("mem", "pipe", "guest") and any(each in place.key for each in WILDCARDS)


def pattern_of(place: Location, store: Callable[[Location], StoreSpec], exists: Existence) -> Pattern | None:
    """Return the pattern that a place is; None if it has no wildcards, or if something has exactly this name.

    Reads the file system for a local path; else `exists` is asked once. Raises TradewindError.
    """
    if not looks_like_pattern(place):
        return None
    if place.kind == "file":
        if os.path.lexists(place.key):
            return None
    elif any(exists(store(place), place.key)):
        return None
    folder = fixed_folder(place)
    return None if folder is None else Pattern(place, folder, place.key[len(folder.key) :])


def fixed_folder(place: Location) -> Location | None:
    """Return the directory before the first part with a wildcard; None for a place that cannot be a pattern."""
    if not looks_like_pattern(place):
        return None
    parts = place.key.split("/")
    first = next(index for index, part in enumerate(parts) if re.search(_IN_PATTERN, part))
    return replace(place, key="".join(f"{part}/" for part in parts[:first]))


def is_all(glob: str) -> bool:
    """Return whether a glob consists of wildcards alone, so that it may match everything. `[*]` is a literal."""
    return not re.sub(_SEVERAL, "", glob).strip("*?/")


def gateway_existence(gateway: Callable[[], str], credentials: GivenCredentials | None = None) -> Existence:
    """Return a function that asks a store by a task of the gateway program, whose path `gateway` returns.

    With `credentials` it has these, and none of this machine.
    """

    def exists(store: StoreSpec, key: str) -> tuple[bool, bool]:
        from tradewind.fleet.given import surroundings
        from tradewind.gateway.task import answer_of_task

        task = {"task": "exists", "store": to_document(store), "key": key}
        with surroundings(credentials) as around:
            found = answer_of_task(gateway(), task, around)
        return bool(found["object"]), bool(found["folder"])

    return exists
