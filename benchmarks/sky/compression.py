"""Compression over a priced overlay: time, CPU, and egress predicted and metered, by kind of data and codec.

As a user would, it first copies a sample with the codec through two gateways on this machine, to learn the compression
ratio, and plans with that ratio.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.plots import Axis, bars
from benchmarks.sky.contents import KINDS, write_kind
from benchmarks.sky.cpu import GatewayCpu
from benchmarks.sky.overlay import OBJECT_BYTES, SINK, SOURCE, WORLD
from benchmarks.sky.table import INVALID, Figure, Table
from testbed.drive import find_binary
from testbed.sky import valid
from tradewind.engine.engine import Engine
from tradewind.engine.proposal import Request
from tradewind.engine.request import Options
from tradewind.errors import SkyInvalid
from tradewind.model.goal import Fastest
from tradewind.model.store import Access
from tradewind.planner.routes import region_name
from tradewind.sky.folders import sky_folder
from tradewind.sky.running import Sky

CODECS = ("off", "lz4", "zstd:1", "zstd:3", "zstd:9", "auto")
#: Volume of a run, and of the sample that the ratio is learned from.
VOLUME_BYTES, SAMPLE_BYTES = 120_000_000, 12_000_000
#: As a relayed transfer has: a source and a sink, here without a relay and a WAN.
LOOPBACK = {
    "gateways": {"here": {"role": "source"}, "there": {"role": "sink"}},
    "routes": [{"nodes": ["here", "there"], "share": 1.0}],
    "connections": 4,
}
USD_PER_TB = 1e12
#: Where the bytes are: files that every machine of the sky sees, in memory.
MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class _Run:
    """One transfer."""

    elapsed_s: float
    bytes: int
    sent_bytes: int
    source_cpu_s: float
    sink_cpu_s: float
    planned_gbps: float
    predicted_usd: float
    metered_usd: float

    def figures(self) -> list[Figure]:
        """Return the columns of a row after the codec's."""
        data_gb, rate_gbps = self.bytes / 1e9, self.bytes * 8e-9 / self.elapsed_s
        return [
            self.sent_bytes / self.bytes,
            self.elapsed_s,
            rate_gbps * 1e3,
            rate_gbps / self.planned_gbps,
            self.source_cpu_s / data_gb,
            self.sink_cpu_s / data_gb,
            self.predicted_usd / self.bytes * USD_PER_TB,
            self.metered_usd / self.bytes * USD_PER_TB,
        ]


def measure_compression(quick: bool) -> Table:
    """Return one row per kind of data and codec."""
    kinds = ["text", "random"] if quick else list(KINDS)
    codecs = ["off", "zstd:3"] if quick else list(CODECS)
    volume_bytes, sample_bytes = (4_000_000, 1_000_000) if quick else (VOLUME_BYTES, SAMPLE_BYTES)
    table = Table(
        f"Compression of {volume_bytes / 1e6:.0f} MB over a relay, {SOURCE} → {SINK}, rates × {WORLD['scale']:g}",
        [
            "data",
            "codec",
            "sent / data",
            "time [s]",
            "data [Mbit/s]",
            "of the planned rate",
            "source [CPU-s/GB]",
            "sink [CPU-s/GB]",
            "egress predicted [USD/TB]",
            "metered [USD/TB]",
        ],
    )
    sent: list[dict[str, float]] = []
    with TemporaryDirectory(prefix="tradewind-bench-", dir=MEMORY) as folder:
        file = Path(folder, "world.json")
        file.write_text(json.dumps(WORLD))
        state = str(Path(folder, "state"))
        with Sky.up(file, folder=sky_folder(state, file)) as sky:
            for kind in kinds:
                bench = _Bench(sky, file, state, Path(folder), kind, volume_bytes, sample_bytes)
                rows = {codec: bench.row(codec) for codec in codecs}
                table.rows += [[kind, codec, *figures] for codec, figures in rows.items()]
                sent.append({codec: row[0] for codec, row in rows.items() if isinstance(row[0], float)})
    if all(len(group) == len(codecs) for group in sent):
        table.picture = bars("Bytes sent per byte of data", Axis("share of the data", 0, 1.1), kinds, sent)
    return table


class _Bench:
    """The runs of one kind of data."""

    def __init__(
        self, sky: Sky, file: Path, state: str, folder: Path, kind: str, volume_bytes: int, sample_bytes: int
    ) -> None:
        self._sky, self._file, self._state, self._folder = sky, file, state, folder
        self._source, self._sample = folder / kind / "data", folder / kind / "sample"
        write_kind(self._source, kind, volume_bytes)
        write_kind(self._sample, kind, sample_bytes)
        self._loopback = folder / "loopback.json"
        self._loopback.write_text(json.dumps(LOOPBACK))

    def row(self, codec: str) -> list[Figure]:
        """Return the figures of one codec."""
        try:
            ratio = self._sample_ratio(codec)
            return valid(self._sky, lambda: self._run(codec, ratio)).figures()
        except SkyInvalid:
            return [INVALID] * 8

    def _options(self, codec: str) -> Options:
        chosen = Options(recursive=True, chunk_bytes=OBJECT_BYTES)
        return chosen if codec == "off" else replace(chosen, compress=True, codec=codec)

    def _engine(self) -> Engine:
        return Engine(state_dir=self._state, gateway=str(find_binary("tradewind-gateway")))

    def _sample_ratio(self, codec: str) -> float:
        """Return the bytes sent per byte of a sample."""
        if codec == "off":
            return 1.0
        copy = self._folder / "copy"
        with self._engine() as engine:
            request = Request(str(self._sample), str(copy), self._options(codec), topology=str(self._loopback))
            progress = engine.start(engine.propose(request)).wait().result().progress
        shutil.rmtree(copy)
        return 1 - sum(hop.saved_bytes for hop in progress.hops) / progress.bytes_done

    def _run(self, codec: str, ratio: float) -> _Run:
        copy = self._folder / "copy"
        options = replace(self._options(codec), source=Access(region=str(SOURCE)), destination=Access(region=str(SINK)))
        request = Request(
            str(self._source),
            str(copy),
            options,
            sky=str(self._file),
            goal=Fastest(),
            machines_per_region=1,
            compression_ratio=ratio,
        )
        with self._engine() as engine:
            proposal = engine.propose(request)
            plan = proposal.plan
            assert plan.overlay is not None and plan.prediction is not None
            with GatewayCpu() as cpu:
                job = engine.start(proposal).wait()
            progress = job.result().progress
            metered_usd = job.ledger.usd_of("egress", time.time())
        shutil.rmtree(copy)
        return _Run(
            elapsed_s=progress.elapsed_s,
            bytes=progress.bytes_done,
            sent_bytes=progress.bytes_done - sum(hop.saved_bytes for hop in progress.hops),
            source_cpu_s=cpu.of(region_name(SOURCE)),
            sink_cpu_s=cpu.of(region_name(SINK)),
            planned_gbps=plan.prediction.throughput_gbps,
            predicted_usd=plan.overlay.cost.egress_usd,
            metered_usd=metered_usd,
        )
