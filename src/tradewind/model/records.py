"""Dataclasses that cost little to declare.

`dataclasses.dataclass` compiles up to six methods of each class when it is declared, half a millisecond of CPU time on
Python 3.11. A `cp` declares over a hundred classes and makes instances of half of them, so this was a third of its CPU
time (docs/decisions/0023-records.md). The decorator here declares the same classes, for the options that Tradewind
uses, and compiles a method when it is first called. Type checkers see the standard library's.

The standard library's functions (`fields`, `asdict`, `is_dataclass`, …) accept these classes, too. Importing them costs
7 ms, so modules that each command loads use those of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["MISSING", "dataclass", "field", "fields", "is_dataclass", "replace"]

Class = TypeVar("Class", bound=type)
T = TypeVar("T")
MISSING: Any = type("MISSING", (), {})()
"""The default of a field that has none."""
_COMPARISONS = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
INTERPRETED_CALLS_MAX = 8
"""Calls of an `__init__` before it is compiled. Compiling one takes as long as 20 calls without; a `cp` makes one or
two instances of most of its classes."""
_FIELDS = "__record_fields__"
"""Attribute of a class with its fields by name, those of its bases first."""


class Field:
    """One field of a class."""

    __slots__ = ("annotation", "compare", "default", "default_factory", "kw_only", "name", "repr")

    def __init__(self, default: Any, default_factory: Any, repr: bool, compare: bool) -> None:
        self.name, self.annotation, self.kw_only = "", "", False
        self.default, self.default_factory, self.repr, self.compare = default, default_factory, repr, compare


def _field(*, default: Any = MISSING, default_factory: Any = MISSING, repr: bool = True, compare: bool = True) -> Any:
    """Describe a field; see `dataclasses.field`."""
    return Field(default, default_factory, repr, compare)


def _dataclass(
    kind: type | None = None,
    *,
    frozen: bool = False,
    slots: bool = False,
    eq: bool = True,
    order: bool = False,
    repr: bool = True,
    kw_only: bool = False,
) -> Any:
    """Add the methods of a dataclass to a class; see `dataclasses.dataclass`."""

    def declare(kind: Class) -> Class:
        own = _own_fields(kind, kw_only)
        inherited = _inherited_fields(kind)
        if slots:
            kind = _with_slots(kind, own, tuple(name for name in own if name not in inherited))
        known: dict[str, Field] = inherited | own
        setattr(kind, _FIELDS, known)
        _set_unless_own(kind, "__match_args__", tuple(name for name, each in known.items() if not each.kw_only))
        _set_unless_own(kind, "__dataclass_fields__", _StandardFields())
        _interpret_first_calls(kind, known, frozen)
        if repr:
            _set_unless_own(kind, "__repr__", _repr)
        if eq:
            _add_comparisons(kind, known, frozen, order)
        if frozen:
            _freeze(kind, known)
            if slots:
                _set_unless_own(kind, "__getstate__", _get_state)
                _set_unless_own(kind, "__setstate__", _set_state)
        return kind

    return declare if kind is None else declare(kind)


def _fields(kind: Any) -> tuple[Field, ...]:
    """Return the fields of a class or of an instance."""
    return tuple(getattr(kind, _FIELDS).values())


def _is_dataclass(value: Any) -> bool:
    """Return whether a value is a class of this module, or an instance of one."""
    return hasattr(value, _FIELDS)


def _replace(instance: T, /, **changes: Any) -> T:
    """Return a copy with some fields changed; see `dataclasses.replace`."""
    for name in getattr(instance, _FIELDS):
        if name not in changes:
            changes[name] = getattr(instance, name)
    return type(instance)(**changes)


def _own_fields(kind: type, kw_only: bool) -> dict[str, Field]:
    """Return the fields that the class itself declares, and leave only their defaults as its attributes."""
    own = {}
    for name, annotation in kind.__annotations__.items():
        if str(annotation).startswith(("ClassVar", "typing.ClassVar")):
            continue
        given = kind.__dict__.get(name, MISSING)
        each = given if isinstance(given, Field) else Field(given, MISSING, True, True)
        each.name, each.annotation, each.kw_only = name, annotation, kw_only
        own[name] = each
        if each is given:
            if each.default is MISSING:
                delattr(kind, name)
            else:
                setattr(kind, name, each.default)
    return own


def _inherited_fields(kind: type) -> dict[str, Field]:
    return {name: each for base in reversed(kind.__mro__[1:]) for name, each in base.__dict__.get(_FIELDS, {}).items()}


def _with_slots(kind: Class, own: Mapping[str, Field], slots: tuple[str, ...]) -> Class:
    """Return the class made again with slots, which no class can be given later, and without its fields' defaults."""
    without = {"__dict__", "__weakref__", *own}
    namespace = {name: content for name, content in kind.__dict__.items() if name not in without}
    made: Class = type(kind)(kind.__name__, kind.__bases__, namespace | {"__slots__": slots})
    made.__qualname__ = kind.__qualname__
    return made


def _set_unless_own(kind: type, name: str, content: Any) -> None:
    if name not in kind.__dict__:
        setattr(kind, name, content)


def _write_on_first_call(kind: type, name: str, write: Callable[[], Callable[..., Any]]) -> None:
    """Add a method that replaces itself by the one that `write` returns."""

    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        written = write()
        setattr(kind, name, written)
        return written(self, *arguments, **named)

    method.__name__, method.__qualname__ = name, f"{kind.__qualname__}.{name}"
    setattr(kind, name, method)


def _interpret_first_calls(kind: type, known: Mapping[str, Field], frozen: bool) -> None:
    """Add an `__init__` that needs no compilation, and writes the real one after INTERPRETED_CALLS_MAX calls, or for a
    call with wrong arguments, which raises its error.
    """
    calls = 0

    def method(self: Any, *arguments: Any, **named: Any) -> None:
        nonlocal calls
        calls += 1
        by_position = (name for name, each in known.items() if not each.kw_only)
        values = dict(zip(by_position, arguments, strict=False)) | named
        is_right = len(values) == len(arguments) + len(named) and values.keys() <= known.keys()
        if calls > INTERPRETED_CALLS_MAX or not is_right or not _complete(values, known):
            kind.__init__ = written = _init(kind, known, frozen)  # type: ignore[misc]
            written(self, *arguments, **named)
            return
        put: Callable[[Any, str, Any], None] = object.__setattr__ if frozen else setattr
        for name in known:
            put(self, name, values[name])
        if hasattr(kind, "__post_init__"):
            self.__post_init__()

    method.__name__, method.__qualname__ = "__init__", f"{kind.__qualname__}.__init__"
    kind.__init__ = method  # type: ignore[misc]


def _complete(values: dict[str, Any], known: Mapping[str, Field]) -> bool:
    """Add the defaults of the fields without a value, and return whether all have one."""
    for name, each in known.items():
        if name not in values:
            if each.default is not MISSING:
                values[name] = each.default
            elif each.default_factory is not MISSING:
                values[name] = each.default_factory()
            else:
                return False
    return True


def _add_comparisons(kind: type, known: Mapping[str, Field], frozen: bool, order: bool) -> None:
    compared = [name for name, each in known.items() if each.compare]
    own_eq, own_hash = "__eq__" in kind.__dict__, kind.__dict__.get("__hash__")
    if not own_eq:
        _write_on_first_call(kind, "__eq__", partial(_comparison, kind, "__eq__", "==", compared))
    if own_hash is None:
        if frozen:
            _write_on_first_call(kind, "__hash__", partial(_hash, kind, compared))
        else:
            kind.__hash__ = None  # type: ignore[assignment]
    for name, operator in _COMPARISONS.items() if order else ():
        _write_on_first_call(kind, name, partial(_comparison, kind, name, operator, compared))


def _freeze(kind: Any, known: Mapping[str, Field]) -> None:
    """Let instances refuse changes, as those of the standard library do: attributes of subclasses are theirs."""

    def refuse(self: Any, name: str, verb: str) -> None:
        if type(self) is kind or name in known:
            from dataclasses import FrozenInstanceError

            raise FrozenInstanceError(f"cannot {verb} field {name!r}")

    def set_attribute(self: Any, name: str, value: Any) -> None:
        refuse(self, name, "assign to")
        super(kind, self).__setattr__(name, value)

    def delete_attribute(self: Any, name: str) -> None:
        refuse(self, name, "delete")
        super(kind, self).__delattr__(name)

    kind.__setattr__, kind.__delattr__ = set_attribute, delete_attribute


def _init(kind: type, known: Mapping[str, Field], frozen: bool) -> Callable[..., None]:
    """Write `__init__`. A default is passed by the name `default_` and the field's, a factory likewise."""
    values: dict[str, Any] = {"set_": object.__setattr__, "missing_": MISSING}
    parameters: dict[bool, list[str]] = {False: [], True: []}
    body = []
    for name, each in known.items():
        parameter, value = name, name
        if each.default is not MISSING:
            values[f"default_{name}"] = each.default
            parameter = f"{name}=default_{name}"
        elif each.default_factory is not MISSING:
            values[f"factory_{name}"] = each.default_factory
            parameter, value = f"{name}=missing_", f"factory_{name}() if {name} is missing_ else {name}"
        parameters[each.kw_only].append(parameter)
        body.append(f"set_(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(kind, "__post_init__"):
        body.append("self.__post_init__()")
    by_name = ["*", *parameters[True]] if parameters[True] else []
    return _written(kind, "__init__", ["self", *parameters[False], *by_name], body or ["pass"], values)


def _comparison(kind: type, name: str, operator: str, compared: list[str]) -> Callable[..., Any]:
    body = [
        "if other.__class__ is not self.__class__: return NotImplemented",
        f"return {_as_tuple('self', compared)} {operator} {_as_tuple('other', compared)}",
    ]
    return _written(kind, name, ["self", "other"], body, {})


def _hash(kind: type, compared: list[str]) -> Callable[..., Any]:
    return _written(kind, "__hash__", ["self"], [f"return hash({_as_tuple('self', compared)})"], {})


def _as_tuple(instance: str, names: list[str]) -> str:
    return "(" + "".join(f"{instance}.{name}, " for name in names) + ")"


def _written(
    kind: type, name: str, parameters: list[str], body: list[str], values: dict[str, Any]
) -> Callable[..., Any]:
    """Compile a method. All text is from the names of fields, which are Python's own identifiers."""
    lines = "\n ".join([f"def {name}({', '.join(parameters)}):", *body])
    exec(lines, values)
    method: Callable[..., Any] = values[name]
    method.__qualname__ = f"{kind.__qualname__}.{name}"
    return method


def _repr(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name, each in getattr(self, _FIELDS).items() if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in getattr(self, _FIELDS)]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(getattr(self, _FIELDS), state, strict=True):
        object.__setattr__(self, name, value)


class _StandardFields:
    """The fields as the standard library describes them, for its functions. Made when one of them asks."""

    def __get__(self, instance: object, owner: type) -> dict[str, Any]:
        import dataclasses

        described = []
        for name, each in getattr(owner, _FIELDS).items():
            default = {} if each.default is MISSING else {"default": each.default}
            factory = {} if each.default_factory is MISSING else {"default_factory": each.default_factory}
            standard = dataclasses.field(
                repr=each.repr, compare=each.compare, kw_only=each.kw_only, **default, **factory
            )
            described.append((name, each.annotation, standard))
        made: Any = dataclasses.make_dataclass(owner.__name__, described)
        return dict(made.__dataclass_fields__)


if TYPE_CHECKING:
    from dataclasses import dataclass, field, fields, is_dataclass, replace
else:
    dataclass, field, fields, is_dataclass, replace = _dataclass, _field, _fields, _is_dataclass, _replace
