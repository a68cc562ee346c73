"""Values that a program passes by mistake are refused by the name of their argument, before a gateway sees them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tradewind
from tradewind import Access, AttributeRules, Options, Request
from tradewind.errors import SourceNotFound, UsageError, name_options
from tradewind.model.goal import Deadline


@pytest.fixture(autouse=True)
def caller_in_python() -> Iterator[None]:
    name_options(False)
    yield
    name_options()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"verify": "all"}, "verify 'all': must be auto or read"),
        ({"compare": "md5"}, "compare 'md5': must be auto, checksum, size, time or existing"),
        ({"source_tags": "all"}, "source_tags 'all': must be auto, keep or drop"),
        ({"attributes": AttributeRules("none")}, "directive 'none': must be keep or replace"),  # type: ignore[arg-type]
        ({"source": Access(lending="all")}, "lending 'all': must be scoped, whole or machine"),  # type: ignore[arg-type]
        ({"limit_bytes_per_s": 0}, "limit_bytes_per_s 0: must be a whole number, 1 or more"),
        ({"limit_bytes_per_s": "1MB/s"}, "limit_bytes_per_s '1MB/s': must be a whole number, 1 or more"),
        ({"max_bytes": -1}, "max_bytes -1: must be a whole number, 0 or more"),
        ({"max_cost_usd": math.nan}, "max_cost_usd nan: must be a number, 0 or more"),
        ({"duplicate_fraction_max": 2}, "duplicate_fraction_max 2: must be a number, from 0 to 1"),
        ({"stall_s": 0}, "stall_s 0: must be a whole number, from 1 to 86400"),
        ({"concurrency": True}, "concurrency True: must be a whole number, from 1 to 1024"),
        ({"recursive": "yes"}, "recursive 'yes': must be True or False"),
        ({"filter": "*.log"}, "filter '*.log': must be an ObjectFilter"),
        ({"tags": "a=b"}, "tags 'a=b': must be a dictionary"),
        ({"files_from": ["a"]}, "files_from ['a']: must be the path of a file, as text"),
        ({"source": "lab"}, "source 'lab': must be Access"),
    ],
)
def test_a_wrong_value_of_an_option_is_refused(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as refused:
        Options(**values)
    assert str(refused.value) == expected


def test_a_chunk_is_at_most_half_of_the_memory_of_the_lead(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match=r"^chunks of 200MiB: must be at most 128MiB$"):
        tradewind.copy(tmp_path / "file", tmp_path / "copy", Options(chunk_bytes=200 << 20))


def test_text_with_a_unit_is_explained() -> None:
    with pytest.raises(UsageError) as refused:
        Options(chunk_bytes="16MiB")  # type: ignore[arg-type]
    assert refused.value.hint == "pass a number without a unit: the name has it"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"options": "recursive"}, "options 'recursive': must be Options"),
        ({"via": "cloud"}, "via 'cloud': must be local, sky, fleet or auto"),
        ({"machines_per_region": 0}, "machines_per_region 0: must be a whole number, 1 or more"),
        ({"ceiling_usd": -1}, "ceiling_usd -1: must be a number, 0 or more"),
        ({"goal": "fastest"}, "goal 'fastest': must be a goal of tradewind.model.goal"),
    ],
)
def test_a_wrong_value_of_a_request_is_refused(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as refused:
        Request("s3://a/b", "s3://c/d", **values)
    assert str(refused.value) == expected
    assert Request("s3://a/b", "s3://c/d", goal=Deadline(60)).goal == Deadline(60)


@pytest.mark.parametrize("place", [None, 3, b"file", ["file", None]])
def test_a_place_that_is_no_place_is_refused(tmp_path: Path, place: Any) -> None:
    with pytest.raises(UsageError, match=r"^a place is a URL or a path"):
        tradewind.copy(place, tmp_path)


def test_a_negative_volume_of_earlier_traffic_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^egress_used_gb -1: must be a number, 0 or more$"):
        tradewind.plan("aws:us-east-1", "gcp:europe-west4", volume_gb=5, egress_used_gb=-1)


def test_hints_name_functions_of_python(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError) as refused:
        tradewind.sync(tmp_path / "file", tmp_path / "copy")
    assert refused.value.hint == "to copy one file: tradewind.copy(FILE, DST)"
    with pytest.raises(UsageError) as refused:
        tradewind.plan("aws:us-east-1", "aws:us-east-1", volume_gb=5)
    assert refused.value.hint == "within a region there is nothing to plan; use tradewind.copy"


def test_an_error_names_a_file_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFound) as caught:
        tradewind.Client(state_dir=str(tmp_path / "state")).copy(tmp_path / "missing", tmp_path / "copy")
    assert str(caught.value) == f"head {tmp_path}/missing: no such file"
