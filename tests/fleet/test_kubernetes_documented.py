"""Answers and states of Kubernetes that no cluster of the lab gives, by its documentation and its issues."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fleet.orders import OWNER
from tradewind.fleet.kubernetes.machines import Found
from tradewind.fleet.kubernetes.objects import CONTAINER, job
from tradewind.fleet.kubernetes.refusals import of_event, of_status, of_waiting
from tradewind.fleet.provider import LaunchOrder, Lease
from tradewind.model.kubernetes import KubeCluster

CLUSTER = KubeCluster("c", "site:a", "image:1", "transfers")
MODIFIED = (
    'Operation cannot be fulfilled on resourcequotas "q": the object has been modified; '
    "please apply your changes to the latest version and try again"
)
UNSTATED = 'pods "x" is forbidden: failed quota: q: must specify limits.cpu for: gateway; requests.ephemeral-storage'
POLICY = "jobs.batch \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no Jobs here"


def template(cluster: KubeCluster = CLUSTER) -> dict[str, Any]:
    order = LaunchOrder("fleet", "one", "site:a", "key", 1, Lease(60, OWNER), peers=("lead",))
    made: dict[str, Any] = job(order, cluster, {})["spec"]["template"]
    return made


def pod(*containers: tuple[str, dict[str, Any]], **status: Any) -> Found:
    statuses = [{"name": name, "state": state} for name, state in containers]
    return Found("one", {"metadata": {}}, {"metadata": {}, "status": {"containerStatuses": statuses, **status}})


def test_objects_that_are_made_at_the_same_time_under_a_quota_are_made_again() -> None:
    """The API server counts them in one object, and refuses those that find it changed."""
    assert of_status("c", 409, MODIFIED, {}).kind == "transient"
    event = of_event("c", "FailedCreate", f"Error creating: {MODIFIED}")
    assert event is not None and event.kind == "transient"


def test_a_quota_of_what_the_pod_does_not_state_is_no_lack_of_room() -> None:
    """Fewer machines would not help."""
    event = of_event("c", "FailedCreate", f"Error creating: {UNSTATED}")
    assert event is not None and event.kind == "bad request" and "must specify limits.cpu" in event.reason
    assert of_status("c", 403, UNSTATED, {}).kind == "bad request"


def test_a_policy_of_the_cluster_is_no_missing_permission() -> None:
    for code in (403, 422):
        refusal = of_status("c", code, POLICY, {})
        assert (refusal.kind, refusal.action) == ("bad request", None)


def test_an_overloaded_server_says_when_to_ask_again() -> None:
    """Also with 503 and 504, as while it restarts."""
    assert of_status("c", 429, "too many requests", {"Retry-After": "3"}).retry_after_s == 3.0
    assert of_status("c", 503, "not ready", {"Retry-After": "5"}).retry_after_s == 5.0
    # A list whose first pages are older than five minutes cannot be continued.
    assert of_status("c", 410, "The provided continue parameter is too old", {}).kind == "transient"


@pytest.mark.parametrize(
    ("reason", "is_late", "kind"),
    [
        ("ErrImagePull", False, None),
        ("RegistryUnavailable", False, None),
        ("RegistryUnavailable", True, "bad request"),
        ("SignatureValidationFailed", False, "bad request"),
        ("ImagePullBackOff", False, "bad request"),
        ("PodInitializing", True, None),
    ],
)
def test_why_an_image_is_not_there(reason: str, is_late: bool, kind: str | None) -> None:
    found = of_waiting("c", "image:1", reason, "words", is_late)
    assert (None if found is None else found.kind) == kind


def test_the_gateway_is_told_from_containers_that_others_add() -> None:
    """They are listed by name, and may run longer than the gateway."""
    ended = {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:00Z"}}
    found = pod(("datadog-agent", {"running": {}}), (CONTAINER, ended), phase="Running")
    assert found.is_ended and not found.is_running
    waiting = pod(("a-proxy", {"running": {}}), (CONTAINER, {"waiting": {"reason": "ContainerCreating"}}))
    assert not waiting.is_running and not waiting.is_ended


def test_no_service_mesh_adds_a_container() -> None:
    """It would keep the pod after its gateway, and gateways seal their connections themselves."""
    metadata = template()["metadata"]
    assert metadata["labels"]["sidecar.istio.io/inject"] == "false"
    assert metadata["annotations"]["linkerd.io/inject"] == "disabled"


def test_no_autoscaler_moves_a_gateway() -> None:
    annotations = template()["metadata"]["annotations"]
    assert annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    assert annotations["karpenter.sh/do-not-disrupt"] == "true"


def test_nodes_of_other_systems_are_not_chosen() -> None:
    assert template()["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    chosen = KubeCluster("c", "site:a", "image:1", node_selector={"pool": "x"})
    assert template(chosen)["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "x"}


def test_an_evicted_gateway_is_a_lack_of_room_whatever_its_exit_code() -> None:
    """As under disk or memory pressure of its node, or past a limit of ephemeral storage."""
    killed = {"terminated": {"exitCode": 137, "reason": "Error"}}
    evicted = pod(
        (CONTAINER, killed), phase="Failed", reason="Evicted", message="The node was low on resource: memory."
    )
    refusal = evicted.refusal(CLUSTER, is_late=False)
    assert refusal is not None and refusal.kind == "capacity" and "low on resource: memory" in refusal.reason


def test_a_node_that_shuts_down_is_no_fault_of_the_gateway() -> None:
    words = "Pod was terminated in response to imminent node shutdown."
    killed = {"terminated": {"exitCode": 143, "reason": "Error"}}
    refusal = pod((CONTAINER, killed), phase="Failed", reason="Terminated", message=words).refusal(
        CLUSTER, is_late=False
    )
    assert refusal is not None and refusal.kind == "transient", refusal
