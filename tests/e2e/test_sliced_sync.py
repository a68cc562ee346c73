"""A sync of many files to a store: their names divide the listing of the store, and it stays the same sync."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.faults import Call, HttpProxy, Request, Rule
from testbed.places import Place, S3Place

#: Three pages of a listing and a part of a fourth.
FILES, PAGE_KEYS = 3_100, 1_000
#: Time after which the clock of a store that counts whole seconds has advanced. The date that versitygw states is up to
#: 1 s late.
SECOND_S = 2.1
#: Maximum time until a request arrives that waits for no other one.
REQUEST_S = 30.0


def written(folder: Path, names: list[str]) -> Path:
    """Write one-byte files; return the folder."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return folder


def test_what_differs_is_found_in_every_slice(command: Command, s3: S3Place, proxy: HttpProxy, tmp_path: Path) -> None:
    names = [f"d{number // 700}/{number:04}" for number in range(FILES)]
    source, to = written(tmp_path / "source", names), s3.flags("dst")
    command.run("sync", source, s3.url, *to).expect(0)
    s3.endpoint = proxy.endpoint
    again = command.run("sync", source, s3.url, "--compare", "size", *s3.flags("dst"), "--json").expect(0)
    assert again.summary["progress"]["objects_skipped"] == FILES
    listings = proxy.requests(lambda request: "list-type" in request.query)
    assert len(listings) == FILES // PAGE_KEYS + 1, "as many as in sequence"
    assert sum("start-after" in listing.request.query for listing in listings) == FILES // PAGE_KEYS
    extra = ["000", "d0/0500x", "d1/0999x", "d2/x", "d4/3099x", "zzz"]
    for key in extra:
        s3.put(key, b"extra")
    for name in names[::500]:
        (source / name).write_bytes(b"longer")
    for name in names[7::900]:
        (source / name).unlink()
    time.sleep(SECOND_S)  # An object of the second in which the job starts is kept.
    done = command.run("sync", "--delete", "-y", source, s3.url, *s3.flags("dst"), "--json").expect(0)
    gone = len(names[7::900])
    assert done.summary["objects_deleted"] == len(extra) + gone
    left = {str(path.relative_to(source)): path.stat().st_size for path in source.rglob("*") if path.is_file()}
    assert s3.sizes() == left


@pytest.mark.slow
def test_the_second_page_is_requested_before_the_first_is_there(
    command: Command, s3: S3Place, proxy: HttpProxy, tmp_path: Path
) -> None:
    source = written(tmp_path / "source", [f"d{number // 700}/{number:04}" for number in range(FILES)])
    second, was_requested = threading.Event(), []

    def is_listing(request: Request, *, later: bool) -> bool:
        return "list-type" in request.query and ("start-after" in request.query) == later

    proxy.add(Rule(Call(second.set), when=partial(is_listing, later=True), count=1))
    proxy.add(
        Rule(Call(lambda: was_requested.append(second.wait(REQUEST_S))), when=partial(is_listing, later=False), count=1)
    )
    s3.endpoint = proxy.endpoint
    done = command.run("sync", source, s3.url, *s3.flags("dst"), "--json").expect(0)
    assert was_requested == [True]
    assert done.summary["progress"]["objects_done"] == FILES
    assert len(proxy.requests(lambda request: "list-type" in request.query)) == 2, "an empty place has one page"


def test_an_object_written_after_its_page_was_fetched_is_no_proof_of_another_order(
    command: Command, s3: S3Place, proxy: HttpProxy, tmp_path: Path
) -> None:
    names = [f"{number:04}" for number in range(FILES)]
    source, late = written(tmp_path / "source", names), names[PAGE_KEYS + 100]
    command.run("sync", source, s3.url, "--exclude", late, *s3.flags("dst")).expect(0)
    second = threading.Event()

    def is_listing(request: Request, *, later: bool) -> bool:
        return "list-type" in request.query and ("start-after" in request.query) == later

    def write_late() -> None:
        assert second.wait(REQUEST_S)
        time.sleep(SECOND_S)  # Until that page has arrived.
        s3.put(late, b"by someone else")
        time.sleep(SECOND_S)

    proxy.add(Rule(Call(second.set), when=partial(is_listing, later=True), count=1))
    proxy.add(Rule(Call(write_late), when=partial(is_listing, later=False), count=1))
    s3.endpoint = proxy.endpoint
    done = command.run("sync", source, s3.url, "--compare", "size", *s3.flags("dst"))
    assert "order" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["minio", "seaweedfs", "rclone", "moto"])
def test_other_servers_agree(command: Command, place: Callable[[str], Place], tmp_path: Path, kind: str) -> None:
    names = [f"d{number // 700}/{number:04}" for number in range(FILES)]
    source, there = written(tmp_path / "source", names), place(kind)
    command.run("sync", source, there.url, *there.flags("dst")).expect(0)
    again = command.run("sync", source, there.url, "--compare", "size", *there.flags("dst"), "--json").expect(0)
    assert again.summary["progress"]["objects_skipped"] == FILES


@pytest.mark.slow
def test_an_order_of_its_own_is_refused(command: Command, place: Callable[[str], Place], tmp_path: Path) -> None:
    """s3rver lists `a/x` before `a-/x`."""
    names = [f"{folder}/{number:04}" for folder in ("a-", "a") for number in range(1_500)]
    source, there = written(tmp_path / "source", names), place("s3rver")
    command.run("cp", "-r", source, there.url, *there.flags("dst")).expect(0)
    refused = command.run("sync", source, there.url, "--compare", "size", *there.flags("dst")).expect(1)
    assert "order" in refused.stderr
