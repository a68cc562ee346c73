"""Dataclasses to JSON documents and back, exactly, by the types of their fields.

It keeps what a program may read again: plans, the requests behind them, catalogs. (The contract between Python and the
gateway has other rules: see `model.document`.) A reader ignores fields that it does not know, and takes the default of
one that is missing; any other difference is a ValueError.

| type | in the document |
|---|---|
| dataclass | an object with all its fields |
| Region | `aws:us-east-1` |
| tuple, Sequence, Collection | a list |
| Mapping | an object if its keys are text or regions, else a list of pairs |
| union of several types | the name of the type, and the content |
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from tradewind.model.region import Region

__all__ = ["Codec"]

T = TypeVar("T")
_Convert = Callable[[Any], Any]
_LISTS = (tuple, list, frozenset, set, Sequence, Collection)


class Codec:
    """Encodes and decodes. `names` are types that modules import for type checkers alone."""

    def __init__(self, **names: Any) -> None:
        self._names = names
        #: By type: how it is encoded, and decoded.
        self._known: dict[Any, tuple[_Convert, _Convert]] = {Region: (str, _region)}

    def encode(self, kind: type[T], value: T) -> Any:
        """Return the document of a value. Raises TypeError for a type that has none."""
        return self._of(kind)[0](value)

    def decode(self, kind: type[T], document: Any) -> T:
        """Return the value of a document. Raises ValueError if it is not one of this type."""
        try:
            value: T = self._of(kind)[1](document)
        except (KeyError, TypeError, AttributeError, LookupError) as error:
            raise ValueError(f"{kind.__name__}: {type(error).__name__} {error}") from None
        return value

    def _of(self, kind: Any) -> tuple[_Convert, _Convert]:
        found = self._known.get(kind)
        if found is None:
            found = self._known[kind] = self._made(kind)
        return found

    def _made(self, kind: Any) -> tuple[_Convert, _Convert]:
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if kind is Any:
            return _same, _same
        if kind in (str, int, bool, float, type(None)):
            return _same, lambda document: _scalar(kind, document)
        if origin is typing.Literal:
            return _same, lambda document: _choice(arguments, document)
        if origin in (typing.Union, types.UnionType):
            return self._union(arguments)
        if origin is tuple and arguments[-1] is not Ellipsis:
            return self._fixed([self._of(each) for each in arguments])
        if origin in _LISTS:
            encode, decode = self._of(arguments[0])
            return lambda value: [encode(each) for each in value], lambda document: tuple(map(decode, _list(document)))
        if origin in (Mapping, dict):
            return self._mapping(*arguments)
        if dataclasses.is_dataclass(kind):
            return self._dataclass(kind)
        raise TypeError(f"{kind} has no document")

    def _fixed(self, members: Sequence[tuple[_Convert, _Convert]]) -> tuple[_Convert, _Convert]:
        def encode(value: Any) -> Any:
            return [member[0](each) for member, each in zip(members, value, strict=True)]

        def decode(document: Any) -> Any:
            return tuple(member[1](each) for member, each in zip(members, _list(document), strict=True))

        return encode, decode

    def _union(self, arguments: Sequence[Any]) -> tuple[_Convert, _Convert]:
        """One type, or none, is written as it is; otherwise its name is written too."""
        members = [each for each in arguments if each is not type(None)]
        if len(members) == 1:
            encode, decode = self._of(members[0])
            return (
                lambda value: None if value is None else encode(value),
                lambda document: None if document is None else decode(document),
            )
        by_name = {_name(each): (typing.get_origin(each) or each, each) for each in arguments}

        def encode_one(value: Any) -> Any:
            name, kind = next((name, kind) for name, (test, kind) in by_name.items() if isinstance(value, test))
            return [name, self._of(kind)[0](value)]

        def decode_one(document: Any) -> Any:
            name, content = _list(document)
            return self._of(by_name[name][1])[1](content)

        return encode_one, decode_one

    def _mapping(self, key: Any, content: Any) -> tuple[_Convert, _Convert]:
        (encode_key, decode_key), (encode, decode) = self._of(key), self._of(content)
        if key in (str, Region):
            return (
                lambda value: {encode_key(name): encode(each) for name, each in value.items()},
                lambda document: {decode_key(name): decode(each) for name, each in _object(document).items()},
            )
        return (
            lambda value: [[encode_key(name), encode(each)] for name, each in value.items()],
            lambda document: {decode_key(name): decode(each) for name, each in _list(document)},
        )

    def _dataclass(self, kind: Any) -> tuple[_Convert, _Convert]:
        hints = typing.get_type_hints(kind, localns=self._names)
        members = {field.name: self._of(hints[field.name]) for field in dataclasses.fields(kind)}

        def encode(value: Any) -> Any:
            return {name: member[0](getattr(value, name)) for name, member in members.items()}

        def decode(document: Any) -> Any:
            there = _object(document)
            return kind(**{name: member[1](there[name]) for name, member in members.items() if name in there})

        return encode, decode


def _name(kind: Any) -> str:
    return str((typing.get_origin(kind) or kind).__name__)


def _same(value: Any) -> Any:
    return value


def _region(document: Any) -> Region:
    return Region.parse(_scalar(str, document))


def _scalar(kind: type, document: Any) -> Any:
    accepted = (int, float) if kind is float else kind
    if not isinstance(document, accepted) or (isinstance(document, bool) and kind is not bool):
        raise ValueError(f"{document!r:.40} is not {kind.__name__}")
    return document


def _choice(choices: Sequence[Any], document: Any) -> Any:
    if document not in choices:
        raise ValueError(f"{document!r:.40} is not one of {', '.join(map(str, choices))}")
    return document


def _list(document: Any) -> list[Any]:
    if not isinstance(document, list):
        raise ValueError(f"{document!r:.40} is not a list")
    return document


def _object(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise ValueError(f"{document!r:.40} is not an object")
    return document
