"""`tradewind send` and `receive` of a host's own files over several routes: one for each address of the service."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.guest_hosts import contents, tradewind, with_dublin
from tests.service.server import Server
from tradewind.engine.launch_spec import guest_launch
from tradewind.model.guest import Guest

OBJECTS, OBJECT_BYTES = 12, 2_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    own = ("--guest-address", "127.0.0.1", "--guest-address", "127.0.0.2")
    with with_dublin(tmp_path_factory.mktemp("routes"), *own) as server:
        yield server


def large_files(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for number in range(OBJECTS):
        (folder / str(number)).write_bytes(os.urandom(OBJECT_BYTES // 2).hex().encode())
    return folder


@pytest.mark.parametrize("verb", ["send", "receive"])
def test_a_host_uses_every_address_of_the_service(server: Server, tmp_path: Path, verb: str) -> None:
    sent, place = large_files(tmp_path / "sent"), server.data / "dublin" / "default" / verb
    if verb == "receive":
        shutil.copytree(sent, place)
    words = (str(sent), f"dublin:{verb}") if verb == "send" else (f"dublin:{verb}", str(tmp_path / "received"))
    done = tradewind(server, tmp_path, verb, "--routes", "2", "--chunk-size", "5MiB", "--compress", "zstd", *words)
    assert done.returncode == 0, done.stderr
    assert contents(place if verb == "send" else tmp_path / "received") == contents(sent)
    with server.client() as client:
        job = client.get(f"/v1/jobs/{done.stderr.split()[1]}").json()
    moved = {hop["name"]: hop["bytes"] for hop in job["counts"]["hops"]}
    ends = ("guest", "service") if verb == "send" else ("service", "guest")
    assert moved.keys() == {" → ".join(ends), " → ".join((ends[0], "relay-1", ends[1]))}, moved
    assert min(moved.values()) > 0 and sum(moved.values()) == OBJECTS * OBJECT_BYTES, moved
    assert job["counts"]["bytes_done"] == OBJECTS * OBJECT_BYTES
    assert job["compression"]["ratio"] < 0.7, job["compression"]


def test_more_routes_than_addresses_are_the_maximum(server: Server, tmp_path: Path) -> None:
    sent = large_files(tmp_path / "sent")
    done = tradewind(server, tmp_path, "send", "--routes", "8", str(sent), "dublin:eight")
    assert done.returncode == 0, done.stderr


def test_routes_are_refused_by_a_service_with_one_address(tmp_path: Path) -> None:
    with with_dublin(tmp_path / "service") as server:
        done = tradewind(server, tmp_path, "send", "--routes", "2", str(large_files(tmp_path / "sent")), "dublin:one")
    assert done.returncode == 2 and "--guest-address" in done.stderr, done.stderr


def test_a_plan_has_a_route_for_each_address() -> None:
    plan: Any = guest_launch(Guest("g", "source", "192.0.2.7", ("2001:db8::1",))).plan
    assert [route.nodes for route in plan.routes] == [("guest", "service"), ("guest", "relay-1", "service")]
