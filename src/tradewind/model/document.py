"""Dataclasses to JSON documents and back, by the types of their fields.

Jobs, programs and events are exchanged with gateways as such documents; plans, proposals and ledgers are kept as them.

| type | in the document |
|---|---|
| dataclass | an object with its fields, without those that are None by default |
| dataclass with a `TAG` (field, value) | the same, with that field |
| Region | `aws:us-east-1` |
| tuple, Sequence, Collection | a list |
| Mapping | an object if its keys are text or regions, else a list of pairs |
| union of several types | types with tags unchanged, otherwise the name of the type and the content |

A reader ignores unknown fields and accepts unknown values of a literal, as newer writers may add them. A field that
is missing or null has its default. Any other difference is a ValueError with the field's path:
`progress.hops[0].bytes is str, not int`.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from os import PathLike
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from tradewind.model.files import read_user_file
from tradewind.model.records import MISSING, dataclass, fields, is_dataclass
from tradewind.model.region import Region

__all__ = ["Codec", "Document", "parse_json", "read_json", "to_document"]

T = TypeVar("T")
#: Types of frequent annotations, which need not be evaluated for each field.
_BUILT_IN: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "None": NoneType,
    "str | None": str | None,
    "int | None": int | None,
    "float | None": float | None,
    "bool | None": bool | None,
    "tuple[str, ...]": tuple[str, ...],
}
_LISTS = (tuple, list, frozenset, set, Sequence, Collection)


def parse_json(text: str | bytes, *, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the value of a JSON text from outside. Raises ValueError, also if it is nested too deeply for Python."""
    try:
        return json.loads(text, object_pairs_hook=object_pairs_hook)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(
    path: str | PathLike[str], *, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Any:
    """Return the value of a JSON file that a user names; see `read_user_file`. Raises OSError and ValueError."""
    return parse_json(read_user_file(path), object_pairs_hook=object_pairs_hook)


def to_document(value: Any) -> Any:
    """Return the JSON document of a dataclass, or of a container of them."""
    if is_dataclass(value) and not isinstance(value, type):
        return _CODEC.encode(type(value), value)
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
        """Return the value of a document. Raises ValueError with the field's path."""
        return _CODEC.decode(cls, document)


@dataclass(frozen=True, slots=True)
class _Format:
    """Encoder and decoder of one type; `path` locates errors."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any, str], Any]


class Codec:
    """Encodes and decodes. `names` are types that modules import for type checkers alone."""

    def __init__(self, **names: Any) -> None:
        self._names = names
        self._formats: dict[Any, _Format] = {Region: _Format(str, _region)}

    def encode(self, kind: type[T], value: T) -> Any:
        """Return the document of a value. Raises TypeError for a type that has none."""
        return self._format(kind).encode(value)

    def decode(self, kind: type[T], document: Any) -> T:
        """Return the value of a document. Raises ValueError with the path of a field that is not of its type."""
        value: T = self._format(kind).decode(document, "")
        return value

    def _format(self, kind: Any) -> _Format:
        found = self._formats.get(kind)
        if found is None:
            found = self._formats[kind] = self._format_of(kind, get_origin(kind), get_args(kind))
        return found

    def _format_of(self, kind: Any, origin: Any, arguments: tuple[Any, ...]) -> _Format:
        if kind is Any:
            return _Format(_same, lambda content, _path: content)
        if kind in (str, int, bool, float, NoneType):
            return _Format(_same, lambda content, path: _required(kind, content, path))
        if origin is Literal:
            return self._format(type(arguments[0]))
        if origin in (Union, UnionType):
            return self._union([each for each in arguments if each is not NoneType])
        if origin is tuple and arguments[-1] is not Ellipsis:
            return _fixed([self._format(each) for each in arguments])
        if origin in _LISTS:
            return _listed(self._format(arguments[0]))
        if origin in (Mapping, dict):
            key, content = self._format(arguments[0]), self._format(arguments[1])
            return (_keyed if arguments[0] in (str, Region) else _paired)(key, content)
        if is_dataclass(kind):
            return self._dataclass(kind)
        raise TypeError(f"{kind} has no document")

    def _union(self, members: Sequence[Any]) -> _Format:
        """Return the format of an optional type, of types with tags, or of types named in the document."""
        one = self._format(members[0]) if len(members) == 1 else self._arms(members)
        return _Format(
            lambda value: None if value is None else one.encode(value),
            lambda content, path: None if content is None else one.decode(content, path),
        )

    def _arms(self, members: Sequence[Any]) -> _Format:
        tagged = all(hasattr(each, "TAG") for each in members)
        by_name = {each.TAG[1] if tagged else _name(each): each for each in members}

        def encode(value: Any) -> Any:
            name, kind = next(
                (name, kind) for name, kind in by_name.items() if isinstance(value, get_origin(kind) or kind)
            )
            content = self._format(kind).encode(value)
            return content if tagged else [name, content]

        def decode(document: Any, path: str) -> Any:
            if tagged:
                field = members[0].TAG[0]
                name, content = _required(dict, document, path).get(field), document
            else:
                field = "type"
                name, content = _members(document, 2, path)
            if not isinstance(name, str) or name not in by_name:
                raise ValueError(f"{path or 'the document'} has the unknown {field} {name!r:.40}")
            return self._format(by_name[name]).decode(content, path)

        return _Format(encode, decode)

    def _dataclass(self, kind: Any) -> _Format:
        tag = getattr(kind, "TAG", None)
        # Found on first use: most documents hold only some of the classes that their types name.
        members = functools.cache(lambda: self._members(kind))

        def encode(value: Any) -> Any:
            document = {} if tag is None else {tag[0]: tag[1]}
            for member in members():
                content = getattr(value, member.name)
                if content is not None or not member.is_none_by_default:
                    document[member.name] = member.format.encode(content)
            return document

        def decode(document: Any, path: str) -> Any:
            _required(dict, document, path)
            known = {}
            for member in members():
                content, inner = document.get(member.name), f"{path}.{member.name}" if path else member.name
                if content is not None or (member.name in document and member.is_optional):
                    known[member.name] = member.format.decode(content, inner)
                elif member.is_required:
                    if not member.is_optional:
                        raise ValueError(f"{inner} is missing")
                    known[member.name] = None
            return kind(**known)

        return _Format(encode, decode)

    def _members(self, kind: Any) -> list[_Member]:
        hints, missing = _hints(kind, self._names), MISSING
        return [
            _Member(
                field.name,
                self._format(hints[field.name]),
                is_required=field.default is missing and field.default_factory is missing,
                is_optional=hints[field.name] in (Any, NoneType) or NoneType in get_args(hints[field.name]),
                is_none_by_default=field.default in (None, missing) and field.default_factory is missing,
            )
            for field in fields(kind)
        ]


def _hints(kind: type, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the types of a dataclass's fields, as `typing.get_type_hints` does, in a quarter of its time.

    All annotations of the classes here are text, and have no further text in them.
    """
    hints: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        known = vars(sys.modules[each.__module__])
        for name, text in getattr(each, "__annotations__", {}).items():
            if text not in _BUILT_IN:
                hints[name] = eval(text, known, dict(names))
            else:
                hints[name] = _BUILT_IN[text]
    return hints


@dataclass(frozen=True, slots=True)
class _Member:
    """A field of a dataclass."""

    name: str
    format: _Format
    is_required: bool
    is_optional: bool
    is_none_by_default: bool


def _fixed(members: Sequence[_Format]) -> _Format:
    """Return the format of a tuple with a type for each position."""

    def decode(document: Any, path: str) -> Any:
        contents = enumerate(_members(document, len(members), path))
        return tuple(members[number].decode(content, f"{path}[{number}]") for number, content in contents)

    return _Format(lambda value: [member.encode(each) for member, each in zip(members, value, strict=True)], decode)


def _listed(member: _Format) -> _Format:
    """Return the format of any number of values of one type."""

    def decode(document: Any, path: str) -> Any:
        return tuple(member.decode(each, f"{path}[{number}]") for number, each in enumerate(_list(document, path)))

    return _Format(lambda value: [member.encode(each) for each in value], decode)


def _keyed(key: _Format, content: _Format) -> _Format:
    """Return the format of a mapping from text or regions: an object."""

    def decode(document: Any, path: str) -> Any:
        entries: Mapping[str, Any] = _required(dict, document, path)
        return {key.decode(name, path): content.decode(each, f"{path}.{name}") for name, each in entries.items()}

    return _Format(lambda value: {key.encode(name): content.encode(each) for name, each in value.items()}, decode)


def _paired(key: _Format, content: _Format) -> _Format:
    """Return the format of any other mapping: a list of pairs."""
    pairs = _listed(_fixed([key, content]))
    return _Format(lambda value: pairs.encode(value.items()), lambda document, path: dict(pairs.decode(document, path)))


def _name(kind: Any) -> str:
    return str((get_origin(kind) or kind).__name__)


def _same(value: Any) -> Any:
    return value


def _region(content: Any, path: str) -> Region:
    text = _required(str, content, path)
    try:
        return Region.parse(text)
    except ValueError as error:
        raise ValueError(f"{path or 'the document'}: {error}") from None


def _list(content: Any, path: str) -> Sequence[Any]:
    """Return a list, or a tuple from a caller that made the document itself."""
    return content if isinstance(content, tuple) else _required(list, content, path)


def _members(content: Any, count: int, path: str) -> Sequence[Any]:
    """Return a list of a known length. Raises ValueError for another."""
    if len(found := _list(content, path)) != count:
        raise ValueError(f"{path or 'the document'} has {len(found)} entries, not {count}")
    return found


def _required(kind: Callable[..., T], content: Any, path: str) -> T:
    """Return the content if it has the type. An integer counts as a float; a boolean is not a number.

    Raises ValueError.
    """
    accepted: Any = (int, float) if kind is float else kind
    if not isinstance(content, accepted) or isinstance(content, bool) != (kind is bool):
        name = getattr(kind, "__name__", "")
        raise ValueError(f"{path or 'the document'} is {type(content).__name__}, not {name}")
    return content  # type: ignore[no-any-return]


_CODEC = Codec()
