"""Server-side copies of objects above 5 GB, which S3 copies only in parts. The objects are sparse files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.drive import Command, Running
from testbed.faults import HttpProxy, Request
from testbed.places import S3Place
from testbed.servers import Server, versitygw
from testbed.trees import MIB, payload

SIZE = 5_500 * MIB
MARKS = {0: payload("first", 1_000), 5_000 * MIB + 77: payload("late", 1_000), SIZE - 1_000: payload("last", 1_000)}
"""Bytes at these offsets; the rest is zero."""
READ_BYTES = 64 * MIB
RUN_TIMEOUT_S = 380
FREE_BYTES_MIN = 3 * SIZE


@dataclass(frozen=True)
class Large:
    """A large object in one bucket, an empty second bucket of the same server, and a proxy in front of both."""

    folder: Path
    source: S3Place
    target: S3Place
    proxy: HttpProxy

    def arguments(self) -> list[str]:
        """Return the arguments of the copy."""
        ends = [f"{self.source.url}/large", f"{self.target.url}/copy"]
        return [*ends, *self.source.flags("src"), *self.target.flags("dst"), "--chunk-size", "128MiB"]

    def body_bytes(self) -> int:
        """Return the bytes of all bodies, in both directions."""
        return sum(exchange.request_bytes + exchange.response_bytes for exchange in self.proxy.exchanges)

    def copied_ranges(self) -> list[tuple[int, int]]:
        """Return the ranges of all copied parts, first and last byte, in order of their offsets."""
        done = [each for each in self.proxy.requests(is_part_copy) if each.status == 200]
        texts = [each.request.headers["x-amz-copy-source-range"].removeprefix("bytes=") for each in done]
        return sorted((int(first), int(last)) for first, _, last in (text.partition("-") for text in texts))


def is_part_copy(request: Request) -> bool:
    return request.is_part and "x-amz-copy-source" in request.headers


@pytest.fixture
def large(command: Command, tmp_path: Path) -> Iterator[Large]:
    if shutil.which("go") is None and "CI" not in os.environ:
        pytest.skip("go is not on PATH, and versitygw is installed with it")
    if shutil.disk_usage(tmp_path).free < FREE_BYTES_MIN:
        pytest.skip(f"the disk has less than {FREE_BYTES_MIN >> 30} GiB free")
    with versitygw(data_parent=tmp_path) as server, HttpProxy(server.endpoint) as proxy:
        source, target = S3Place(server, command), S3Place(server, command)
        write_sparse(server, source)
        source.endpoint = target.endpoint = proxy.endpoint
        yield Large(server.folder / "data", source, target, proxy)


def write_sparse(server: Server, place: S3Place) -> None:
    with (server.folder / "data" / place.bucket / "large").open("wb") as file:
        for offset, content in MARKS.items():
            file.seek(offset)
            file.write(content)
        file.truncate(SIZE)


def assert_same(path: Path) -> None:
    """Compare a copy with the original, without Tradewind."""
    with path.open("rb") as file:
        for start in range(0, SIZE, READ_BYTES):
            wanted = bytearray(min(READ_BYTES, SIZE - start))
            for offset, content in MARKS.items():
                if start <= offset < start + len(wanted):
                    wanted[offset - start : offset - start + len(content)] = content
            assert file.read(READ_BYTES) == wanted, f"the copy differs within {READ_BYTES >> 20} MiB from {start}"
        assert file.read(1) == b""


def wait_for_parts(large: Large, running: Running, count: int) -> None:
    running.wait_for_bytes(1)
    large.proxy.wait_for(lambda all_: sum(is_part_copy(each.request) and each.status == 200 for each in all_) >= count)


@pytest.mark.slow
def test_a_copy_above_5_gb_by_the_store_survives_a_kill(command: Command, large: Large) -> None:
    running = command.start("cp", *large.arguments())
    wait_for_parts(large, running, 6)
    open_now = [each for each in large.proxy.requests(is_part_copy) if each.status is None]
    assert len(open_now) > 1, "parts are copied in parallel"
    command.kill_all()
    running.finish()
    first_run = large.copied_ranges()
    assert large.target.sizes() == {}

    (job,) = command.jobs()
    done = command.run("jobs", "resume", str(job["id"]), "--json", timeout_s=RUN_TIMEOUT_S).expect(0)
    progress = done.summary["progress"]
    assert progress["bytes_done"] == SIZE
    assert progress["bytes_earlier"] > 0
    assert list(done.summary["proofs"]) == ["crc64nvme"], (
        "the store's checksum of the copy agrees with that of its parts"
    )

    ranges = large.copied_ranges()
    assert ranges[0][0] == 0 and max(last for _, last in ranges) == SIZE - 1
    firsts, lasts = {first for first, _ in ranges}, {last + 1 for _, last in ranges}
    assert firsts - {0} == lasts - {SIZE}, "the ranges of the parts have no gaps"
    again = len(ranges) - len(set(ranges))
    assert again < len(first_run), "parts of the first run are kept"
    assert large.proxy.requests(lambda request: request.is_write or request.is_read) == []
    assert large.body_bytes() < MIB, "no byte of the object passes this machine"

    assert_same(large.folder / large.target.bucket / "copy")
    assert large.target.unfinished() == []


@pytest.mark.slow
def test_a_cancelled_copy_above_5_gb_leaves_no_upload(command: Command, large: Large) -> None:
    running = command.start("cp", *large.arguments())
    wait_for_parts(large, running, 2)
    command.kill_all()
    running.finish()
    assert large.target.unfinished() == ["copy"]
    (job,) = command.jobs()
    command.run("jobs", "cancel", str(job["id"])).expect(0)
    assert large.target.unfinished() == []
    assert (large.source.sizes(), large.target.sizes()) == ({"large": SIZE}, {})
