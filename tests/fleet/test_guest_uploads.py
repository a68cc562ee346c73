"""The uploads that guests report are kept for the job's own keys and for each journal, with the time of their run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tradewind.fleet.guest_uploads import (
    KEYS_MAX,
    UPLOADS_FILE,
    KeptUploads,
    UploadsFull,
    kept_uploads,
    left_uploads,
)

#: Journals of two hosts.
ONE, TWO = "1" * 32, "2" * 32


def lead(kind: str, key: str) -> dict[str, Any]:
    return {"targets": [{"key": key}], "selection": {"kind": kind}}


@pytest.mark.parametrize(
    ("kind", "key", "kept"), [("prefix", "run7/", ["run7/a", "run7/b/c"]), ("object", "run7/a", ["run7/a"])]
)
def test_only_keys_of_the_job_are_kept(tmp_path: Path, kind: str, key: str, kept: list[str]) -> None:
    uploads = KeptUploads(str(tmp_path), lead(kind, key), 1_000)
    uploads.keep(["run7/a", "run7/b/c", "run8/a", "run7", ""], ONE)
    assert kept_uploads(str(tmp_path)) == dict.fromkeys(kept, 1_000)


def test_an_upload_of_an_earlier_run_keeps_its_time_until_it_is_finished(tmp_path: Path) -> None:
    KeptUploads(str(tmp_path), lead("prefix", ""), 1_000).keep(["a", "b"], ONE)
    later = KeptUploads(str(tmp_path), lead("prefix", ""), 2_000)
    later.keep(["a", "b", "c"], ONE)
    assert kept_uploads(str(tmp_path)) == {"a": 1_000, "b": 1_000, "c": 2_000}
    assert left_uploads(str(tmp_path)) == {}, "its journal knows them all"
    later.keep([], ONE)
    assert kept_uploads(str(tmp_path)) == {}


def test_a_host_with_another_journal_hides_no_earlier_upload(tmp_path: Path) -> None:
    """It finishes uploads of its own of the same keys. Those of the first host are unfinished nevertheless."""
    KeptUploads(str(tmp_path), lead("prefix", ""), 1_000).keep(["a", "b"], ONE)
    later = KeptUploads(str(tmp_path), lead("prefix", ""), 2_000)
    later.keep([], TWO)
    later.keep(["b", "c"], TWO)
    assert kept_uploads(str(tmp_path)) == {"a": 1_000, "b": 1_000, "c": 2_000}
    later.keep([], TWO)
    assert kept_uploads(str(tmp_path)) == {"a": 1_000, "b": 1_000}
    assert left_uploads(str(tmp_path)) == {"a": 1_000, "b": 1_000}


def test_the_first_host_returns_and_finishes_what_it_has_begun(tmp_path: Path) -> None:
    for began_ms, journal, keys in ((1_000, ONE, ["a", "b"]), (2_000, TWO, ["b"]), (3_000, ONE, ["b"])):
        KeptUploads(str(tmp_path), lead("prefix", ""), began_ms).keep(keys, journal)
    assert kept_uploads(str(tmp_path)) == {"b": 1_000}
    assert left_uploads(str(tmp_path)) == {"b": 2_000}


def test_uploads_that_an_earlier_version_has_kept_are_left(tmp_path: Path) -> None:
    (tmp_path / UPLOADS_FILE).write_text('{"a": 1000, "b": 1000}')
    KeptUploads(str(tmp_path), lead("prefix", ""), 2_000).keep(["b"], ONE)
    assert left_uploads(str(tmp_path)) == {"a": 1_000, "b": 1_000}


def test_a_client_that_names_no_journal_has_another_one_in_each_run(tmp_path: Path) -> None:
    KeptUploads(str(tmp_path), lead("prefix", ""), 1_000).keep(["a"], None)
    KeptUploads(str(tmp_path), lead("prefix", ""), 2_000).keep(["b"], None)
    assert kept_uploads(str(tmp_path)) == {"a": 1_000, "b": 2_000}
    assert left_uploads(str(tmp_path)) == {"a": 1_000}


def test_no_upload_is_forgotten_where_too_many_are_left(tmp_path: Path) -> None:
    keys = [f"{number}" for number in range(KEYS_MAX)]
    KeptUploads(str(tmp_path), lead("prefix", ""), 1_000).keep(keys, ONE)
    later = KeptUploads(str(tmp_path), lead("prefix", ""), 2_000)
    later.keep([], TWO)
    with pytest.raises(UploadsFull, match="too many unfinished uploads"):
        later.keep(["one"], TWO)
    assert kept_uploads(str(tmp_path)) == dict.fromkeys(keys, 1_000)
    KeptUploads(str(tmp_path), lead("prefix", ""), 3_000).keep(keys[1:], ONE)
    KeptUploads(str(tmp_path), lead("prefix", ""), 4_000).keep(["one"], TWO)
    assert len(kept_uploads(str(tmp_path))) == KEYS_MAX
