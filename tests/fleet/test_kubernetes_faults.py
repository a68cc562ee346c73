"""The Kubernetes provider's fault table, over real clusters: what goes wrong, and what a user learns of it."""

from __future__ import annotations

import json
import os
import secrets
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.kubelab import Lab
from tests.fleet.kube_world import Stage, stage_of
from tests.fleet.worlds import living, wait_until
from tradewind.fleet.kubernetes.refusals import of_status
from tradewind.fleet.provider import CallRefused, Machine, Provider, Quota, Refusal

pytestmark = pytest.mark.slow
LOST_NODE_S = 120.0
FROZEN_S = 120.0
"""Time after which a frozen gateway must have ended, on a busy host."""


@pytest.fixture
def stage(kube_lab: Lab, tmp_path: Path) -> Iterator[Stage]:
    with stage_of(kube_lab, tmp_path) as made:
        yield made


def launched(stage: Stage, provider: Provider, name: str = "one", region: str = "site:a") -> Machine:
    result = stage.launch(provider, name, region)
    assert result.machine is not None, result.refusal
    return result.machine


def with_token(stage: Stage, token: str) -> Path:
    """Return a configuration like the administrator's, with a token instead of the certificate."""
    config = json.loads(stage.lab.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    return written(stage, config)


def written(stage: Stage, config: object) -> Path:
    path = stage.folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


def no_image(stage: Stage) -> Provider:
    return stage.provider(image="local.test/none:1")


def wrong_name_of_an_image(stage: Stage) -> Provider:
    return stage.provider(image="UPPER CASE")


def no_pods_by_quota(stage: Stage) -> Provider:
    stage.kubectl("create", "quota", "none", "--hard=pods=0")
    return stage.provider()


def no_jobs_by_quota(stage: Stage) -> Provider:
    stage.kubectl("create", "quota", "none", "--hard=count/jobs.batch=0")
    # The controller of quotas counts what there is, before it applies.
    wait_until(lambda: "jobs.batch" in stage.kubectl("get", "quota", "none", "-o", "jsonpath={.status.used}"))
    return stage.provider()


def forbidden_by_pod_security(stage: Stage) -> Provider:
    label = "pod-security.kubernetes.io/enforce=restricted"
    stage.lab.kubectl("r1", "label", "namespace", stage.namespace, label, "--overwrite")
    return stage.provider(network="host")


def no_processors(stage: Stage) -> Provider:
    return stage.provider(cpu="64", wait_s=1)


def no_memory(stage: Stage) -> Provider:
    return stage.provider(memory="900Gi", wait_s=1)


def no_such_nodes(stage: Stage) -> Provider:
    return stage.provider(node_selector={"pool": "none"}, wait_s=1)


def no_namespace(stage: Stage) -> Provider:
    return stage.provider(namespace="no-such-namespace")


def no_context(stage: Stage) -> Provider:
    document = stage.document()
    document["clusters"] = [{**document["clusters"][0], "context": "none"}]
    return made(stage, document)


def made(stage: Stage, document: dict[str, Any]) -> Provider:
    from tradewind.fleet.journal import FleetJournal
    from tradewind.fleet.providers import make_provider
    from tradewind.gateway.binary import find_gateway

    return make_provider(document, find_gateway(), FleetJournal(stage.folder / "state"))


def no_kubeconfig(stage: Stage) -> Provider:
    return stage.provider(stage.folder / "none")


def expired_token(stage: Stage) -> Provider:
    """A token that the API server does not know, or not any more, gets the same answer."""
    return stage.provider(with_token(stage, secrets.token_hex(16)))


def another_ca(stage: Stage) -> Provider:
    config = json.loads(stage.lab.kubeconfig.read_text())
    first, second, *_ = (cluster["cluster"] for cluster in config["clusters"])
    first["certificate-authority-data"] = second["certificate-authority-data"]
    return stage.provider(written(stage, config))


def no_server(stage: Stage) -> Provider:
    config = json.loads(stage.lab.kubeconfig.read_text())
    for cluster in config["clusters"]:
        cluster["cluster"]["server"] = "https://127.0.0.1:1"
    return stage.provider(written(stage, config))


FAULTS: dict[Callable[[Stage], Provider], tuple[str, str, str | None]] = {
    no_image: ("bad request", "the image local.test/none:1 cannot be pulled", None),
    wrong_name_of_an_image: ("bad request", "the image UPPER CASE cannot be pulled", None),
    no_pods_by_quota: ("quota", "exceeded quota: none", None),
    no_jobs_by_quota: ("quota", "exceeded quota: none", None),
    forbidden_by_pod_security: ("bad request", 'violates PodSecurity "restricted:latest": host namespaces', None),
    no_processors: ("capacity", "no node can run the gateway: 0/1 nodes are available: 1 Insufficient cpu", None),
    no_memory: ("capacity", "1 Insufficient memory", None),
    no_such_nodes: ("bad request", "didn't match Pod's node affinity/selector", None),
    no_namespace: ("bad request", 'namespaces "no-such-namespace" not found', None),
    no_context: ("bad request", "none", "a valid login: `kubectl --context none auth whoami` must work"),
    no_kubeconfig: ("bad request", "none", "a valid login: `kubectl --context r1 auth whoami` must work"),
    expired_token: ("permission", "Unauthorized", "a valid login: `kubectl --context r1 auth whoami` must work"),
    another_ca: ("bad request", "the certificate of the API server is not accepted", None),
    no_server: ("transient", "the API server does not answer", None),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_launch_that_fails_says_why_and_leaves_nothing(stage: Stage, fault: Callable[[Stage], Provider]) -> None:
    result = stage.launch(fault(stage))
    assert result.machine is None and result.refusal is not None
    kind, words, action = FAULTS[fault]
    assert (result.refusal.kind, result.refusal.action) == (kind, action), result.refusal
    assert words in result.refusal.reason and "\n" not in result.refusal.reason
    wait_until(
        lambda: [left for left in stage.provider().leftovers() if left.tags["tradewind-owner"] == stage.owner] == []
    )


def test_a_second_gateway_on_a_node_finds_no_free_port(stage: Stage) -> None:
    provider = stage.provider(network="host", wait_s=1)
    launched(stage, provider)
    refusal = stage.launch(provider, "two").refusal
    assert refusal is not None and refusal.kind == "capacity" and "free ports" in refusal.reason, refusal
    assert [machine.name for machine in living(provider, "faults")] == ["one"]


def test_a_cluster_that_adds_nodes_gets_time_to_do_so(stage: Stage) -> None:
    """The machine counts as launched. It starts when the cluster has room, here because a node gets a label."""
    pool = secrets.token_hex(4)
    provider = stage.provider(node_selector={"new": pool}, autoscales=True, wait_s=1)
    machine = launched(stage, provider)
    assert machine.control is None and machine.running_unix_s is None and not machine.ended
    stage.lab.kubectl("r1", "label", "node", "r1-n0", f"new={pool}", "--overwrite")
    wait_until(lambda: living(provider, "faults")[0].control is not None)
    # Listing the machine confirms it as soon as it runs.
    wait_until(lambda: living(provider, "faults") != [] and stage.kubectl("get", "secrets", "-o", "name") == "")
    deadline = stage.kubectl("get", "jobs", "-o", "jsonpath={.items[0].spec.activeDeadlineSeconds}")
    assert int(deadline) == 24 * 3600 + 60, "the machine is not confirmed"


def test_the_join_document_is_gone_when_the_machine_runs(stage: Stage) -> None:
    launched(stage, stage.provider())
    assert stage.kubectl("get", "secrets", "-o", "name") == ""


def test_a_job_whose_client_died_before_its_secret_is_made_again(stage: Stage) -> None:
    """Such a Job has no machine: its pod waits for a join document that nobody makes."""
    from tradewind.fleet.kubernetes.objects import job, job_name
    from tradewind.model.kubernetes import KubeCluster

    order = stage.order()
    cluster = KubeCluster("r1", "site:a", "local.test/none:1", stage.namespace, cpu="64")
    stage.kubectl("create", "-f", "-", given=json.dumps(job(order, cluster, {})))
    assert launched(stage, stage.provider()).id == f"r1/{job_name(order)}"


def test_a_refused_order_can_be_repeated_at_once(stage: Stage) -> None:
    """The pod of its first Job still ends, and has the same labels as that of the second."""
    provider = stage.provider(network="host")
    first = launched(stage, provider)
    stage.kubectl("delete", "job", first.id.rpartition("/")[2], "--wait=false")
    again = launched(stage, stage.provider())
    assert again.id == first.id and not again.ended
    wait_until(lambda: len(stage.kubectl("get", "pods", "-o", "name").split()) == 1)
    assert [machine.id for machine in living(provider, "faults")] == [first.id]


def test_a_deleted_pod_is_the_end_of_its_machine(stage: Stage) -> None:
    """As when its node is drained. Nothing replaces it but the fleet."""
    provider = stage.provider()
    machine = launched(stage, provider)
    stage.kubectl("delete", "pods", "--all", "--wait=false")
    wait_until(lambda: living(provider, "faults") == [])
    host = provider.host(machine)
    assert host is not None and host.ending(10.0)
    wait_until(lambda: "Failed" in stage.kubectl("get", "jobs", "-o", "jsonpath={.items[*].status.conditions[*].type}"))
    assert stage.kubectl("get", "jobs", "-o", "jsonpath={.items[*].status.failed}") == "1"


def process_of(pod: str) -> int:
    """Return the id, on this host, of the gateway that runs in a pod."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words, variables = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except OSError:
            continue  # It has just ended.
        if b"\0serve\0" in words and f"HOSTNAME={pod}".encode() in variables.split(b"\0"):
            return int(folder.name)
    raise AssertionError(f"no gateway runs in {pod}")


def test_a_frozen_gateway_is_ended_and_its_neighbour_lives(stage: Stage) -> None:
    """Nobody has to renew or list anything for that: the owner may be gone."""
    provider = stage.provider()
    frozen, _ = launched(stage, provider, "one"), launched(stage, provider, "two")
    job = frozen.id.rpartition("/")[2]
    pod = stage.kubectl("get", "pods", "-l", f"batch.kubernetes.io/job-name={job}", "-o", "name").strip()
    os.kill(process_of(pod.removeprefix("pod/")), signal.SIGSTOP)
    wait_until(lambda: [machine.name for machine in living(provider, "faults")] == ["two"], FROZEN_S)
    host = provider.host(frozen)
    assert host is not None and "a gateway that stands still is killed" in (host.ending(10.0) or "")
    failed = "jsonpath={.status.conditions[?(@.type=='Failed')].status}"
    wait_until(lambda: stage.kubectl("get", "job", job, "-o", failed) == "True")
    assert "the gateway has stood still for" in stage.kubectl("get", "events", "-o", "jsonpath={.items[*].message}")


def test_a_deadline_ends_a_machine_and_is_named(stage: Stage) -> None:
    provider = stage.provider()
    machine = launched(stage, provider)
    change = '{"spec":{"activeDeadlineSeconds":1}}'
    stage.kubectl("patch", "job", machine.id.rpartition("/")[2], "--type=merge", "-p", change)
    wait_until(lambda: living(provider, "faults") == [])
    host = provider.host(machine)
    assert host is not None
    wait_until(lambda: "deadline" in (host.ending(0.0) or ""))


def test_a_gateway_that_ends_at_once_says_why(stage: Stage) -> None:
    """Its join document has an address that is not that of the machine."""
    provider = stage.provider(network="host")
    first = launched(stage, provider)
    assert first.addresses == {"node": "172.29.1.10"}
    provider.terminate([first.id])
    refusal = stage.launch(stage.provider(network="host", memory="4Mi")).refusal
    assert refusal is not None and refusal.kind in ("bad request", "transient"), refusal
    assert "the gateway ended at once" in refusal.reason or "cannot start" in refusal.reason


@pytest.mark.alone
@pytest.mark.host
def test_gateways_outlive_the_api_server(stage: Stage) -> None:
    provider = stage.provider()
    machine = launched(stage, provider)
    stage.lab.stop_api("r1")
    try:
        with pytest.raises(CallRefused, match="r1: the API server does not answer") as caught:
            provider.machines({})
        assert caught.value.refusal.kind == "transient"
        refusal = stage.launch(provider, "two").refusal
        assert refusal is not None and refusal.kind == "transient", refusal
        assert provider.terminate([machine.id])[0].refusal is not None
        assert provider.quota("site:b") == Quota(4, 0), "the other cluster answers"
    finally:
        stage.lab.start_api("r1")
    assert [found.id for found in living(provider, "faults")] == [machine.id]
    assert provider.terminate([machine.id])[0].refusal is None


@pytest.mark.alone
@pytest.mark.host
def test_a_machine_ends_with_its_node(stage: Stage) -> None:
    provider = stage.provider()
    machine = launched(stage, provider, region="site:relay")
    node = stage.kubectl("get", "pods", "-o", "jsonpath={.items[0].spec.nodeName}", region="r3")
    number = int(node.removeprefix("r3-n"))
    stage.lab.stop_node("r3", number)
    try:
        wait_until(lambda: living(provider, "faults") == [], LOST_NODE_S)
        assert provider.terminate([machine.id])[0].refusal is None
        assert [left for left in provider.leftovers() if left.id == machine.id] == []
    finally:
        stage.lab.start_node("r3", number)


def test_the_kind_of_other_answers() -> None:
    """Answers that no cluster of the lab gives."""
    denied = 'admission webhook "images.example" denied the request: only signed images'
    table: dict[tuple[int, str], str] = {
        (429, "too many requests"): "throttled",
        (400, denied): "bad request",
        (403, denied): "bad request",
        (500, denied): "bad request",
        (500, "etcdserver: leader changed"): "transient",
        (503, "the server is currently unable to handle the request"): "transient",
        (418, "a teapot"): "transient",
    }
    for (code, message), kind in table.items():
        assert of_status("c", code, message, {}).kind == kind, message
    assert of_status("c", 429, "slow down", {"Retry-After": "7"}) == Refusal("throttled", "c: slow down", None, 7.0)


def test_the_library_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from tradewind.errors import GatewayError
    from tradewind.fleet.kubernetes.calls import require_lightkube

    monkeypatch.setitem(sys.modules, "lightkube", None)
    with pytest.raises(GatewayError, match="the kubernetes provider needs lightkube") as caught:
        require_lightkube()
    assert caught.value.hint == "pip install 'tradewind[kubernetes]'"
