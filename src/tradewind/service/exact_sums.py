"""Sums of columns that fit into 63 bits while their sum may not: SQLite answers such a sum with an error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, func

__all__ = ["exact_sums", "sum_parts"]

#: Bits of the lower part of a number. Even the sum of 2^31 upper parts fits into 63 bits.
LOW_BITS = 32
LOW_MASK = (1 << LOW_BITS) - 1


def sum_parts(*columns: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    """Return two expressions for the sum of each column: of its upper bits, and of its lower ones."""
    return [
        func.coalesce(func.sum(part), 0)
        for column in columns
        for part in (column.op(">>")(LOW_BITS), column.op("&")(LOW_MASK))
    ]


def exact_sums(row: Iterable[Any]) -> list[int]:
    """Return the sum of each column, in the row of an answer with its parts."""
    parts = list(map(int, row))
    return [(high << LOW_BITS) + low for high, low in zip(parts[::2], parts[1::2], strict=True)]
