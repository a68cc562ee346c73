"""The client is killed at every call to Compute Engine in turn. Nothing outlives its lease unnoticed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from testbed.clouds.gcp.cloud import Cloud
from testbed.clouds.gcp.server import Call, ComputeEngine
from tests.fleet.gcp_stage import GcpStage
from tests.fleet.orders import FLEET
from tests.fleet.orphan_client import Client, Clients, clients_of
from tests.fleet.worlds import wait_until
from tradewind.fleet.provider import FLEET_TAG


def client_of(stage: GcpStage, clients: Clients) -> Client:
    return clients.start(stage.document(), stage.folder / "state", "one", "two")


def calls_of_a_whole_run(clients: Clients, folder: Path) -> list[str]:
    """Return the methods that a client calls, one after the other, if nobody kills it."""
    with ComputeEngine(Cloud()) as api:
        assert client_of(GcpStage(folder, api), clients).exit_code() == 0
        assert api.cloud.billed() == []
        return [call.method for call in api.calls]


@pytest.mark.slow
def test_a_client_that_is_killed_at_any_call_leaves_nothing_unseen(tmp_path: Path) -> None:
    """It is killed when the request has arrived: it is carried out, and nobody reads the answer."""
    with clients_of("tests.fleet.gcp_stage", "google.auth.transport.requests") as clients:
        methods = calls_of_a_whole_run(clients, tmp_path)
        assert {"regionInstances.bulkInsert", "firewalls.insert", "firewalls.patch", "instances.delete"} <= set(methods)
        # Polls repeat each other: the first of each kind stands for all.
        points = [
            number
            for number, method in enumerate(methods)
            if not method.endswith("get") or method not in methods[:number]
        ]
        killed = 0
        for point in points:
            with ComputeEngine(Cloud()) as api:
                stage = GcpStage(tmp_path / str(point), api)
                stage.folder.mkdir()
                killed += kill_at(stage, clients, point)
                check_that_nothing_is_unseen(stage, f"killed at call {point}, {methods[point]}")
        # The number of polls differs each time; the last calls may not be made.
        assert killed >= len(points) * 0.7


def kill_at(stage: GcpStage, clients: Clients, point: int) -> bool:
    """Kill a client at one of its calls, counted from 0. Return False if it did not make so many."""
    arrived, killed = threading.Event(), threading.Event()

    def hold(_: Call) -> None:
        if len(stage.api.calls) > point:
            arrived.set()
            killed.wait()

    stage.api.on_call = hold
    client = client_of(stage, clients)
    try:
        wait_until(lambda: arrived.is_set() or client.has_ended())
        was_killed = client.kill()
    finally:
        killed.set()
    stage.api.on_call = lambda _: None
    wait_until(stage.api.is_quiet)
    return was_killed


def check_that_nothing_is_unseen(stage: GcpStage, when: str) -> None:
    stranger = stage.provider()
    found = stranger.leftovers()
    seen = {left.id for left in found}
    paths = {path.replace("zones/", "").replace("instances/", "") for path in stage.cloud.billed()}
    assert seen == paths, when
    assert {left.tags[FLEET_TAG] for left in found} <= {FLEET}, when
    stage.cloud.forward(25 * 3600.0)
    assert stage.cloud.running() == [], f"{when}: machines outlive their lease"
    assert [one.refusal for one in stranger.terminate([left.id for left in found]) if one.refusal] == [], when
    assert stage.cloud.billed() == [] and stranger.leftovers() == (), when
