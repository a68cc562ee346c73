"""Canonical JSON (RFC 8785): one sequence of bytes for each document, so that it can be signed."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

__all__ = ["canonical_json"]

#: ECMAScript writes numbers of at least the first, or below the second, with an exponent.
EXPONENT_FROM = 21
EXPONENT_BELOW = -6


def canonical_json(document: Any) -> bytes:
    """Return a JSON document without spaces, with sorted members, and numbers as ECMAScript writes them, in UTF-8.

    Raises ValueError for numbers that are not finite, and for text that is not Unicode.
    """
    return _text(document).encode()


def _text(value: Any) -> str:
    if isinstance(value, dict):
        ordered = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be"))
        return "{" + ",".join(f"{_text(name)}:{_text(member)}" for name, member in ordered) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, float):
        return _number(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _number(value: float) -> str:
    """Return the shortest decimal of a number in the form of ECMA-262, section 6.1.6.1.20."""
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"{value} is not a JSON number")
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text, point = "".join(map(str, digits)), len(digits) + exponent
    if len(text) <= point <= EXPONENT_FROM:
        plain = text + "0" * (point - len(text))
    elif 0 < point <= EXPONENT_FROM:
        plain = f"{text[:point]}.{text[point:]}"
    elif EXPONENT_BELOW < point <= 0:
        plain = f"0.{'0' * -point}{text}"
    else:
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        plain = f"{text[0]}{fraction}e{point - 1:+d}"
    return f"-{plain}" if sign else plain
