"""The client is killed at every call to a real API server in turn. Nothing outlives its lease unnoticed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.kubelab import Lab
from testbed.kubelab.proxy import ApiProxy, api_proxy
from tests.fleet.kube_orders import JOINS, LEASE_S, write_joins
from tests.fleet.kube_world import Stage, stage_of
from tests.fleet.orders import FLEET
from tests.fleet.orphan_client import Client, Clients, clients_of
from tests.fleet.worlds import wait_until
from tradewind.fleet.provider import FLEET_TAG
from tradewind.fleet.providers.kubernetes import DEADLINE_MARGIN_S, ENDED_JOB

pytestmark = pytest.mark.slow
#: Machines of one client.
NAMES = ("one", "two")
#: The longest that a pod may run if its gateway does not end (`longest_h`), and a margin.
DEADLINE_S = 24 * 3600 + DEADLINE_MARGIN_S


@pytest.fixture
def stage(kube_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with stage_of(kube_lab, tmp_path) as made:
        joins = tmp_path / "joins"
        write_joins(joins, {name: made.enrolment.join(name, name) for name in NAMES})
        monkeypatch.setenv(JOINS, str(joins))
        yield made


def client_of(stage: Stage, proxy: ApiProxy, clients: Clients, folder: Path) -> Client:
    folder.mkdir()
    config = folder / "kubeconfig"
    config.write_text(proxy.kubeconfig("r1"), encoding="utf-8")
    document = stage.document(config)
    document["clusters"] = [each for each in document["clusters"] if each["context"] == "r1"]
    return clients.start(document, folder / "state", *NAMES)


def objects(stage: Stage) -> list[dict[str, Any]]:
    """Return all objects that machines consist of, whether labelled or not."""
    found = json.loads(stage.kubectl("get", "jobs,pods,services,secrets", "-o", "json"))["items"]
    return [each for each in found if "tradewind" in json.dumps(each["metadata"])]


def test_a_client_that_is_killed_at_any_call_leaves_nothing_unseen(stage: Stage) -> None:
    """It is killed when the API server has carried the call out: nobody reads the answer."""
    with (
        api_proxy(stage.lab.kubeconfig, "r1") as proxy,
        clients_of("tests.fleet.kube_orders", "lightkube") as clients,
    ):
        proxy.begin(None)
        assert client_of(stage, proxy, clients, stage.folder / "whole").exit_code() == 0
        wait_until(lambda: objects(stage) == [])
        calls = proxy.calls
        assert {"POST jobs", "POST secrets", "POST services", "DELETE jobs"} <= set(calls)
        # Polls repeat each other: the first of each kind stands for all.
        points = [n for n, call in enumerate(calls) if not call.startswith("GET") or call not in calls[:n]]
        killed = 0
        for point in points:
            proxy.begin(point)
            client = client_of(stage, proxy, clients, stage.folder / str(point))
            try:
                wait_until(lambda client=client: proxy.holds or client.has_ended())  # type: ignore[misc]
                killed += client.kill()
            finally:
                proxy.release()
            check_that_nothing_is_unseen(stage, f"killed at call {point}, {calls[point]}")
        # The number of polls differs each time; the last calls may not be made.
        assert killed >= len(points) * 0.7


def check_that_nothing_is_unseen(stage: Stage, when: str) -> None:
    jobs = [each for each in objects(stage) if each["kind"] == "Job"]
    for job in jobs:
        (container,) = job["spec"]["template"]["spec"]["containers"]
        lease = container["args"].index("--lease-s")
        assert container["args"][lease + 1] == str(LEASE_S), f"{when}: a gateway does not end with its lease"
        assert job["spec"]["activeDeadlineSeconds"] <= DEADLINE_S, f"{when}: a pod may stay for longer than a day"
        assert job["spec"]["ttlSecondsAfterFinished"] >= 0, f"{when}: a Job stays after its end"
    names = {job["metadata"]["uid"] for job in jobs}
    for each in objects(stage):
        owners = {owner["uid"] for owner in each["metadata"].get("ownerReferences", ())}
        assert each["kind"] == "Job" or owners, f"{when}: {each['kind']} {each['metadata']['name']} has no owner"
    stranger = stage.provider()
    found = stranger.leftovers()
    assert len([left for left in found if left.kind in ("machine", ENDED_JOB)]) == len(names), when
    assert {left.tags[FLEET_TAG] for left in found} <= {FLEET}, when
    assert [one.refusal for one in stranger.terminate([left.id for left in found]) if one.refusal] == [], when
    wait_until(lambda: objects(stage) == [])
    assert stranger.leftovers() == (), when
