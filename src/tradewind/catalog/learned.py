"""Rates of hops observed by finished transfers, in `learned.csv` of the user's part of the catalog.

A transfer reports the rates that its hops carried, not their capacity. `engine.learning` decides which hop was the
bottleneck. Only the bottleneck's rate counts as the link's rate; the other rates are lower bounds.
"""

from __future__ import annotations

import datetime
import fcntl
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tradewind.catalog.ageing import Figure, age_weight
from tradewind.catalog.tables import GBPS_MAX, read_rows, write_table
from tradewind.errors import ConfigError
from tradewind.model.files import private_folder
from tradewind.model.origin import Origin
from tradewind.model.program import CONNECTIONS_MAX
from tradewind.model.records import dataclass
from tradewind.model.region import Region
from tradewind.model.units import format_bytes, format_count, format_duration

__all__ = ["LEARNED_FILE", "Sample", "learned_figures", "read_samples", "store_samples"]

LEARNED_FILE = "learned.csv"
SAMPLES_PER_LINK_MAX = 8
"""Maximum samples of one link, in the standard network tier and otherwise; the newest are kept."""
SAMPLES_MAX = 20_000
"""Maximum samples of all links; the oldest are dropped first. About 2 MB."""
LOCK_TRIES_MAX = 20
LOCK_PAUSE_S = 0.05
"""If another transfer is writing for longer than a second of attempts, the samples of this one are dropped."""

REQUIRED = ("src", "dst", "gbps", "bound", "connections", "bytes", "seconds", "machine", "source", "date")
"""Columns that every file has. Older versions did not write the network tier."""
HEADER = (*REQUIRED, "network_tier")


@dataclass(frozen=True, slots=True)
class Sample:
    """Sample of one link from one hop of one transfer."""

    src: Region
    dst: Region
    gbps: float
    """Rate of one machine pair at 64 connections."""
    at_least: bool
    """True for a lower bound: another hop or a store limited the transfer."""
    connections: int
    bytes: int
    seconds: float
    machine: str
    """Type of the sending machine; empty if unknown."""
    source: str
    """The transfer, `job 20250131-120000-k3f9tw2a`."""
    date: str
    network_tier: str = ""
    """Network tier of the sending machine, `premium` or `standard`; empty if unknown or without a choice."""

    @property
    def method(self) -> str:
        """In words."""
        connections = format_count(self.connections, "connection")
        how = f"{format_bytes(self.bytes)} in {format_duration(self.seconds)} over {connections}"
        return how + (f", {self.machine}" if self.machine else "") + (", at least" if self.at_least else "")


def read_samples(path: Path) -> Iterator[Sample]:
    """Yield the samples of a file. Raises ConfigError, which names file, line and column."""
    for row in read_rows(path, [[name] for name in REQUIRED]):
        if row.fields["bound"] not in ("exact", "least"):
            raise row.wrong("bound", f"{row.fields['bound']!r} is neither exact nor least")
        yield Sample(
            row.region("src"),
            row.region("dst"),
            row.number("gbps", low=0.0, high=GBPS_MAX),
            row.fields["bound"] == "least",
            int(row.number("connections", low=1, high=CONNECTIONS_MAX)),
            int(row.number("bytes", low=0, high=1e18)),
            row.number("seconds", low=0, high=1e9),
            row.fields["machine"],
            row.fields["source"],
            row.origin("", "learned").date,
            row.fields.get("network_tier", ""),
        )


def learned_figures(samples: Iterable[Sample], today: datetime.date) -> Mapping[tuple[Region, Region], Figure]:
    """Return one figure per link: the mean of its samples, each weighted by its age.

    A lower bound counts only if it exceeds the other samples: the link has carried more than they say.
    """
    by_link: dict[tuple[Region, Region], list[Sample]] = defaultdict(list)
    for sample in samples:
        by_link[sample.src, sample.dst].append(sample)
    return {pair: _figure(of, today) for pair, of in by_link.items()}


def _figure(samples: list[Sample], today: datetime.date) -> Figure:
    newest = max(samples, key=lambda sample: sample.date)
    exact = [sample for sample in samples if not sample.at_least]
    if not exact:
        best = max(samples, key=lambda sample: (sample.gbps * age_weight(sample.date, today), sample.date))
        return Figure(best.gbps, Origin("learned", best.source, best.date, best.method), at_least=True)
    mean_gbps = _mean_gbps(exact, today)
    counted = exact + [sample for sample in samples if sample.at_least and sample.gbps > mean_gbps]
    method = newest.method if len(counted) == 1 else f"mean of {len(counted)} transfers, the last {newest.method}"
    return Figure(_mean_gbps(counted, today), Origin("learned", newest.source, newest.date, method))


def _mean_gbps(samples: list[Sample], today: datetime.date) -> float:
    """Return the weighted mean; samples below the minimum weight count only if all are below it."""
    weights = [age_weight(sample.date, today) for sample in samples]
    if not any(weights):
        weights = [1.0] * len(samples)
    return sum(w * s.gbps for w, s in zip(weights, samples, strict=True)) / sum(weights)


def store_samples(folder: Path, samples: Iterable[Sample]) -> bool:
    """Add samples to the file, and drop the oldest beyond the limits.

    Returns:
        True if they were stored; False if other transfers held the file for too long.

    Raises:
        OSError: the folder cannot be written.
    """
    private_folder(folder)
    with _locked(folder / f".{LEARNED_FILE}.lock") as locked:
        if not locked:
            return False
        path = folder / LEARNED_FILE
        try:
            kept = list(read_samples(path)) if path.exists() else []
        except ConfigError:
            # Tradewind alone writes this file: an unreadable one is useless and must not block new samples.
            path.replace(path.with_suffix(".unreadable"))
            kept = []
        write_table(path, HEADER, map(_row, _bounded([*samples, *kept])))
    return True


def _bounded(samples: list[Sample]) -> list[Sample]:
    """Return the samples within the limits. Within a day the first is the newest; sorting keeps that order."""
    newest_first = sorted(samples, key=lambda sample: sample.date, reverse=True)
    counts: dict[tuple[Region, Region, bool], int] = defaultdict(int)
    kept = []
    for sample in newest_first:
        link = sample.src, sample.dst, sample.network_tier == "standard"
        counts[link] += 1
        if counts[link] <= SAMPLES_PER_LINK_MAX:
            kept.append(sample)
    return sorted(kept[:SAMPLES_MAX], key=lambda sample: (sample.src, sample.dst, sample.date))


def _row(sample: Sample) -> list[str]:
    bound = "least" if sample.at_least else "exact"
    amounts = [f"{sample.gbps:.4g}", bound, str(sample.connections), str(sample.bytes), f"{sample.seconds:.1f}"]
    return [str(sample.src), str(sample.dst), *amounts, sample.machine, sample.source, sample.date, sample.network_tier]


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(LOCK_TRIES_MAX):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(LOCK_PAUSE_S)
            else:
                yield True
                return
        yield False
    finally:
        os.close(descriptor)
