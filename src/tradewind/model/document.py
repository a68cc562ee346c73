"""Dataclasses to JSON documents of the contract, and back.

What is None is left out, as the contract wants it. A class with a `TAG` (field, value) is one arm of a tagged union.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


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
    """The entries of `document` that are fields of `cls`: a reader tolerates what a newer writer adds."""
    names = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    return {key: content for key, content in document.items() if key in names}
