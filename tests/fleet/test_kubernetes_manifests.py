"""Objects in a cluster, and the printed permissions, as documents: no cluster is needed."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind.fleet.kubernetes.machines import Found
from tradewind.fleet.kubernetes.objects import job, job_name, named_service, secret, service
from tradewind.fleet.kubernetes.policy import policy
from tradewind.fleet.provider import LaunchOrder, Lease
from tradewind.model.kubernetes import KubeCluster, Toleration

yaml = pytest.importorskip("yaml", reason="the client of Kubernetes, which has a reader of YAML, is not installed")
SILENCE_S = 30
"""`SILENCE_MAX` of the gateway."""
CLUSTER = KubeCluster("c", "site:a", "image:1", "transfers")


def order(key: str = "key", fleet: str = "fleet") -> LaunchOrder:
    return LaunchOrder(fleet, "one", "site:a", key, 1, Lease(60, "me"), peers=("lead",))


def pod_of(cluster: KubeCluster) -> dict[str, Any]:
    spec: dict[str, Any] = job(order(), cluster, {"control": 1, "data": 2})["spec"]["template"]["spec"]
    return spec


def test_a_name_follows_from_the_order() -> None:
    assert job_name(order()) == job_name(order())
    assert len({job_name(order()), job_name(order("other")), job_name(order(fleet="other"))}) == 3


def test_the_join_document_is_only_in_the_secret_which_the_job_owns() -> None:
    made = secret(order(), CLUSTER, "uid", "the document")
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", job_name(order()), "uid")
    assert "the document" not in str(job(order(), CLUSTER, {}))


def test_a_named_service_is_no_machine_and_ends_with_its_job() -> None:
    made = named_service("tradewind-1", CLUSTER, "uid", "backup", {443: 20443})
    assert made["metadata"]["name"] == "backup" and made["metadata"]["ownerReferences"][0]["uid"] == "uid"
    assert "tradewind-fleet" not in made["metadata"]["labels"]
    assert made["spec"]["ports"] == [{"name": "port-443", "port": 443, "targetPort": 20443}]


def test_only_pods_of_the_network_host_use_ports_of_their_node() -> None:
    for network, is_host in (("host", True), ("service", False), ("out", False)):
        pod = pod_of(KubeCluster("c", "site:a", "image:1", network=network))  # type: ignore[arg-type]
        assert pod["hostNetwork"] is is_host
        assert all(("hostPort" in port) is is_host for port in pod["containers"][0]["ports"])


def test_a_pod_has_no_rights() -> None:
    pod = pod_of(CLUSTER)
    assert pod["automountServiceAccountToken"] is False and pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_gateway_that_stands_still_is_killed_in_about_a_minute_and_a_busy_one_is_not() -> None:
    pod = pod_of(CLUSTER)
    (container,) = pod["containers"]
    probe, args = container["livenessProbe"], container["args"]
    folder = args[args.index("--alive-dir") + 1]
    assert probe["exec"]["command"] == [f"{folder}/gateway", "alive", folder]
    (mount,) = (mount for mount in container["volumeMounts"] if mount["mountPath"] == folder)
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == mount["name"])
    assert volume["emptyDir"]["medium"] == "Memory"  # A disk that hangs would look like a gateway that does.
    assert pod["restartPolicy"] == "Never"  # Otherwise a killed gateway would start again, without a valid token.
    checks_s = probe["periodSeconds"] * probe["failureThreshold"]
    assert SILENCE_S + checks_s + pod["terminationGracePeriodSeconds"] <= 90
    # It may be late by this, and a busy node may take as long to start three checks in a row.
    assert SILENCE_S + checks_s - probe["periodSeconds"] >= 45
    assert probe["timeoutSeconds"] * probe["failureThreshold"] >= 60


def test_the_end_of_a_killed_gateway_is_not_explained_by_its_log() -> None:
    def ending(code: int, reason: str) -> str | None:
        ended = {"exitCode": code, "reason": reason, "message": '{"control": "0.0.0.0:1"}'}
        pod = {
            "metadata": {},
            "status": {"phase": "Failed", "containerStatuses": [{"name": "gateway", "state": {"terminated": ended}}]},
        }
        return Found("one", {"metadata": {}}, pod).ending()

    assert ending(137, "Error") == (
        "its process was killed; a gateway that stands still is killed after a minute (Error, exit code 137)"
    )
    assert ending(1, "Error") == '{"control": "0.0.0.0:1"} (Error, exit code 1)'
    assert ending(137, "OOMKilled") == '{"control": "0.0.0.0:1"} (OOMKilled, exit code 137)'


def test_a_service_account_gives_a_pod_a_workload_identity_and_no_access_to_the_cluster() -> None:
    """EKS and Azure add a token that is only for the cloud, Google has a metadata server: none needs an API token."""
    made = job(order(), KubeCluster("c", "site:a", "image:1", service_account="mover"), {})["spec"]["template"]
    assert made["spec"]["serviceAccountName"] == "mover"
    assert made["spec"]["automountServiceAccountToken"] is False
    assert made["metadata"]["labels"]["azure.workload.identity/use"] == "true"
    plain = job(order(), CLUSTER, {})["spec"]["template"]
    assert "serviceAccountName" not in plain["spec"]
    assert not any(label.startswith("azure") for label in plain["metadata"]["labels"])


def test_nodes_are_chosen_as_configured() -> None:
    cluster = KubeCluster("c", "site:a", "i", node_selector={"pool": "x"}, tolerations=(Toleration("t", "v"),))
    pod = pod_of(cluster)
    assert pod["nodeSelector"]["pool"] == "x"
    assert {"key": "t", "operator": "Equal", "value": "v"} in pod["tolerations"]


def test_a_service_of_a_load_balancer_has_no_node_ports() -> None:
    balanced = KubeCluster("c", "site:a", "i", network="service", service="LoadBalancer")
    ports = service(order(), balanced, "uid", {"control": 7442})["spec"]["ports"]
    assert ports == [{"name": "control", "port": 7442, "targetPort": 7442}]


@pytest.mark.parametrize("namespace", ["transfers", "123", "no", "1e3"])
def test_the_printed_permissions_are_yaml(namespace: str) -> None:
    documents = list(
        yaml.safe_load_all(policy(KubeCluster("c", "site:a", "image", namespace, external_addresses=True)))
    )
    kinds = ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]
    assert [document["kind"] for document in documents] == kinds
    assert documents[1]["metadata"]["namespace"] == documents[2]["subjects"][0]["namespace"] == namespace


def test_permissions_can_be_bound_to_a_user() -> None:
    user = {"kind": "User", "name": "you@example.com"}
    role, binding = yaml.safe_load_all(policy(CLUSTER, user))
    group = "rbac.authorization.k8s.io"
    assert role["kind"] == "Role" and binding["subjects"] == [{"apiGroup": group, **user}]
