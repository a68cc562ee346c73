"""Dataclasses to JSON documents of the contract, and back.

Fields that are None are left out, as the contract requires. A class with a `TAG` (field, value) is one arm of a tagged
union.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

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


class Document:
    """A dataclass that can be read from a document."""

    __slots__ = ()

    @classmethod
    def from_document(cls: type[T], document: Any) -> T:
        """Read the document. Raises ValueError with the field's path: `progress.hops[0].bytes is str, not int`.

        A reader tolerates what a newer writer adds: fields that the class lacks are ignored. A field that is missing or
        null has its default.
        """
        return cast(T, _read(cls, document, ""))


def _read(kind: Any, content: Any, path: str) -> Any:
    """Read a value of a type: a dataclass, a tagged union of them, a tuple, a mapping, an optional or a plain value."""
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(kind, content, path)
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        if content is None:
            return None
        arms = [arm for arm in get_args(kind) if arm is not NoneType]
        return _read(arms[0] if len(arms) == 1 else _arm(arms, content, path), content, path)
    if origin is tuple:
        if not isinstance(content, tuple):
            _require(content, list, path)
        inner = get_args(kind)[0]
        return tuple(_read(inner, entry, f"{path}[{number}]") for number, entry in enumerate(content))
    if origin is Mapping:
        _require(content, dict, path)
        inner = get_args(kind)[1]
        return {key: _read(inner, entry, f"{path}.{key}") for key, entry in content.items()}
    if kind is not Any:
        # The value of a literal is not checked: a newer writer may know more of them.
        _require(content, str if origin is Literal else kind, path)
    return content


def _read_dataclass(cls: Any, content: Any, path: str) -> Any:
    _require(content, dict, path)
    known = {}
    for name, kind, is_required in _fields(cls):
        inner = f"{path}.{name}" if path else name
        if content.get(name) is not None:
            known[name] = _read(kind, content[name], inner)
        elif is_required:
            if get_origin(kind) not in (Union, UnionType):
                raise ValueError(f"{inner} is missing")
            known[name] = None
    return cls(**known)


@functools.cache
def _fields(cls: Any) -> tuple[tuple[str, Any, bool], ...]:
    """Name, type, and whether there is no default, of each field of a dataclass."""
    kinds, missing = get_type_hints(cls), dataclasses.MISSING
    return tuple(
        (field.name, kinds[field.name], field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(cls)
    )


def _arm(arms: Sequence[Any], content: Any, path: str) -> Any:
    """Return the class of a tagged union whose tag the document has. Raises ValueError for an unknown one."""
    _require(content, dict, path)
    for arm in arms:
        name, tag = arm.TAG
        if content.get(name) == tag:
            return arm
    name = arms[0].TAG[0]
    raise ValueError(f"{path} has the unknown {name} {content.get(name)!r}")


def _require(content: object, kind: type, path: str) -> None:
    """Raise ValueError unless the content is of a type. A whole number is a float, and a truth value is no number."""
    if not isinstance(content, (int, float) if kind is float else kind) or isinstance(content, bool) != (kind is bool):
        where = path or "the document"
        raise ValueError(f"{where} is {type(content).__name__}, not {kind.__name__}")
