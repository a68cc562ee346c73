"""Sums of columns that fit into 63 bits while their sum may not: SQLite answers such a sum with an error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Integer, func, literal_column

__all__ = ["exact_sums", "sum_parts"]

#: Bits of the lower part of a number. Even the sum of 2^31 upper parts fits into 63 bits.
LOW_BITS = 32
LOW_MASK = (1 << LOW_BITS) - 1
#: Literals, because PostgreSQL shifts a BIGINT only by an INTEGER.
_SHIFT, _MASK = literal_column(str(LOW_BITS), Integer), literal_column(str(LOW_MASK), BigInteger)


def sum_parts(*columns: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    """Return two expressions for the sum of each column: of its upper bits, and of its lower ones."""
    return [
        func.coalesce(func.sum(part), 0)
        for column in columns
        for part in (column.op(">>")(_SHIFT), column.op("&")(_MASK))
    ]


def exact_sums(row: Iterable[Any]) -> list[int]:
    """Return the sum of each column, in the row of an answer with its parts."""
    parts = list(map(int, row))
    return [(high << LOW_BITS) + low for high, low in zip(parts[::2], parts[1::2], strict=True)]
