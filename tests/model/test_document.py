"""Documents are read by their types. The error for an invalid one names the field."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind.model.document import to_document
from tradewind.model.event import HopActivity, Progress, Summary, ToDelete
from tradewind.model.job import FilterRule, JobSpec, ListSelection, ObjectFilter, ObjectSelection, Target
from tradewind.model.ledger import EdgePrice, JobPrices, Ledger, MachinePrice
from tradewind.model.store import StoreSpec
from tradewind.model.tier import PriceTier

JOB = JobSpec(
    StoreSpec("s3://b", extra={"objects": "1"}),
    ListSelection("p/", "names", ObjectFilter((FilterRule("include", "*.gz"),), size_min_bytes=1)),
    (Target(StoreSpec("file:///x"), "k"),),
    tags={"a": "b"},
    ceiling_usd=2,
)


def test_writing_and_reading_round_trip() -> None:
    prices = JobPrices(
        {"aws:us-east-1": MachinePrice(0.1, "list")},
        routes={"a → b": (EdgePrice("a → b", 0.09, tiers=(PriceTier(0.0, 0.09),)),)},
    )
    summary = Summary(
        "some_failed", Progress(hops=(HopActivity("a → b", 3),)), to_delete=ToDelete(1, 2), proofs={"md5": 1}
    )
    for value in (JOB, summary, Ledger(prices, 0.5)):
        assert type(value).from_document(to_document(value)) == value


def test_fields_of_a_newer_writer_are_ignored_and_missing_ones_have_their_default() -> None:
    assert Progress.from_document({"objects_done": 3, "wind": "east", "hops": None}) == Progress(objects_done=3)
    job = JobSpec.from_document(
        {"source": {"url": "s3://b"}, "selection": {"kind": "object", "key": "k"}, "targets": []}
    )
    assert job == JobSpec(StoreSpec("s3://b"), ObjectSelection("k"), ())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chunk_bytes": "8"}, "chunk_bytes is str, not int"),
        ({"chunk_bytes": 8.5}, "chunk_bytes is float, not int"),
        ({"chunk_bytes": True}, "chunk_bytes is bool, not int"),
        ({"dry_run": 1}, "dry_run is int, not bool"),
        ({"source": {}}, "source.url is missing"),
        ({"source": "s3://b"}, "source is str, not dict"),
        ({"targets": [{"store": {"url": 1}, "key": "k"}]}, r"targets\[0\].store.url is int, not str"),
        ({"tags": {"a": 1}}, "tags.a is int, not str"),
        ({"selection": {"kind": "tree"}}, "selection has the unknown kind 'tree'"),
        ({"selection": {"kind": "prefix", "prefix": "p", "filter": []}}, "selection.filter is list, not dict"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        JobSpec.from_document({**to_document(JOB), **changes})
