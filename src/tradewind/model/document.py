"""Dataclasses to JSON documents of the contract, and back.

Fields that are None are left out, as the contract requires. A class with a `TAG` (field, value) is one arm of a tagged
union.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def parse_json(text: str | bytes, *, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the value of a JSON text from outside. Raises ValueError, also for nesting that Python cannot follow."""
    try:
        return json.loads(text, object_pairs_hook=object_pairs_hook)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def to_document(value: Any) -> Any:
    """The JSON document of a dataclass, or of a container of them."""
    if dataclasses.is_dataclass(value):
        document: dict[str, Any] = {}
        tag = getattr(value, "TAG", None)
        if tag is not None:
            document[tag[0]] = tag[1]
        for field in dataclasses.fields(value):
            content = getattr(value, field.name)
            if content is not None:
                document[field.name] = to_document(content)
        return document
    if isinstance(value, Mapping):
        return {key: to_document(content) for key, content in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_document(content) for content in value]
    return value


def known_fields(cls: type[T], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of `document` that are fields of `cls`: a reader tolerates what a newer writer adds.

    Raises ValueError if a number stands where the class has none, or the other way round.
    """
    known = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if field.name in document:
            known[field.name] = document[field.name]
            if isinstance(field.default, (bool, int, float)):
                _check_number(field.name, field.default, document[field.name])
    return known


def _check_number(name: str, default: bool | int | float, content: object) -> None:
    kind = (int, float) if type(default) is float else type(default)
    if not isinstance(content, kind) or isinstance(content, bool) != isinstance(default, bool):
        raise ValueError(f"{name} is {type(content).__name__}, not {type(default).__name__}")
