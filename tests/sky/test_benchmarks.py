"""The benchmarks of compression and of object sizes run, and their figures agree with each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.sky.__main__ import main
from testbed.sky import unavailable


def run(suite: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Run a suite's quick mode, and return its rows."""
    if reason := unavailable():
        pytest.skip(reason)
    monkeypatch.setattr("sys.argv", ["benchmarks.sky", suite, "--quick", "--out", str(folder)])
    assert main() == 0
    assert (folder / f"{suite}.svg").read_text().startswith("<?xml")
    assert (folder / f"{suite}.md").read_text().startswith("## ")
    document = json.loads((folder / f"{suite}.json").read_text())
    return [dict(zip(document["columns"], row, strict=True)) for row in document["rows"]]


@pytest.mark.alone
def test_compressed_egress_is_metered_as_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {(row["data"], row["codec"]): row for row in run("compression", tmp_path, monkeypatch)}
    assert set(rows) == {(data, codec) for data in ("text", "random") for codec in ("off", "zstd:3")}
    raw = rows["text", "off"]["metered [USD/TB]"]
    assert raw > 0
    for row in rows.values():
        assert row["metered [USD/TB]"] == pytest.approx(raw * row["sent / data"])
        # The ratio was learned from a sample of the same files.
        assert row["metered [USD/TB]"] == pytest.approx(row["egress predicted [USD/TB]"], rel=0.05)
        assert row["source [CPU-s/GB]"] > 0 and row["sink [CPU-s/GB]"] > 0
    assert rows["text", "zstd:3"]["sent / data"] < 0.5
    assert rows["random", "zstd:3"]["sent / data"] == 1


@pytest.mark.alone
@pytest.mark.slow
def test_every_object_size_arrives_and_has_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = run("sizes", tmp_path, monkeypatch)
    assert [(row["object"], row["objects"]) for row in rows] == [("10 KB", 2000), ("1 MB", 20)]
    for row in rows:
        assert row["objects/s"] == pytest.approx(row["objects"] / row["time [s]"])
        assert 0 < row["of the planned rate"] < 1.1
        assert row["lead [CPU-s/GB]"] > 0
    per_object = [row["[CPU-µs/object]"] for row in rows]
    assert per_object[0] < per_object[1], "a larger object costs more, and a byte of it less"
