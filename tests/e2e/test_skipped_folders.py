"""Folders that the rules exclude are not listed in object stores, and no other key is lost for that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from testbed.drive import Command
from testbed.faults import HttpProxy
from testbed.odd_stores import Habits, Kind, OddPlace, OddStore
from testbed.places import S3Place
from testbed.servers import Server

Order = Literal["sorted", "by_folder"]
#: These two show a client that the store lists in the order of bytes.
NEIGHBOURS = ["a-b/x", "a/x"]
OTHERS = [*NEIGHBOURS, "node_modules.txt", "src/x", "z"]
SMALL_PAGES = Habits(page_keys=10)


def odd_place(store: OddStore, command: Command) -> OddPlace:
    place = OddPlace(store, command)
    for name in [*OTHERS, *(f"node_modules/{number:03}" for number in range(300))]:
        place.put(name, b"1")
    return place


def listed(command: Command, place: OddPlace | S3Place, *rules: str) -> list[str]:
    return command.run("ls", "-r", place.url, *rules, *place.flags("src")).expect(0).stdout.split()


def listings(proxy: OddStore | HttpProxy) -> int:
    is_listing = {"list-type", "marker", "prefix", "restype"}
    return len(proxy.requests(lambda request: request.method == "GET" and bool(is_listing & set(request.query))))


@pytest.mark.parametrize("kind", ["s3", "gcs", "azure"])
def test_an_excluded_folder_of_a_store_is_not_listed(command: Command, kind: Kind, tmp_path: Path) -> None:
    with OddStore(kind, SMALL_PAGES) as store:
        place = odd_place(store, command)
        # A page, a few probes to divide the listing, and its ranges. The folder alone has 30 pages.
        assert listed(command, place, "--exclude", "node_modules") == OTHERS
        assert listings(store) < 20
        store.clear()
        command.run("cp", "-r", place.url, tmp_path / "copy", "--exclude", "node_modules/", *place.flags("src")).expect(
            0
        )
        assert sum(path.is_file() for path in (tmp_path / "copy").rglob("*")) == len(OTHERS)
        assert listings(store) < 20
        store.clear()
        assert len(listed(command, place)) == 300 + len(OTHERS)
        assert listings(store) > 30


@pytest.mark.parametrize("order", ["sorted", "by_folder"])
@pytest.mark.parametrize("kind", ["s3", "gcs", "azure"])
def test_no_other_key_is_lost_whatever_the_order(command: Command, kind: Kind, order: Order) -> None:
    with OddStore(kind, Habits(page_keys=10, order=order)) as store:
        place = odd_place(store, command)
        assert sorted(listed(command, place, "--exclude", "node_modules")) == OTHERS


@pytest.mark.parametrize("kind", ["s3", "gcs", "azure"])
def test_a_store_that_ignores_the_start_of_a_listing_loses_nothing(
    command: Command, kind: Kind, tmp_path: Path
) -> None:
    with OddStore(kind, Habits(page_keys=10, ignores_start_after=True)) as store:
        place, copy = odd_place(store, command), tmp_path / "copy"
        assert listed(command, place, "--exclude", "node_modules") == OTHERS
        assert listings(store) < 80, "it is listed to its end once after it ignored a start"
        arguments = [place.url, str(copy), "--exclude", "node_modules/", *place.flags("src")]
        command.run("sync", *arguments).expect(0)
        assert sorted(path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()) == OTHERS
        command.run("check", "--compare", "size", *arguments).expect(0)


def test_an_excluded_folder_of_a_bucket_is_not_listed(command: Command, s3: S3Place, s3_server: Server) -> None:
    many = [f"{s3.url}/node_modules", *s3.flags("dst")]
    command.run("cp", "-r", "mem:?objects=4000&size_bytes=1", *many).expect(0)
    for name in OTHERS:
        s3.put(name, b"1")
    with HttpProxy(s3_server.endpoint) as proxy:
        s3.endpoint = proxy.endpoint
        assert listed(command, s3, "--exclude", "node_modules") == OTHERS
        with_rule = full_pages(proxy)
        proxy.clear()
        assert len(listed(command, s3)) == 4000 + len(OTHERS)
        assert with_rule <= 2 and full_pages(proxy) >= 4


def full_pages(proxy: HttpProxy) -> int:
    """Return the number of listings with many keys. Others find out how to divide a listing."""
    answers = proxy.requests(lambda request: "list-type" in request.query)
    return sum(exchange.response_bytes > 100_000 for exchange in answers)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["moto", "seaweedfs", "s3rver", "minio"])
def test_no_other_key_of_a_server_is_lost(command: Command, place: Callable[[str], S3Place], kind: str) -> None:
    there = place(kind)
    many = [f"{there.url}/node_modules", *there.flags("dst")]
    command.run("cp", "-r", "mem:?objects=1100&size_bytes=1", *many).expect(0)
    for name in OTHERS:
        there.put(name, b"1")
    # s3rver loses node_modules.txt between two pages of its own, whatever is asked.
    others = [name for name in listed(command, there) if not name.startswith("node_modules/")]
    assert len(others) >= len(OTHERS) - (kind == "s3rver")
    assert sorted(listed(command, there, "--exclude", "node_modules")) == sorted(others)
