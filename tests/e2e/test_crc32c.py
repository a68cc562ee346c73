"""Stores that know CRC-32C and no CRC-64/NVME: each write carries it, and each copy is proven by it.

Between gateways, only CRC-64/NVME travels with the bytes, so the sink computes the CRC-32C of what has arrived.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from testbed.chains import chain, with_limits, write
from testbed.drive import Command
from testbed.odd_stores import Answer, Asking, Edit, Kind, OddPlace, OddStore, Reply, Request, Rule, during
from testbed.places import FilePlace
from testbed.trees import MIB, payload

SMALL, BIG = payload("small", 1_000), payload("big", 5 * MIB + 300_000)
TREE = {"d/small": SMALL, "d/empty": b"", "d/big": BIG}
CHUNK = ("--chunk-size", "5MiB")
READS = ("head", "get")
WRITES = ("put", "put part")


def _table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [(value >> 1) ^ (0x82F6_3B78 if value & 1 else 0) for value in table]
    return table


TABLE = _table()


@cache
def crc32c(content: bytes) -> str:
    """Return the CRC-32C as stores write it."""
    crc = 0xFFFF_FFFF
    for byte in content:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return base64.b64encode((crc ^ 0xFFFF_FFFF).to_bytes(4, "big")).decode()


def test_the_check_value_of_the_catalogue_comes_out() -> None:
    assert crc32c(b"123456789") == base64.b64encode(bytes.fromhex("e3069283")).decode()


def state(store: OddStore, kind: Kind, operation: str, key: str, content: bytes) -> None:
    """Let answers of this operation state the CRC-32C of the content."""
    sum_ = crc32c(content)
    google, amazon = {"x-goog-hash": f"crc32c={sum_}"}, {"x-amz-checksum-crc32c": sum_}
    stated = google if kind == "gcs" else {**amazon, "x-amz-checksum-type": "FULL_OBJECT"}

    def edit(reply: Reply) -> None:
        reply.headers.update(stated)

    store.add(Rule(Edit(edit), when=during(operation, key)))


def has_crc64(request: Request) -> bool:
    """Return whether a request names the checksum that the store refuses."""
    algorithm = request.headers.get("x-amz-checksum-algorithm")
    return "x-amz-checksum-crc64nvme" in request.headers or algorithm == "CRC64NVME"


@pytest.fixture(params=["gcs", "s3"])
def kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


@pytest.fixture
def place(kind: Kind, command: Command) -> Iterator[OddPlace]:
    with OddStore(kind) as store:
        yield OddPlace(store, command)


@pytest.fixture(params=["in one process", "between gateways"])
def route(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    if request.param == "in one process":
        return []
    return ["--topology", str(write(with_limits(chain(), store_tries_max=2), tmp_path / "topology.json"))]


def proofs(report: Path, side: str) -> dict[str, str]:
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    return {Path(line["source"]).name: line["proof"][side] for line in lines}


def given(asking: Request, kind: Kind) -> str | None:
    """Return the CRC-32C that a write carries."""
    header = asking.headers.get("x-goog-hash" if kind == "gcs" else "x-amz-checksum-crc32c")
    return header and header.removeprefix("crc32c=")


def test_every_write_carries_the_crc32c_and_is_proven_by_it(
    command: Command, tmp_path: Path, kind: Kind, place: OddPlace, route: list[str]
) -> None:
    files, report = FilePlace(tmp_path / "files"), tmp_path / "report"
    if kind == "s3":
        place.store.add(Rule(Answer(400, "InvalidRequest"), when=has_crc64))
    for key, content in TREE.items():
        files.put(key, content)
        state(place.store, kind, "put", key, content)
        state(place.store, kind, "head", key, content)
    options = [*CHUNK, "--report", str(report), *place.flags("dst"), *route]
    command.run("cp", "-r", f"{files.url}/d", f"{place.url}/d", *options).expect(0)
    assert place.contents() == TREE
    assert proofs(report, "destination") == dict.fromkeys(("small", "empty", "big"), "crc32c")
    written = [each.request for operation in WRITES for each in place.store.requests(during(operation))]
    carried = [asking for asking in written if not has_crc64(asking)]
    assert len({asking.query.get("partNumber", asking.path) for asking in carried}) == 4
    for asking in carried:
        assert isinstance(asking, Asking)
        assert given(asking, kind) == crc32c(asking.body)


def test_every_read_is_proven_by_the_crc32c(
    command: Command, tmp_path: Path, kind: Kind, place: OddPlace, route: list[str]
) -> None:
    report = tmp_path / "report"
    for key, content in TREE.items():
        place.put(key, content)
        for operation in READS:
            state(place.store, kind, operation, key, content)
    options = [*CHUNK, "--report", str(report), *place.flags("src"), *route]
    command.run("cp", "-r", f"{place.url}/d", tmp_path / "to", *options).expect(0)
    to = FilePlace(tmp_path / "to")
    assert {f"d/{name}": to.get(name) for name in to.sizes()} == TREE
    assert proofs(report, "source") == dict.fromkeys(("small", "empty", "big"), "crc32c")


@pytest.mark.parametrize("key", ["d/small", "d/big"])
def test_bytes_that_differ_from_the_stated_crc32c_are_not_copied(
    command: Command, tmp_path: Path, kind: Kind, place: OddPlace, route: list[str], key: str
) -> None:
    place.put(key, TREE[key])
    for operation in READS:
        state(place.store, kind, operation, key, TREE[key][::-1])
    options = [*CHUNK, *place.flags("src"), *route]
    done = command.run("cp", "--json", f"{place.url}/{key}", tmp_path / "copy", *options).expect(6)
    assert done.failure_kinds == ["mismatch"]
    assert not (tmp_path / "copy").exists()
