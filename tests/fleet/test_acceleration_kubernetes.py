"""`tradewind accelerate up` in two real clusters: bytes go from this machine through a pod of each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.kubelab import Lab
from testbed.kubelab.install import lab_not_built
from tests.fleet.accelerations import FLOWS, Sink, send, up
from tests.fleet.kube_world import Stage, stage_of
from tests.fleet.worlds import wait_until

pytestmark = pytest.mark.slow
pytest.importorskip("tomllib")

BODY = os.urandom(2_000_000)


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Lab:
    """The clusters. They are not built for this test alone."""
    if reason := lab_not_built():
        pytest.skip(reason)
    found: Lab = request.getfixturevalue("kube_lab")
    return found


@pytest.fixture
def stage(lab: Lab, tmp_path: Path) -> Iterator[Stage]:
    with stage_of(lab, tmp_path) as made:
        yield made


@pytest.fixture
def clusters(stage: Stage, tmp_path: Path) -> Iterator[Command]:
    document = stage.document()
    command = Command(tmp_path / "home")
    lines = ["[kubernetes]", f'kubeconfig = "{document["kubeconfig"]}"', f'home = "{document["home"]}"']
    for cluster in document["clusters"]:
        lines += ["[[kubernetes.clusters]]", f'network = "{cluster["network"]}"', "usd_per_hour = 0.4"]
        lines += [f'{name} = "{cluster[name]}"' for name in ("context", "region", "image", "namespace")]
        lines += [f'{name} = "{cluster[name]}"' for name in ("cpu", "memory")]
    command.configure(*lines)
    yield command
    command.run("accelerate", "down", "--drain", "0s")
    for region in ("r1", "r2"):
        wait_until(lambda region=region: stage.objects(region) == [])  # type: ignore[misc]
    command.wait_until_alone()


def test_flows_go_through_a_pod_of_each_cluster(clusters: Command, lab: Lab) -> None:
    sink = Sink(lab.address)
    try:
        state, _ = up(clusters, FLOWS % sink.address, "-y")
        assert {proxy["region"] for proxy in state["proxies"]} == {"site:a", "site:b"}
        send(state, BODY)
        wait_until(lambda: len(sink.received) == len(BODY))
        assert sink.received == BODY
        ended = clusters.run("accelerate", "down", "--json").expect(0).events[0]
        assert [proxy["bytes_up"] for proxy in ended["proxies"]] == [len(BODY)] * 2
    finally:
        sink.close()


def test_the_proxy_of_a_deleted_pod_is_replaced(clusters: Command, stage: Stage, lab: Lab) -> None:
    sink = Sink(lab.address)

    def phase() -> tuple[set[str], bool]:
        (state,) = clusters.run("accelerate", "status", "--json").expect(0).events
        (flow,) = state["flows"]
        return {proxy["health"] for proxy in state["proxies"]}, flow["through"] == flow["planned"]

    try:
        state, _ = up(clusters, FLOWS % sink.address, "-y")
        pod = stage.kubectl("get", "pods", "-o", "name", region="r2").strip()
        stage.kubectl("delete", pod, "--grace-period=1", region="r2")
        wait_until(lambda: phase() != ({"healthy"}, True))
        wait_until(lambda: phase() == ({"healthy"}, True))
        assert stage.kubectl("get", "pods", "-o", "name", region="r2").strip() not in ("", pod)
        send(state, BODY)
        wait_until(lambda: len(sink.received) == len(BODY))
        assert sink.received == BODY
    finally:
        sink.close()
