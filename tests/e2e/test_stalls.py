"""Gateways and links that stand still while another route works: the job does not wait until they count as dead.

A frozen peer counts as dead after 15 s, and its requests are then retried. A job without retries did not wait for that.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.chains import Document, diamond, twin, with_detour, write
from testbed.drive import Command, Finished, Running
from testbed.faults import TcpProxy
from testbed.odd_stores import OddPlace, OddStore
from testbed.servers.process import free_port
from testbed.trees import MIB, tree_hashes, write_large, write_tree

LARGE_BYTES = 96 * MIB
MIDDLE_BYTES = LARGE_BYTES // 4
USD_PER_GB = 0.05
CHUNK_BYTES = 16 * MIB
SMALL_COUNT = 120
WINDOW_BYTES = 8 * CHUNK_BYTES
"""Bytes that a stalled route may always repeat; more than 2% of this job."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    write_large(folder / "large", LARGE_BYTES)
    write_tree(folder, {f"small/{number:03}": 30_000 for number in range(200)})
    return folder


def start(command: Command, tree: Path, topology: Document, *more: str) -> Running:
    folder = tree.parent
    for route in topology["routes"]:
        route["usd_per_gb"] = USD_PER_GB
    words = ("cp", "-r", tree, folder / "copy", "--topology", write(topology, folder / "topology.json"))
    running = command.start(*words, "--limit-rate", "25MB/s", *more)
    running.wait_for_bytes(MIDDLE_BYTES)
    return running


def assert_did_not_wait(done: Finished, tree: Path) -> int:
    """Return the duplicate bytes of a job that has copied everything without a retry."""
    done.expect(0)
    assert tree_hashes(tree.parent / "copy") == tree_hashes(tree)
    progress = done.summary["progress"]
    assert progress["retries"] == 0
    notices = [event["message"] for event in done.events if event["event"] == "notice"]
    assert any("stands still; other routes also send what it holds" in message for message in notices), notices
    assert 0 < progress["duplicate_bytes"] <= WINDOW_BYTES
    return int(progress["duplicate_bytes"])


@pytest.mark.parametrize("frozen", ["source-a", "relay-a", "sink-a"])
def test_a_frozen_gateway_does_not_hold_up_the_job(command: Command, tree: Path, frozen: str) -> None:
    running = start(command, tree, twin())
    os.kill(running.gateways()[frozen], signal.SIGSTOP)
    duplicate_bytes = assert_did_not_wait(running.finish(), tree)
    (job,) = command.jobs()
    costs = command.run("jobs", "show", str(job["id"]), "--cost").stdout
    assert "bytes sent again" in costs and "as duplicates" in costs, costs
    sent_usd = (LARGE_BYTES + 200 * 30_000 + duplicate_bytes) / 1e9 * USD_PER_GB
    shown = json.loads(command.run("jobs", "show", str(job["id"]), "--json").stdout)
    assert shown["cost"]["metered_usd"] >= sent_usd * 0.999


@pytest.fixture(params=["files", "memory", pytest.param("azure", marks=pytest.mark.slow)])
def occupied(request: pytest.FixtureRequest, command: Command, small: Path) -> Iterator[tuple[str, list[str]]]:
    """The URL and the options of a destination where each write of the same bytes makes another object, or none.

    Elsewhere than in memory, all objects are there with other bytes, so that they are written without a condition.
    """
    names = [path.name for path in small.iterdir()]
    if request.param == "azure":
        with OddStore("azure") as store:
            place = OddPlace(store, command)
            for name in names:
                place.put(name, b"before")
            yield place.url, place.flags("dst")
    elif request.param == "files":
        write_tree(small.parent / "copy", dict.fromkeys(names, 5))
        yield str(small.parent / "copy"), []
        assert tree_hashes(small.parent / "copy") == tree_hashes(small)
    else:
        yield "mem:", []


@pytest.fixture
def small(tmp_path: Path) -> Path:
    write_tree(tmp_path / "small", {f"{number:03}": 50_000 for number in range(SMALL_COUNT)})
    return tmp_path / "small"


def test_objects_that_two_routes_have_written_are_not_reported_as_replaced(
    command: Command, small: Path, occupied: tuple[str, list[str]]
) -> None:
    """The frozen relay continues while its requests are sent over the other route, so both routes write them."""
    url, flags = occupied
    topology = write(twin(), small.parent / "topology.json")
    running = command.start("cp", "-r", small, url, "--topology", topology, "--limit-rate", "3MB/s", *flags)
    running.wait_for_bytes(1_000_000)
    relay = running.gateways()["relay-a"]
    os.kill(relay, signal.SIGSTOP)
    running.wait_for(lambda event: event["event"] == "progress" and event["duplicate_bytes"] > 0)
    os.kill(relay, signal.SIGCONT)
    done = running.finish().expect(0)
    assert done.summary["progress"]["objects_done"] == SMALL_COUNT


def test_a_link_that_is_cut_does_not_hold_up_the_job(command: Command, tree: Path) -> None:
    """Both routes have the same source and sink, and only one of the hops between them stands still."""
    with TcpProxy() as between:
        between.target = f"127.0.0.1:{free_port()}"
        topology = with_detour(diamond(), "source", "relay-a", between.target, between.address)
        running = start(command, tree, topology)
        between.freeze()
        assert_did_not_wait(running.finish(), tree)


@pytest.mark.slow
def test_no_byte_is_sent_twice_if_that_is_not_wanted(command: Command, tree: Path) -> None:
    running = start(command, tree, twin(), "--duplicates", "0")
    relay = running.gateways()["relay-a"]
    os.kill(relay, signal.SIGSTOP)
    done = running.finish().expect(0)
    assert tree_hashes(tree.parent / "copy") == tree_hashes(tree)
    assert done.summary["progress"]["duplicate_bytes"] == 0 < done.summary["progress"]["retries"]


@pytest.mark.parametrize("text", ["101", "-1", "many", "nan"])
def test_a_wrong_limit_on_duplicates_is_refused(command: Command, tree: Path, text: str) -> None:
    refused = command.run("cp", "-r", tree, tree.parent / "copy", f"--duplicates={text}").expect(2)
    assert "a percentage from 0% to 100%" in refused.stderr
