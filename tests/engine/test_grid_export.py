"""The grid as rows: what transfers have observed, without details of the transfers."""

import csv
import datetime
from pathlib import Path

from tradewind.catalog.learned import Sample, store_samples
from tradewind.catalog.load import catalog_folder
from tradewind.engine.grid_export import HISTORY_COLUMNS, grid_csv, grid_rows, history_rows
from tradewind.model.region import Region

LINK = Region("aws", "us-east-1"), Region("gcp", "us-east1")


def test_observed_rates_have_a_history_and_name_no_transfer(tmp_path: Path) -> None:
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    samples = [
        Sample(*LINK, gbps, False, 64, 123_456_789, 98.7, "m5.8xlarge", f"job secret-{gbps}", today)
        for gbps in (1.0, 3.0)
    ]
    before = {(row.src, row.dst): row for row in grid_rows(str(tmp_path))}
    assert store_samples(catalog_folder(str(tmp_path)), samples)
    after = {(row.src, row.dst): row for row in grid_rows(str(tmp_path))}
    name = (str(LINK[0]), str(LINK[1]))
    row = after[name]
    assert (row.kind, row.source, row.date, row.transfers) == ("learned", "transfers", today, 2)
    assert sorted(each["gbps"] for each in row.history) == [1.0, 3.0]
    assert row.confidence > before[name].confidence
    assert not any(word in str(row) for word in ("secret", "123", "98.7", "m5"))
    assert {key: one for key, one in after.items() if key != name} == {
        key: one for key, one in before.items() if key != name
    }
    table = list(csv.DictReader(grid_csv([row.columns()])))
    assert (table[0]["src"], float(table[0]["gbps"])) == (row.src, row.gbps)
    history = list(csv.DictReader(grid_csv(history_rows(after.values()), HISTORY_COLUMNS)))
    assert [(one["src"], one["date"], float(one["gbps"])) for one in history] == [
        (row.src, today, each["gbps"]) for each in row.history
    ]
