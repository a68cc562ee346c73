"""A running job leaves a link or site that an operator closes meanwhile, in the same run, if another route exists."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.service.machine_world import (
    REGIONS,
    SLOW_BYTES_PER_S,
    World,
    check_charges,
    machine_lines,
    send,
    when_machines_move,
)
from tests.service.server import eventually, until

RELAY = "site:r"
DIRECT = f"{REGIONS[0]}>{REGIONS[1]}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path_factory.mktemp("closed"), stack, "--share-keys", relays={"r": RELAY})


@pytest.fixture
def client(world: World) -> Iterator[httpx.Client]:
    with world.server.client() as made:
        yield made


def begin(world: World, client: httpx.Client, name: str) -> str:
    """Start a job, and return its id once it moves bytes on the direct link."""
    job_id = send(client, name, via="fleet", limit_bytes_per_s=SLOW_BYTES_PER_S // 2)
    when_machines_move(world, client, job_id)
    assert used(client, job_id) == [list(REGIONS)]
    return job_id


def used(client: httpx.Client, job_id: str) -> list[list[str]]:
    """Return the regions of each route."""
    return [route["regions"] for route in client.get(f"/v1/jobs/{job_id}/plan").json()["routes"]]


def in_use(client: httpx.Client) -> set[str]:
    """Return the links that the scheduler counts running jobs for."""
    return {link["name"] for link in client.get("/v1/links").json()["links"] if link["load"]["jobs"]}


def close(client: httpx.Client, kind: str, name: str, **more: object) -> str:
    made = client.post("/v1/bans", json={"kind": kind, "name": name, "reason": "drill", **more})
    assert made.status_code == 201, made.text
    ban: str = made.json()["id"]
    return ban


def test_a_running_job_leaves_a_link_that_is_banned_in_the_same_run(world: World, client: httpx.Client) -> None:
    job_id = begin(world, client, "moved")
    ban = close(client, "link", DIRECT)
    try:
        eventually(lambda: used(client, job_id) == [[REGIONS[0], RELAY, REGIONS[1]]])
        assert client.get(f"/v1/jobs/{job_id}").json()["state"] == "running"
        eventually(lambda: DIRECT not in in_use(client))
        assert in_use(client) >= {f"{REGIONS[0]}>{RELAY}", f"{RELAY}>{REGIONS[1]}"}
        done = until(client, job_id, "done")
        assert world.copied("moved")
        receipt = client.get(f"/v1/jobs/{job_id}/receipt").json()
        assert [run["outcome"] for run in receipt["runs"]] == ["done"]
        assert len(machine_lines(done)) == 3
        check_charges(client, job_id)
    finally:
        assert client.delete(f"/v1/bans/{ban}").is_success
    world.nothing_is_left(client)


@pytest.mark.slow
def test_a_running_job_stays_if_every_other_route_is_closed_or_too_narrow(world: World, client: httpx.Client) -> None:
    """The scheduler would stop it on a link whose limit is below its rate."""
    job_id = begin(world, client, "stays")
    narrow = {"kind": "link", "name": f"{REGIONS[0]}>{RELAY}", "rate_gbps": SLOW_BYTES_PER_S * 8e-9 / 10}
    assert client.put("/v1/limits", json={"limits": [narrow]}).is_success
    ban = close(client, "link", DIRECT)
    try:
        until(client, job_id, "done")
        assert used(client, job_id) == [list(REGIONS)] and world.copied("stays")
    finally:
        assert client.delete(f"/v1/bans/{ban}").is_success
        assert client.put("/v1/limits", json={"limits": []}).is_success


@pytest.mark.slow
def test_a_job_that_a_ban_stops_is_planned_again_and_runs_around_it(world: World, client: httpx.Client) -> None:
    job_id = begin(world, client, "stopped")
    ban = close(client, "link", DIRECT, stops_jobs=True)
    try:
        done = until(client, job_id, "done")
        assert used(client, job_id) == [[REGIONS[0], RELAY, REGIONS[1]]] and world.copied("stopped")
        receipt = client.get(f"/v1/jobs/{job_id}/receipt").json()
        assert [run["outcome"] for run in receipt["runs"]] == ["interrupted", "done"]
        assert len(machine_lines(done)) == 5, machine_lines(done)
        check_charges(client, job_id)
    finally:
        assert client.delete(f"/v1/bans/{ban}").is_success
    world.nothing_is_left(client)


@pytest.mark.slow
def test_a_job_that_a_ban_stops_waits_for_its_routes_if_there_are_no_others(world: World, client: httpx.Client) -> None:
    job_id = begin(world, client, "waits")
    bans = [close(client, "site", RELAY), close(client, "link", DIRECT, stops_jobs=True)]
    bans.reverse()  # If the relay's site were open first, the job would go there.
    try:
        eventually(lambda: f"link {DIRECT}" in (client.get(f"/v1/jobs/{job_id}").json()["waiting"] or ""))
        for ban in bans:
            assert client.delete(f"/v1/bans/{ban}").is_success
        until(client, job_id, "done")
        assert used(client, job_id) == [list(REGIONS)] and world.copied("waits")
    finally:
        for ban in bans:
            client.delete(f"/v1/bans/{ban}")
