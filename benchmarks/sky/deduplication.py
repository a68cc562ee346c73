"""Deduplication between two gateways of this machine: bytes sent and CPU, by kind of data, with the option off and on.

- `duplicated`: one random file and copies of it
- `versioned`: a random file in versions, each with a few edits that insert bytes
- `random`: different random files, the worst case: nothing repeats

All files are in memory. All runs have the same rate limit, so that a copy is ordered after the first file has arrived.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.sky.compression import LOOPBACK, MEMORY
from benchmarks.sky.cpu import GatewayCpu
from benchmarks.sky.table import Figure, Table
from testbed.drive import find_binary
from tradewind.engine.engine import Engine
from tradewind.engine.proposal import Request
from tradewind.engine.request import Options

#: Length of a file, number of files of a kind, and of edits between versions.
FILE_BYTES, FILES, EDITS = 32_000_000, 8, 20
CHUNK_BYTES = 8 << 20
RATE_BYTES_PER_S = 40_000_000
QUICK_DIVISOR = 16


def measure_deduplication(quick: bool) -> Table:
    """Return one row per kind of data and setting of the option."""
    file_bytes = FILE_BYTES // QUICK_DIVISOR if quick else FILE_BYTES
    table = Table(
        f"Deduplication of {FILES * file_bytes / 1e6:.0f} MB between two gateways of one machine, at most "
        f"{RATE_BYTES_PER_S / 1e6:.0f} MB/s",
        ["data", "--dedup", "sent / data", "source [CPU-s/GB]", "sink [CPU-s/GB]", "retries"],
    )
    with TemporaryDirectory(prefix="tradewind-bench-", dir=MEMORY) as scratch:
        folder = Path(scratch)
        (folder / "topology.json").write_text(json.dumps(LOOPBACK))
        for kind in ("duplicated", "versioned", "random"):
            source = folder / kind
            _write(source, kind, file_bytes)
            table.rows += [[kind, "on" if on else "off", *_run(folder, source, on=on)] for on in (False, True)]
            shutil.rmtree(source)
    return table


def _write(folder: Path, kind: str, file_bytes: int) -> None:
    folder.mkdir()
    made = np.random.default_rng(1)
    content = bytearray(made.bytes(file_bytes))
    for number in range(FILES):
        if number > 0 and kind == "versioned":
            for at in made.integers(0, file_bytes, EDITS):
                content[at:at] = b"an edit of a few bytes"
        elif number > 0 and kind == "random":
            content = bytearray(made.bytes(file_bytes))
        (folder / str(number)).write_bytes(content)


def _run(folder: Path, source: Path, *, on: bool) -> list[Figure]:
    """Return the columns of a row after the option's."""
    copy = folder / "copy"
    options = Options(recursive=True, chunk_bytes=CHUNK_BYTES, limit_bytes_per_s=RATE_BYTES_PER_S)
    request = Request(str(source), str(copy), replace(options, deduplicate=on), topology=str(folder / "topology.json"))
    with Engine(state_dir=str(folder / "state"), gateway=str(find_binary("tradewind-gateway"))) as engine:
        proposal = engine.propose(request)
        with GatewayCpu() as cpu:
            progress = engine.start(proposal).wait().result().progress
    shutil.rmtree(copy)
    data_gb = progress.bytes_done / 1e9
    saved_bytes = sum(hop.saved_bytes for hop in progress.hops)
    return [
        1 - saved_bytes / progress.bytes_done,
        cpu.of("here") / data_gb,
        cpu.of("there") / data_gb,
        progress.retries,
    ]
