"""Many objects, large objects, and nothing to do: memory and CPU time stay within their limits."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.chains import chain, with_limits, write
from testbed.drive import Command, Finished, Running, cpu_s, peak_rss_bytes
from testbed.faults import Hang, HttpProxy, Rule
from testbed.places import FilePlace, S3Place
from testbed.servers.process import temporary_folder
from testbed.trees import MIB, tree_hashes

MEMORY = Path("/dev/shm")
RSS_MAX_BYTES = 512 * MIB
SAMPLE_S = 0.2
IDLE_S = 3.0
IDLE_SHARE_MAX = 0.03
"""CPU limit of a waiting process: 3% of a core, for pings, progress twice a second, and the clock's 10 ms ticks."""


def finish_watched(running: Running) -> tuple[Finished, dict[str, int]]:
    """Wait for the command's end; return it and the peak resident memory of every process by name."""
    peaks: dict[str, int] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(SAMPLE_S):
            for name, pid in {**running.gateways(), "client": running.process.pid}.items():
                peaks[name] = max(peaks.get(name, 0), peak_rss_bytes(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        return running.finish(1_200), peaks
    finally:
        over.set()
        watcher.join()


def assert_small(peaks: dict[str, int], least: int) -> None:
    assert len(peaks) >= least, f"not all processes were seen: {sorted(peaks)}"
    assert {name: peak >> 20 for name, peak in peaks.items() if peak >= RSS_MAX_BYTES} == {}


@pytest.mark.parametrize("gigabytes", [2, pytest.param(20, marks=pytest.mark.slow)], ids=["2-GB", "20-GB"])
def test_a_large_object_passes_with_little_memory(command: Command, tmp_path: Path, gigabytes: int) -> None:
    size = gigabytes * 1_000_000_000
    topology = write(chain("relay"), tmp_path / "topology.json")
    running = command.start("cp", "-r", f"mem:?objects=1&size_bytes={size}", "mem:", "--topology", topology)
    done, peaks = finish_watched(running)
    done.expect(0)
    assert done.summary["progress"]["bytes_done"] == size
    assert sum(done.summary["proofs"].values()) == 1
    assert_small(peaks, least=5)


def test_a_large_object_to_a_real_store_with_little_memory(command: Command, s3: S3Place, tmp_path: Path) -> None:
    size = 1_000_000_000
    running = command.start("cp", "-r", f"mem:?objects=1&size_bytes={size}", s3.url, *s3.flags("dst"))
    done, peaks = finish_watched(running)
    done.expect(0)
    assert list(s3.sizes().values()) == [size]
    assert s3.unfinished() == []
    assert_small(peaks, least=2)


def test_100_000_tiny_objects_through_gateways(command: Command, tmp_path: Path) -> None:
    topology = write(chain("relay"), tmp_path / "topology.json")
    running = command.start("cp", "-r", "mem:?objects=100000&size_bytes=100", "mem:", "--topology", topology)
    done, peaks = finish_watched(running)
    done.expect(0)
    assert done.summary["progress"]["objects_done"] == 100_000
    assert sum(done.summary["proofs"].values()) == 100_000
    assert_small(peaks, least=5)


@pytest.fixture
def folder_in_memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory if possible: a busy disk needs minutes to delete so many files."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    folder = temporary_folder("scale", MEMORY)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
def test_100_000_tiny_files_and_a_sync_that_finds_nothing_to_do(command: Command, folder_in_memory: Path) -> None:
    source, destination = FilePlace(folder_in_memory / "tree"), FilePlace(folder_in_memory / "copy")
    for number in range(100_000):
        source.put(f"{number // 1000:02}/{number:06}", str(number).encode())
    done, peaks = finish_watched(command.start("cp", "-r", source.url, destination.url))
    done.expect(0)
    assert tree_hashes(destination.folder) == tree_hashes(source.folder)
    assert_small(peaks, least=2)
    again = command.run("sync", "--json", source.url, destination.url).expect(0)
    assert again.summary["progress"]["objects_done"] == 0
    assert again.summary["progress"]["objects_skipped"] == 100_000


@pytest.mark.parametrize("relays", [[], ["relay"]], ids=["no-relay", "relay"])
def test_gateways_that_wait_for_a_store_use_no_cpu(
    command: Command, s3: S3Place, proxy: HttpProxy, tmp_path: Path, relays: list[str]
) -> None:
    source = FilePlace(tmp_path / "tree")
    source.put("object", b"x" * MIB)
    s3.endpoint = proxy.endpoint
    rule = proxy.add(Rule(Hang(), when=lambda request: request.is_write, count=1))
    document = with_limits(chain(*relays), store_idle_s=60)
    running = command.start(
        "cp", "-r", source.url, s3.url, *s3.flags("dst"), "--topology", write(document, tmp_path / "topology.json")
    )
    assert rule.struck.wait(60)
    watched = {**running.gateways(), "client": running.process.pid}
    before = {name: cpu_s(pid) for name, pid in watched.items()}
    time.sleep(IDLE_S)
    used = {name: cpu_s(pid) - before[name] for name, pid in watched.items()}
    assert {name: spent for name, spent in used.items() if spent > IDLE_S * IDLE_SHARE_MAX} == {}
    proxy.cut()
    running.finish().expect(0)
    assert s3.sizes() == {"object": MIB}
