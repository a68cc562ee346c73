"""Storage class and requester pays are in the requests that a server sees: writes, copies by the store, deletes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from testbed.drive import Command
from testbed.faults import HttpProxy, Request
from testbed.places import Place
from testbed.trees import MIB, write_large

PAYS = "x-amz-request-payer"


def writes_whole(request: Request) -> bool:
    return request.is_write and not request.is_part


def begins_upload(request: Request) -> bool:
    return request.method == "POST" and "uploads" in request.query


def is_copy(request: Request) -> bool:
    return any(name.endswith("-copy-source") for name in request.headers)


def origin_of(place: Place) -> str:
    """Return the address of a store, without the account that Azure's emulator has in the path."""
    flags = place.flags("dst")
    parts = urlsplit(flags[flags.index("--dst-endpoint") + 1])
    return f"{parts.scheme}://{parts.netloc}"


def values(proxy: HttpProxy, header: str, when: Callable[[Request], bool]) -> set[str | None]:
    """Return the values of a header in the requests of a kind, of which there must be some."""
    found = {exchange.request.headers.get(header) for exchange in proxy.requests(when)}
    assert found, "no such request"
    return found


@pytest.mark.parametrize(
    ("kind", "wanted", "header", "sent"),
    [
        ("moto", "STANDARD_IA", "x-amz-storage-class", "STANDARD_IA"),
        ("gcs", "STANDARD", "x-goog-storage-class", "STANDARD"),
        ("azure", "Cool", "x-ms-access-tier", "Cool"),
    ],
)
def test_a_write_names_its_storage_class(
    place: Callable[[str], Place], command: Command, tmp_path: Path, kind: str, wanted: str, header: str, sent: str
) -> None:
    (tmp_path / "a").write_bytes(b"content")
    there = place(kind)
    with HttpProxy(origin_of(there)) as proxy:
        flags = there.flags("dst")
        index = flags.index("--dst-endpoint") + 1
        flags[index] = proxy.endpoint + urlsplit(flags[index]).path
        command.run("cp", tmp_path / "a", f"{there.url}/a", "--storage-class", wanted, *flags).expect(0)
    assert values(proxy, header, writes_whole) == {sent}
    assert there.get("a") == b"content"


def test_all_kinds_of_writes_to_s3_name_the_storage_class(
    place: Callable[[str], Place], command: Command, tmp_path: Path
) -> None:
    write_large(tmp_path / "large", 12 * MIB)
    there = place("moto")
    there.put("source", b"content")
    with HttpProxy(origin_of(there)) as proxy:
        there.endpoint = proxy.endpoint  # type: ignore[attr-defined]
        more = ("--storage-class", "STANDARD_IA")
        flags = there.flags("dst")
        command.run("cp", tmp_path / "large", f"{there.url}/large", "--chunk-size", "5MiB", *more, *flags).expect(0)
        copied = (f"{there.url}/source", f"{there.url}/copy")
        command.run("cp", *copied, *more, *there.flags("src"), *flags).expect(0)
        assert values(proxy, "x-amz-storage-class", begins_upload) == {"STANDARD_IA"}
        assert values(proxy, "x-amz-storage-class", is_copy) == {"STANDARD_IA"}
        assert there.headers("copy")["x-amz-storage-class"] == "STANDARD_IA"


def test_requester_pays_is_in_writes_copies_and_deletes(
    place: Callable[[str], Place], command: Command, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"content")
    there = place("moto")
    with HttpProxy(origin_of(there)) as proxy:
        there.endpoint = proxy.endpoint  # type: ignore[attr-defined]
        src, dst = there.flags("src"), there.flags("dst")
        command.run("cp", tmp_path / "a", f"{there.url}/a", "--dst-requester-pays", *dst).expect(0)
        assert values(proxy, PAYS, writes_whole) == {"requester"}
        both = ("--src-requester-pays", "--dst-requester-pays")
        command.run("cp", f"{there.url}/a", f"{there.url}/b", *both, *src, *dst).expect(0)
        assert values(proxy, PAYS, is_copy) == {"requester"}
        command.run("rm", f"{there.url}/b", "--requester-pays", "-y", *src).expect(0)
        assert values(proxy, PAYS, lambda request: request.method == "DELETE") == {"requester"}
        command.run("rm", "-r", f"{there.url}/", "--requester-pays", "-y", *src).expect(0)
        assert {each.request.headers.get(PAYS) for each in proxy.exchanges} == {"requester"}
    assert there.sizes() == {}
