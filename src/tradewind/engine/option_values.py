"""Check the values of options that a program may pass by mistake: of another type, unknown, or out of range.

The command line parses its values, so only callers of the Python interface see these errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

from tradewind.errors import UsageError
from tradewind.model.job import (
    AttributeDirective,
    AttributeRules,
    Comparison,
    ObjectFilter,
    ObjectLock,
    Preserve,
    SourceTags,
    VerifyMode,
)
from tradewind.model.program import STORE_REQUESTS_MAX, TIMEOUT_S_MAX
from tradewind.model.store import Access, Lending

if TYPE_CHECKING:
    from tradewind.engine.request import Options

__all__ = ["check_values", "require_number", "require_type", "require_word"]

#: Ends of the names of options that state a unit.
UNITS = ("_bytes", "_s", "_usd", "_gb")

TYPES: Mapping[str, tuple[type, str]] = {
    "attributes": (AttributeRules, "AttributeRules"),
    "files_from": (str, "the path of a file, as text"),
    "filter": (ObjectFilter, "an ObjectFilter"),
    "object_lock": (ObjectLock, "an ObjectLock"),
    "preserve": (Preserve, "Preserve"),
    "report_file": (str, "the path of a file, as text"),
    "source": (Access, "Access"),
    "tags": (Mapping, "a dictionary"),
}
WORDS: Mapping[str, tuple[str, ...]] = {
    "compare": get_args(Comparison),
    "source_tags": get_args(SourceTags),
    "verify": get_args(VerifyMode),
}
#: Smallest and largest value of each option that is a whole number. None: no limit.
WHOLE_NUMBERS: Mapping[str, tuple[int, int | None]] = {
    "chunk_bytes": (1, None),
    "concurrency": (1, STORE_REQUESTS_MAX),
    "dedup_window_bytes": (1, None),
    "limit_bytes_per_s": (1, None),
    "max_bytes": (0, None),
    "max_delete": (0, None),
    "read_requests_start": (1, STORE_REQUESTS_MAX),
    "stall_s": (1, TIMEOUT_S_MAX),
    "store_work_s": (1, TIMEOUT_S_MAX),
    "write_requests_start": (1, STORE_REQUESTS_MAX),
}
NUMBERS: Mapping[str, tuple[float, float | None]] = {
    "duplicate_fraction_max": (0, 1),
    "max_cost_usd": (0, None),
    "max_usd_per_gb": (0, None),
}


def check_values(options: Options) -> None:
    """Raise UsageError for an option whose value has another type, is unknown, or is out of range."""
    for name, annotation in type(options).__annotations__.items():
        if annotation == "bool":
            require_type(name, getattr(options, name), bool, "True or False")
    for name, (kind, words) in TYPES.items():
        require_type(name, getattr(options, name), kind, words)
    destination = options.destination
    each = destination if isinstance(destination, tuple) else (destination,)
    for access in each:
        require_type("destination", access, Access, "Access, or a tuple with one for each destination")
    for name, choices in WORDS.items():
        require_word(name, getattr(options, name), choices)
    require_word("directive", options.attributes.directive, get_args(AttributeDirective))
    for access in (options.source, *each):
        require_word("lending", access.lending, get_args(Lending))
    for name, (least, most) in WHOLE_NUMBERS.items():
        require_number(name, getattr(options, name), least, most, whole=True)
    for name, (low, high) in NUMBERS.items():
        require_number(name, getattr(options, name), low, high)


def require_type(name: str, value: Any, kind: type, words: str) -> None:
    """Raise UsageError for a value that is neither of this type nor None."""
    if value is not None and not isinstance(value, kind):
        raise UsageError(f"{name} {value!r:.200}: must be {words}")


def require_word(name: str, value: Any, words: tuple[str, ...]) -> None:
    """Raise UsageError for a value that is neither one of the words nor None."""
    if value is not None and value not in words:
        raise UsageError(f"{name} {value!r}: must be {', '.join(words[:-1])} or {words[-1]}")


def require_number(name: str, value: Any, least: float, most: float | None, *, whole: bool = False) -> None:
    """Raise UsageError for a value that is neither a number in this range nor None."""
    if value is None:
        return
    is_number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if is_number and least <= value < float("inf") and (most is None or value <= most):
        return
    kind = "a whole number" if whole else "a number"
    bounds = f"{least:g} or more" if most is None else f"from {least:g} to {most:g}"
    raise UsageError(f"{name} {value!r}: must be {kind}, {bounds}", hint=_hint(name, value))


def _hint(name: str, value: Any) -> str | None:
    """Return the advice for text with a unit."""
    return "pass a number without a unit: the name has it" if isinstance(value, str) and name.endswith(UNITS) else None
