"""Stored documents: exact round trips; documents of other versions are read or refused."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Literal

import pytest

from tradewind.catalog.load import load_catalog
from tradewind.model.catalog import Catalog
from tradewind.model.document import Codec
from tradewind.model.goal import Cheapest, Deadline, Goal, MaxCost, MinThroughput
from tradewind.model.records import dataclass, field
from tradewind.model.region import Region

A, B = Region("aws", "us-east-1"), Region("gcp", "europe-west4")


@dataclass(frozen=True)
class Inner:
    number: float
    word: Literal["one", "two"] = "one"


@dataclass(frozen=True)
class Outer:
    region: Region
    goal: Goal
    either: Inner | tuple[Inner, ...]
    by_region: Mapping[Region, int]
    by_pair: Mapping[tuple[Region, Region], float]
    names: Collection[str] | None = None
    anything: Mapping[str, Any] = field(default_factory=dict)


VALUES = [
    Outer(A, Cheapest(), Inner(1.5), {A: 1, B: 2}, {(A, B): 0.5}),
    Outer(B, MaxCost(3.0), (Inner(1), Inner(float("inf"), "two")), {}, {}, ("a", "b"), {"x": [1, None, {"y": "ü"}]}),
    Outer(B, MinThroughput(3.0, exactly=True), (), {}, {(A, A): 1.0, (B, A): 2.0}),
]


@pytest.mark.parametrize("value", VALUES)
def test_encoding_and_decoding_round_trip(value: Outer) -> None:
    document = json.loads(json.dumps(Codec().encode(Outer, value)))
    assert Codec().decode(Outer, document) == value


def test_the_whole_catalog() -> None:
    catalog = load_catalog()
    document = json.loads(json.dumps(Codec().encode(Catalog, catalog)))
    assert Codec().decode(Catalog, document) == catalog


def test_another_version_may_have_more_fields_or_fewer() -> None:
    document = Codec().encode(Inner, Inner(2.0, "two"))
    assert Codec().decode(Inner, {**document, "further": 1}) == Inner(2.0, "two")
    assert Codec().decode(Inner, {"number": 2.0}) == Inner(2.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"region": "nowhere"},
        {"region": 1},
        {"goal": ["Slowest", {}]},
        {"goal": {}},
        {"goal": ["Deadline"]},
        {"goal": ["Deadline", {"seconds": "1"}]},
        {"either": ["tuple", 1]},
        {"either": ["Inner", {"number": True}]},
        {"either": ["Inner", {"number": 1, "word": 3}]},
        {"either": ["Inner", {}]},
        {"by_region": {"x": 1}},
        {"by_region": []},
        {"by_pair": [[["aws:us-east-1"], 1]]},
        {"by_pair": [1]},
        {"names": "ab"},
    ],
)
def test_content_of_a_wrong_type_is_refused(changes: dict[str, Any]) -> None:
    document = Codec().encode(Outer, VALUES[0])
    with pytest.raises(ValueError, match=r"."):
        Codec().decode(Outer, {**document, **changes})
    with pytest.raises(ValueError, match=r"^the document is list, not dict$"):
        Codec().decode(Outer, [])


def test_types_that_only_type_checkers_import_are_named() -> None:
    @dataclass
    class Late:
        goal: Elsewhere | None  # type: ignore[name-defined]  # noqa: F821

    value = Late(Deadline(1.0))
    codec = Codec(Elsewhere=Deadline)
    assert codec.decode(Late, codec.encode(Late, value)) == value
    with pytest.raises(NameError):
        Codec().encode(Late, value)
