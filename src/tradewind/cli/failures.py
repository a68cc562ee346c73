"""Report failed objects in few lines: of many objects with the same failure, name the first and count the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tradewind.model.event import ObjectFailed
from tradewind.model.records import dataclass, field
from tradewind.model.units import format_count

#: Maximum number of objects that are named for one failure. The report names all.
NAMED_OF_A_PATTERN_MAX = 3
#: Maximum number of distinct failures. Further ones are only counted; the report names them.
PATTERNS_MAX = 50
#: Kinds of failures that may affect a whole store. They are shown at the end, when the number of objects is known.
STORE_WIDE = frozenset({"bucket_not_found", "unauthenticated", "forbidden", "configuration", "customer_key"})

_VARYING = r"request \S+|\d+"


@dataclass(slots=True)
class _Group:
    kind: str
    #: The message without the object's name.
    words: str
    count: int = 0
    first_message: str = ""
    waiting: list[ObjectFailed] = field(default_factory=list)


class Failures:
    """Collects failed objects, and decides when to show which lines. With `hold` all lines are shown at the end."""

    def __init__(self, *, hold: bool = False) -> None:
        self._hold = hold
        self._groups: dict[tuple[str, str], _Group] = {}
        self._further = 0
        #: Messages and hints of the failures that have been shown.
        self._shown: set[tuple[str, str | None]] = set()

    def add(self, failed: ObjectFailed) -> list[str]:
        """Add a failed object; return the lines to show now."""
        words = _without_object(failed)
        key = (failed.kind, re.sub(_VARYING, "#", words))
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= PATTERNS_MAX:
                self._further += 1
                return []
            group = self._groups[key] = _Group(failed.kind, words, first_message=failed.message)
        group.count += 1
        if group.count > NAMED_OF_A_PATTERN_MAX:
            return []
        if self._hold or failed.kind in STORE_WIDE:
            group.waiting.append(failed)
            return []
        self._shown.add((failed.message, failed.hint))
        return _lines(failed)

    def has_shown(self, message: str | None, hint: str | None) -> bool:
        """Return whether a failed object was shown with this message and hint."""
        return message is not None and (message, hint) in self._shown

    def end(self, final_message: str | None) -> list[str]:
        """Return the remaining lines, except failures that `final_message` already contains."""
        return list(self._end(final_message or ""))

    def _end(self, final_message: str) -> Iterator[str]:
        for group in self._groups.values():
            if group.first_message in final_message:
                continue
            for failed in group.waiting:
                yield from _lines(failed)
            if group.count > NAMED_OF_A_PATTERN_MAX:
                yield f"error: {format_count(group.count - NAMED_OF_A_PATTERN_MAX, 'object')} more: {group.words}"
        if self._further:
            further = format_count(self._further, "object")
            yield f"error: {further} failed for other reasons: --report FILE lists them all"
        self._groups.clear()
        self._further = 0


def _without_object(failed: ObjectFailed) -> str:
    words = failed.message
    for place in (failed.source, failed.destination):
        if place:
            words = words.replace(place, "…")
    return words


def _lines(failed: ObjectFailed) -> list[str]:
    place = failed.source or failed.destination
    is_named = f"{place}: " in failed.message
    lines = [f"error: {failed.message}" if is_named else f"error: {place}: {failed.message}"]
    if failed.hint:
        lines.append(f"hint: {failed.hint}")
    return lines
