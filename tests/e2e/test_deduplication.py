"""Bytes that a sink has received already are not sent again, with real gateways."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from testbed.chains import Document, chain, twin, write
from testbed.drive import Command
from testbed.trees import MIB, file_sha256, write_large
from tradewind.model.units import format_bytes

FILE_BYTES = 6 * MIB
COPIES = 6
RATE = "16MB/s"
"""A repeated chunk must be ordered after the answer to the first one, so the lead is slowed down."""


def write_repeated(folder: Path) -> int:
    """Write a random file, and copies of it behind a few other bytes, so that chunks differ. Return the size."""
    write_large(folder / "0", FILE_BYTES)
    content = (folder / "0").read_bytes()
    for number in range(1, COPIES):
        (folder / str(number)).write_bytes(b"x" * 1000 * number + content)
    return sum(path.stat().st_size for path in folder.iterdir())


def assert_equal(source: Path, copy: Path) -> None:
    assert {path.name: file_sha256(path) for path in copy.iterdir()} == {
        path.name: file_sha256(path) for path in source.iterdir()
    }


def savings(summary: dict[str, Any]) -> tuple[int, int, int]:
    """Return the bytes carried, and those that deduplication and compression saved."""
    hops = summary["progress"]["hops"]
    carried, saved, deduplicated = (
        sum(hop[name] for hop in hops) for name in ("bytes", "saved_bytes", "deduplicated_bytes")
    )
    return carried, deduplicated, saved - deduplicated


def words(source: Path, copy: Path, topology: Document, folder: Path, *more: str) -> list[str | Path]:
    file = write(topology, folder / "topology.json")
    return ["cp", "-r", source, copy, "--topology", file, "--chunk-size", "5MiB", "--dedup", "on", "--json", *more]


def test_repeated_bytes_pass_a_relay_once_and_every_display_says_so(command: Command, tmp_path: Path) -> None:
    size_bytes = write_repeated(tmp_path / "source")
    topology = chain("relay")
    topology["routes"][0]["usd_per_gb"] = 0.1
    arguments = words(tmp_path / "source", tmp_path / "copy", topology, tmp_path, "--limit-rate", RATE)
    done = command.run(*arguments).expect(0).summary
    assert_equal(tmp_path / "source", tmp_path / "copy")
    carried, deduplicated, compressed = savings(done)
    assert (carried, compressed) == (size_bytes, 0)
    assert deduplicated > FILE_BYTES
    assert done["progress"]["retries"] == 0
    assert done["cost"]["metered_usd"] == pytest.approx(0.1 * (carried - deduplicated) / 1e9)
    shown = command.run("jobs", "show", done["job_id"]).expect(0).stdout
    ratio = (carried - deduplicated) / carried
    assert f"saved   {format_bytes(deduplicated)} by deduplication (ratio {ratio:.2f})" in shown


def test_what_is_not_repeated_is_sent_whole_and_may_be_compressed(command: Command, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_large(source / "random", FILE_BYTES)
    (source / "text").write_text("".join(f"{number * 0x9E3779B97F4A7C15 >> 40:x} " for number in range(400_000)))
    size_bytes = sum(path.stat().st_size for path in source.iterdir())
    arguments = words(source, tmp_path / "copy", chain(), tmp_path, "--compress", "zstd:1")
    done = command.run(*arguments).expect(0).summary
    assert_equal(source, tmp_path / "copy")
    carried, deduplicated, compressed = savings(done)
    assert (carried, deduplicated) == (size_bytes, 0)
    assert compressed > 0


def test_a_killed_sink_and_its_window_lose_nothing(command: Command, tmp_path: Path) -> None:
    write_repeated(tmp_path / "source")
    topology = write(twin(), tmp_path / "topology.json")
    running = command.start(
        *("cp", "-r", tmp_path / "source", tmp_path / "copy", "--topology", topology),
        *("--dedup", "on", "--chunk-size", "5MiB", "--limit-rate", "8MB/s"),
    )
    running.wait_for_bytes(FILE_BYTES)
    os.kill(running.gateways()["sink-a"], signal.SIGKILL)
    running.finish().expect(0)
    assert_equal(tmp_path / "source", tmp_path / "copy")


def test_a_window_that_is_too_small_only_saves_less(command: Command, tmp_path: Path) -> None:
    write_repeated(tmp_path / "source")
    few = ("--limit-rate", RATE, "--dedup-window", "3MiB")
    done = command.run(*words(tmp_path / "source", tmp_path / "copy", chain(), tmp_path, *few)).expect(0)
    assert savings(done.summary)[1] < FILE_BYTES
    assert_equal(tmp_path / "source", tmp_path / "copy")


def test_a_local_copy_has_nothing_to_deduplicate(command: Command, tmp_path: Path) -> None:
    write_large(tmp_path / "source" / "a", MIB)
    done = command.run("cp", "-r", tmp_path / "source", tmp_path / "copy", "--dedup", "on", "--json").expect(0)
    assert savings(done.summary)[1:] == (0, 0)
    assert json.loads(command.run("jobs", "show", done.summary["job_id"], "--json").expect(0).stdout)["state"] == "done"
