"""Checks of the values of rows. SQLite does not notice damaged bytes of a file: it returns what they now mean."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tradewind.errors import StateError
from tradewind.state.database import TROUBLE

__all__ = ["checked", "damaged"]

#: Largest number in any row: the largest integer of SQLite. Jobs may move exabytes.
NUMBER_MAX = 2**63 - 1
#: The end of the year 9999 [Unix s]: later times cannot be shown.
UNIX_S_MAX = 253_402_300_799.0


def checked(values: Sequence[Any], kinds: str) -> tuple[Any, ...]:
    """Return values if each is of its kind. Raises ValueError.

    `t` is text, `p` a number of at least 0, `s` a time [Unix s], `m` a time [Unix ms]. A capital letter also allows
    None.
    """
    for number, (value, kind) in enumerate(zip(values, kinds, strict=True), 1):
        if not _is_of_kind(value, kind):
            raise ValueError(f"value {number} of {len(kinds)} is damaged")
    return tuple(values)


@contextmanager
def damaged(what: str) -> Iterator[None]:
    """Raise StateError if a value within the block cannot be read. `what` has it, such as `the record of fleet f1`."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise StateError(f"{what} is damaged: {error}", hint=f"restore it from a copy: {TROUBLE}") from error


def _is_of_kind(value: Any, kind: str) -> bool:
    if value is None:
        return kind.isupper()
    kind = kind.lower()
    if kind == "t":
        return isinstance(value, str)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return False
    most = {"s": UNIX_S_MAX, "m": 1000 * UNIX_S_MAX}.get(kind, NUMBER_MAX)
    return 0 <= value <= most
