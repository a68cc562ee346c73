"""`tradewind accelerate up` in two real clusters: bytes go from this machine through a pod of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.drive import Command
from testbed.kubelab import Lab
from testbed.kubelab.install import lab_not_built
from tests.fleet.accelerations import FLOWS, Sink, send, up
from tests.fleet.kube_world import Stage, stage_of
from tests.fleet.worlds import wait_until
from tradewind.fleet.kubernetes.policy import ROLE, policy
from tradewind.model.kubernetes import KubeCluster, kubernetes_from_document

pytestmark = pytest.mark.slow
pytest.importorskip("tomllib")

BODY = os.urandom(2_000_000)
#: The flow of a cluster, whose programs connect to its Service.
OF_CLUSTER = (
    FLOWS.replace('source = "here"', 'source = "site:relay"')
    + 'listen = "backup:443"\nclients = ["172.29.0.0/16", "10.0.0.0/8"]\n'
)
#: Sends standard input to a host and port.
SEND = "import socket, sys; socket.create_connection(tuple(sys.argv[1:]), 10).sendall(sys.stdin.buffer.read())"

#: A Service that is not Tradewind's.
THEIRS = {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "backup"}, "spec": {"ports": [{"port": 443}]}}


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
    for region in ("r1", "r2", "r3"):
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


@pytest.mark.parametrize("network", ["service", "out", "host"])
def test_flows_of_a_cluster_enter_at_its_service(clusters: Command, stage: Stage, lab: Lab, network: str) -> None:
    before, relay, after = clusters.configuration.read_text().rpartition('network = "service"')
    clusters.configuration.write_text(before + relay.replace("service", network) + after)
    sink = Sink(lab.address)

    def send_there() -> None:
        address = stage.kubectl("get", "service", "backup", "-o", "jsonpath={.spec.clusterIP}", region="r3")
        words = [*lab.in_network_of("r3"), sys.executable, "-c", SEND, address, "443"]
        # The nodes learn of a new Service, and of its pod, a moment later.
        wait_until(lambda: subprocess.run(words, input=BODY, check=False, timeout=30).returncode == 0)

    def flow() -> dict[str, Any]:
        (state,) = clusters.run("accelerate", "status", "--json").expect(0).events
        (found,) = state["flows"]
        return dict(found)

    try:
        state, _ = up(clusters, OF_CLUSTER % sink.address, "-y")
        assert (flow()["listen"], flow()["region"]) == ("backup:443", "site:relay")
        assert {proxy["region"] for proxy in state["proxies"]} == {"site:a", "site:b"}
        send_there()
        wait_until(lambda: sink.received == BODY)
        wait_until(lambda: flow()["bytes_up"] == len(BODY))

        pod = stage.kubectl("get", "pods", "-o", "name", region="r3").strip()
        stage.kubectl("delete", pod, "--grace-period=1", region="r3")
        wait_until(lambda: "reason" in flow())
        wait_until(lambda: "reason" not in flow())
        send_there()
        wait_until(lambda: sink.received == BODY * 2)
        ended = clusters.run("accelerate", "down", "--json").expect(0).events[0]
        assert ended["flows"][0]["bytes_up"] == 2 * len(BODY)
        wait_until(lambda: stage.kubectl("get", "services,jobs,pods", "-o", "name", region="r3") == "")
    finally:
        sink.close()


def role_of(cluster: KubeCluster, services: list[str]) -> str:
    """Return the manifests of the printed permissions, with these for Services too."""
    printed = policy(cluster)
    line = '{"apiGroups": [""], "resources": ["events"], "verbs": ["list"]}'
    more = json.dumps({"apiGroups": [""], "resources": ["services"], "verbs": services})
    assert printed.count(line) == 1 and "services" not in printed
    return printed.replace(line, f"{line}\n- {more}") if services else printed


def as_service_account(stage: Stage) -> Path:
    """Return the kubeconfig of the service accounts of the printed permissions."""
    config = json.loads(stage.lab.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": stage.kubectl("create", "token", ROLE, region=user["name"]).strip()}
    path = stage.folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


def refused_up(clusters: Command, stage: Stage) -> str:
    """Return why `up` is refused. It leaves nothing in the cluster of the entrance."""
    refused = clusters.run("accelerate", "up", "--flows", clusters.home / "flows.toml", "--detach", "-y")
    assert refused.code != 0
    wait_until(lambda: stage.objects("r3") == [])
    return refused.stderr


def test_an_entrance_on_the_network_of_its_node_needs_the_printed_role_and_services(
    clusters: Command, stage: Stage, lab: Lab
) -> None:
    document = stage.document()
    document["clusters"][2]["network"] = "host"
    first, second, relay = kubernetes_from_document(document).clusters
    for cluster in (first, second):
        lab.apply(cluster.context, policy(cluster))
    lab.apply(relay.context, role_of(relay, []))
    text = clusters.configuration.read_text().replace(str(lab.kubeconfig), str(as_service_account(stage)))
    before, network, after = text.rpartition('network = "service"')
    clusters.configuration.write_text(before + network.replace("service", "host") + after)
    sink = Sink(lab.address)
    try:
        flows = OF_CLUSTER % sink.address
        (clusters.home / "flows.toml").write_text(flows)
        assert f"create services in namespace {stage.namespace}" in refused_up(clusters, stage)
        # A Service of that name is there: only a list says whose it is.
        stage.kubectl("apply", "-f", "-", given=json.dumps(THEIRS), region="r3")
        lab.apply(relay.context, role_of(relay, ["create"]))
        assert f"list services in namespace {stage.namespace}" in refused_up(clusters, stage)
        stage.kubectl("delete", "service", "backup", region="r3")
        lab.apply(relay.context, role_of(relay, ["create", "list"]))
        up(clusters, flows, "-y")
        address = stage.kubectl("get", "service", "backup", "-o", "jsonpath={.spec.clusterIP}", region="r3")
        pod, *others = json.loads(stage.kubectl("get", "pods", "-o", "json", region="r3"))["items"]
        assert pod["spec"]["hostNetwork"] is True and not others
        words = [*lab.in_network_of("r3"), sys.executable, "-c", SEND, address, "443"]
        wait_until(lambda: subprocess.run(words, input=BODY, check=False, timeout=30).returncode == 0)
        wait_until(lambda: sink.received == BODY)
    finally:
        sink.close()


def test_a_service_of_somebody_else_is_left_alone(clusters: Command, stage: Stage, lab: Lab) -> None:
    stage.kubectl("apply", "-f", "-", given=json.dumps(THEIRS), region="r3")
    (clusters.home / "flows.toml").write_text(OF_CLUSTER % f"{lab.address}:9")
    refused = clusters.run("accelerate", "up", "--flows", clusters.home / "flows.toml", "--detach", "-y")
    assert refused.code != 0
    assert f"namespace {stage.namespace} has a Service backup that is not Tradewind's" in refused.stderr
    assert stage.kubectl("get", "services,jobs,pods", "-o", "name", region="r3").split() == ["service/backup"]
    assert stage.objects("r1") == stage.objects("r2") == []


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
