"""The grid as rows: the rate of each link with its source, its confidence, and the transfers that it was learned from.

As tables, the links and the history of their rates are two files. The rows have no sizes, times or ids of transfers, so
that those of different users can be shown to all.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tradewind.catalog.ageing import age_weight
from tradewind.catalog.learned import LEARNED_FILE, Sample, read_samples
from tradewind.catalog.load import catalog_folder, load_catalog
from tradewind.model.catalog import Link
from tradewind.model.origin import Origin
from tradewind.model.records import dataclass

__all__ = ["COLUMNS", "HISTORY_COLUMNS", "GridRow", "grid_csv", "grid_parquet", "grid_rows", "history_rows"]

#: Columns of the table of links, and of that of their history. In JSON, each link has its history.
COLUMNS = ("src", "dst", "gbps", "rtt_ms", "kind", "source", "date", "confidence", "transfers")
HISTORY_COLUMNS = ("src", "dst", "date", "gbps", "at_least")
#: Confidence in a figure of today, by its kind: observed, stated by somebody, or calculated. Halves with its half-life.
CONFIDENCE = {"measured": 1.0, "learned": 0.9, "imported": 0.7, "published": 0.7, "modelled": 0.3}
CONFIDENCE_OTHER = 0.3


@dataclass(frozen=True, slots=True)
class GridRow:
    """A link: rate of one machine pair at 64 connections [Gbit/s], round trip [ms], and confidence from 0 to 1."""

    src: str
    dst: str
    gbps: float
    rtt_ms: float | None
    kind: str
    source: str
    date: str
    confidence: float
    transfers: int
    history: tuple[dict[str, Any], ...]

    def document(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return {**self.columns(), "history": list(self.history)}

    def columns(self) -> dict[str, Any]:
        """Return the row for a table."""
        return {name: getattr(self, name) for name in COLUMNS}


def grid_rows(state_dir: str) -> tuple[GridRow, ...]:
    """Return all links by source and destination, from the packaged catalog and the state folder's own figures.

    Raises ConfigError.
    """
    folder, today = catalog_folder(state_dir), datetime.datetime.now(datetime.timezone.utc).date()
    history: defaultdict[tuple[str, str], list[Sample]] = defaultdict(list)
    if (folder / LEARNED_FILE).exists():
        for sample in read_samples(folder / LEARNED_FILE):
            history[str(sample.src), str(sample.dst)].append(sample)
    return tuple(
        _row(str(src), str(dst), link, history[str(src), str(dst)], today)
        for (src, dst), link in sorted(load_catalog(folder).grid.links.items())
    )


def history_rows(rows: Iterable[GridRow]) -> list[dict[str, Any]]:
    """Return a row for each rate that a transfer has observed, by link, oldest first."""
    return [{"src": row.src, "dst": row.dst, **each} for row in rows for each in row.history]


def grid_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = COLUMNS) -> Iterator[str]:
    """Yield the rows as CSV, with a header."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text)
    for line in (columns, *([row[name] for name in columns] for row in rows)):
        writer.writerow(line)
        yield text.getvalue()
        text.seek(0)
        text.truncate()


def grid_parquet(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = COLUMNS) -> bytes:
    """Return the rows as a Parquet file. Raises ImportError without pyarrow."""
    import pyarrow
    from pyarrow import parquet

    kinds = {"gbps": pyarrow.float64(), "rtt_ms": pyarrow.float64(), "confidence": pyarrow.float64()}
    kinds |= {"transfers": pyarrow.int64(), "at_least": pyarrow.bool_()}
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in columns])
    table = pyarrow.table({name: [row[name] for row in rows] for name in columns}, schema=schema)
    out = pyarrow.BufferOutputStream()
    parquet.write_table(table, out)
    content: bytes = out.getvalue().to_pybytes()
    return content


def _row(src: str, dst: str, link: Link, samples: Sequence[Sample], today: datetime.date) -> GridRow:
    origin = link.origin
    parts = [(part.weight, part.origin) for part in link.parts] or [(1.0, origin)]
    confidence = sum(weight * _confidence(of, today) for weight, of in parts)
    seen = sorted(samples, key=lambda sample: sample.date)
    return GridRow(
        src,
        dst,
        link.gbps,
        link.rtt_ms,
        origin.kind,
        "transfers" if origin.kind == "learned" else origin.source,
        origin.date,
        round(confidence, 3),
        len(seen),
        tuple({"date": each.date, "gbps": each.gbps, "at_least": each.at_least} for each in seen),
    )


def _confidence(origin: Origin, today: datetime.date) -> float:
    return CONFIDENCE.get(origin.kind, CONFIDENCE_OTHER) * age_weight(origin.date, today)
