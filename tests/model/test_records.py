"""Our dataclasses behave as those of the standard library, for the options that Tradewind uses."""

import dataclasses
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tradewind.model import records


def declare(library: Any) -> SimpleNamespace:
    """Return the same classes, declared with one of the libraries."""
    dataclass, field = library.dataclass, library.field

    @dataclass(frozen=True)
    class Plain:
        name: str
        size: int = 3
        parts: list[int] = field(default_factory=list)
        secret: str = field(default="s", repr=False, compare=False)
        TAG: ClassVar[str] = "tag"

        @property
        def double(self) -> int:
            return self.size * 2

    @dataclass(frozen=True, slots=True)
    class Slotted:
        """With a docstring."""

        left: int
        right: int = 2

    @dataclass(frozen=True, slots=True)
    class Longer(Slotted):
        right: int = 5
        more: tuple[int, ...] = ()

    @dataclass
    class Mutable:
        count: int = 0

        def __post_init__(self) -> None:
            self.total = self.count + 1

    @dataclass(frozen=True, order=True)
    class Ordered:
        first: str
        second: str

    @dataclass(frozen=True, kw_only=True)
    class Named:
        b: int
        a: int = 1

    @dataclass(frozen=True, eq=False, repr=False)
    class Identity:
        a: int

    @dataclass(frozen=True)
    class Own:
        a: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

        def __hash__(self) -> int:
            return 7

    class Undeclared(Plain):
        def __init__(self) -> None:
            super().__init__("undeclared")
            self.note = "free"

    return SimpleNamespace(**{name: made for name, made in locals().items() if isinstance(made, type)})


def refused(action: Callable[[], Any]) -> str:
    """Return the error that an action raises, and its message without the words that tell how Python was called."""
    try:
        action()
    except (AttributeError, TypeError) as error:
        return f"{type(error).__name__}: {str(error).replace('declare.<locals>.', '')}"
    return "nothing refused"


def matched(value: Any, kind: Any) -> Any:
    match value:
        case kind(left, right):
            return left, right


#: Observable behaviour of the classes, as functions of them.
OBSERVED: dict[str, Callable[[Any], Any]] = {
    "defaults": lambda it: (it.Plain("a").size, it.Plain("a").parts, it.Plain("a", 4, [1]).parts, it.Plain.size),
    "each instance has its own list": lambda it: it.Plain("a").parts is it.Plain("a").parts,
    "representation": lambda it: [repr(each) for each in (it.Plain("a"), it.Longer(1, more=(2,)), it.Own(1))],
    "equality": lambda it: (
        it.Plain("a") == it.Plain("a"), it.Plain("a") == it.Plain("b"), it.Plain("a") == it.Plain("a", secret="t"),
        it.Plain("a") == "a", it.Slotted(1, 5) == it.Longer(1, 5), it.Plain("a") != it.Plain("a"),
        it.Identity(1) == it.Identity(1), it.Own(1) == it.Own(2),
    ),
    "hash": lambda it: (
        hash(it.Slotted(1)) == hash(it.Slotted(1, 2)), hash(it.Slotted(1)) == hash((1, 2)), hash(it.Own(1)),
        len({it.Ordered("a", "b"), it.Ordered("a", "b")}), it.Mutable.__hash__,
    ),
    "order": lambda it: (
        sorted([it.Ordered("b", "a"), it.Ordered("a", "c"), it.Ordered("a", "b")])[0].second,
        it.Ordered("a", "b") <= it.Ordered("a", "b"), it.Ordered("a", "b") > it.Ordered("a", "a"),
        refused(lambda: it.Ordered("a", "b") < 3), refused(lambda: it.Slotted(1) < it.Slotted(2)),
    ),
    "a frozen field": lambda it: (
        refused(lambda: setattr(it.Plain("a"), "size", 1)), refused(lambda: delattr(it.Plain("a"), "size")),
        refused(lambda: setattr(it.Plain("a"), "other", 1)), refused(lambda: setattr(it.Longer(1), "left", 2)),
        refused(lambda: setattr(it.Undeclared(), "size", 1)), it.Undeclared().note,
    ),
    "arguments": lambda it: (
        refused(lambda: it.Slotted()), refused(lambda: it.Slotted(1, 2, 3)), refused(lambda: it.Slotted(1, wrong=2)),
        refused(lambda: it.Named(1, 2)), refused(lambda: it.Named()), it.Named(b=2).a,
    ),
    "after init": lambda it: (it.Mutable(4).total, it.Mutable().total),
    "slots": lambda it: (
        it.Slotted.__slots__, it.Longer.__slots__, hasattr(it.Longer(1), "__dict__"), it.Slotted.__doc__,
    ),
    "inheritance": lambda it: (it.Longer(1).right, [each.name for each in dataclasses.fields(it.Longer)]),
    "match": lambda it: (matched(it.Slotted(1, 4), it.Slotted), it.Plain.__match_args__, it.Named.__match_args__),
    "class variables and properties": lambda it: (it.Plain.TAG, it.Plain("a", 5).double),
    "the standard library's functions": lambda it: (
        dataclasses.is_dataclass(it.Plain), dataclasses.asdict(it.Plain("a")), dataclasses.astuple(it.Longer(1)),
        dataclasses.replace(it.Longer(1), more=(3,)) == it.Longer(1, more=(3,)),
        [(each.name, each.type, each.repr, each.compare) for each in dataclasses.fields(it.Plain("a"))],
        [each.default for each in dataclasses.fields(it.Slotted)][1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("calls", [0, records.INTERPRETED_CALLS_MAX])
@pytest.mark.parametrize("what", OBSERVED)
def test_a_class_behaves_as_the_standard_library_declares_it(
    what: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "INTERPRETED_CALLS_MAX", calls)
    assert OBSERVED[what](declare(records)) == OBSERVED[what](declare(dataclasses))


@pytest.mark.parametrize("library", [records, dataclasses])
def test_fields_and_replace(library: Any) -> None:
    it = declare(library)
    assert [each.name for each in library.fields(it.Plain)] == ["name", "size", "parts", "secret"]
    assert [each.name for each in library.fields(it.Longer(1))] == ["left", "right", "more"]
    assert library.fields(it.Slotted)[0].default is library.MISSING
    assert library.replace(it.Plain("a"), size=9) == it.Plain("a", 9)
    assert library.is_dataclass(it.Plain) and library.is_dataclass(it.Plain("a")) and not library.is_dataclass(int)
    with pytest.raises(TypeError, match="wrong"):
        library.replace(it.Plain("a"), wrong=1)


@records.dataclass(frozen=True, slots=True)
class Sent:
    """An instance that is sent to another process."""

    left: int
    right: str = "r"


def test_a_frozen_instance_with_slots_is_pickled() -> None:
    assert pickle.loads(pickle.dumps(Sent(1))) == Sent(1)


def test_a_command_loads_neither_dataclasses_nor_what_they_need() -> None:
    script = "import sys, tradewind.cli.cp; print([name for name in ('dataclasses', 'inspect') if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout.strip() == "[]"


def test_a_constructor_that_is_used_often_is_compiled_and_has_a_signature() -> None:
    @records.dataclass(frozen=True, kw_only=True)
    class Named:
        a: int = 1
        b: int

    made = [Named(b=number) for number in range(2 * records.INTERPRETED_CALLS_MAX)]
    assert [each.b for each in made] == list(range(len(made)))
    assert list(inspect.signature(Named).parameters) == ["a", "b"]
