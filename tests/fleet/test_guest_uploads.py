"""The uploads that a guest reports are kept for the job's own keys only, with the time since when they may exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tradewind.fleet.guest_uploads import UPLOADS_MAX, KeptUploads, kept_uploads


def lead(kind: str, key: str) -> dict[str, Any]:
    return {"targets": [{"key": key}], "selection": {"kind": kind}}


@pytest.mark.parametrize(
    ("kind", "key", "kept"), [("prefix", "run7/", ["run7/a", "run7/b/c"]), ("object", "run7/a", ["run7/a"])]
)
def test_only_keys_of_the_job_are_kept(tmp_path: Path, kind: str, key: str, kept: list[str]) -> None:
    uploads = KeptUploads(str(tmp_path), lead(kind, key), 1_000)
    uploads.keep(["run7/a", "run7/b/c", "run8/a", "run7", ""])
    assert kept_uploads(str(tmp_path)) == dict.fromkeys(kept, 1_000)


def test_an_upload_of_an_earlier_run_keeps_its_time_until_it_is_finished(tmp_path: Path) -> None:
    KeptUploads(str(tmp_path), lead("prefix", ""), 1_000).keep(["a", "b"])
    later = KeptUploads(str(tmp_path), lead("prefix", ""), 2_000)
    later.keep(["a", "b", "c"])
    assert kept_uploads(str(tmp_path)) == {"a": 1_000, "b": 1_000, "c": 2_000}
    later.keep([])
    assert kept_uploads(str(tmp_path)) == {}


def test_a_host_with_another_journal_hides_no_earlier_upload(tmp_path: Path) -> None:
    KeptUploads(str(tmp_path), lead("prefix", ""), 1_000).keep(["a", "b"])
    later = KeptUploads(str(tmp_path), lead("prefix", ""), 2_000)
    later.keep([])
    later.keep(["b", "c"])
    later.keep([])
    assert kept_uploads(str(tmp_path)) == {"a": 1_000}


def test_few_uploads_are_kept_in_all_runs(tmp_path: Path) -> None:
    for run in range(3):
        keys = [f"{run}/{number}" for number in range(UPLOADS_MAX // 2)]
        KeptUploads(str(tmp_path), lead("prefix", ""), run).keep(keys)
    assert len(kept_uploads(str(tmp_path))) == UPLOADS_MAX
