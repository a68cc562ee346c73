"""The printed permissions suffice, and each of them is needed and named if it is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.kubelab import Lab
from tests.fleet.kube_world import REGIONS, Stage, stage_of
from tests.fleet.worlds import living, wait_until
from tradewind.errors import GatewayError
from tradewind.fleet.kubernetes.policy import ROLE, policy, rules
from tradewind.fleet.provider import CallRefused, Checking, Provider
from tradewind.model.kubernetes import KubeCluster, kubernetes_from_document

pytestmark = pytest.mark.slow
PERMISSIONS = [
    (rule["resources"][0], verb)
    for rule in rules(KubeCluster("c", "site:a", "image", network="service"))
    for verb in rule["verbs"]
]


@pytest.fixture
def stage(kube_lab: Lab, tmp_path: Path) -> Iterator[Stage]:
    """Namespaces with the printed permissions, bound to the printed service account."""
    with stage_of(kube_lab, tmp_path, "restricted") as made:
        for cluster in kubernetes_from_document(made.document()).clusters:
            made.lab.apply(cluster.context, policy(cluster))
        yield made


def restricted(stage: Stage, **changes: Any) -> Provider:
    """Return the provider as the service account."""
    config = json.loads(stage.lab.kubeconfig.read_text())
    for user in config["users"]:
        token = stage.kubectl("create", "token", ROLE, region=user["name"]).strip()
        user["user"] = {"token": token}
    path = stage.folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return stage.provider(path, **changes)


def remove(stage: Stage, resource: str, verb: str) -> None:
    """Remove one permission from the role."""
    role = json.loads(stage.kubectl("get", "role", ROLE, "-o", "json"))
    for rule in role["rules"]:
        if rule["resources"] == [resource]:
            rule["verbs"] = [each for each in rule["verbs"] if each != verb]
    role["rules"] = [rule for rule in role["rules"] if rule["verbs"]]
    stage.kubectl("replace", "-f", "-", given=json.dumps(role))


def use(stage: Stage, provider: Provider) -> None:
    """Let a machine live and end, and another one fail. Raises CallRefused for the first permission that is missing."""
    result = stage.launch(provider)
    if result.refusal is not None:
        raise CallRefused(result.refusal)
    assert result.machine is not None
    host = provider.host(result.machine)
    assert host is not None
    try:
        wait_until(lambda: "control" in host.log_tail(2000))
    except GatewayError as error:
        assert isinstance(error.__cause__, CallRefused)
        raise error.__cause__ from error
    # The answer to the first call is lost, and the machine has ended before it is ordered again.
    stage.kubectl("delete", "pods", "--all")
    wait_until(lambda: living(provider, "faults") == [])
    again = stage.launch(provider)
    if again.refusal is not None:
        raise CallRefused(again.refusal)
    assert again.machine is not None
    stage.kubectl("create", "quota", "none", "--hard=pods=1")
    crowded = stage.launch(provider, "two")
    assert crowded.refusal is not None
    if crowded.refusal.kind == "permission":
        raise CallRefused(crowded.refusal)
    assert crowded.refusal.kind == "quota", crowded.refusal
    (ended,) = provider.terminate([again.machine.id])
    if ended.refusal is not None:
        raise CallRefused(ended.refusal)


def test_the_printed_permissions_suffice(stage: Stage) -> None:
    provider = restricted(stage)
    use(stage, provider)
    wait_until(lambda: provider.leftovers() == ())


@pytest.mark.parametrize(("resource", "verb"), PERMISSIONS, ids=lambda word: word.replace("/", " "))
def test_each_missing_permission_is_named(stage: Stage, resource: str, verb: str) -> None:
    provider = restricted(stage)
    remove(stage, resource, verb)
    with pytest.raises(CallRefused) as caught:
        use(stage, provider)
    group = ".batch" if resource == "jobs" else ""
    assert caught.value.refusal.kind == "permission", caught.value.refusal
    assert caught.value.refusal.action == f"{verb} {resource}{group} in namespace {stage.namespace}"


def missing(provider: Provider) -> list[tuple[str, str]]:
    """Return the place and name of each permission that a login lacks. All must be known."""
    assert isinstance(provider, Checking)
    answers = provider.permissions()
    assert len(answers) == len(PERMISSIONS) * len(REGIONS) and all(one.granted is not None for one in answers)
    return [(one.place, one.action) for one in answers if not one.granted]


def test_each_missing_permission_is_known_before_anything_is_made(stage: Stage) -> None:
    provider = restricted(stage)
    assert missing(provider) == []
    removed = []
    for resource, verb in PERMISSIONS:
        remove(stage, resource, verb)
        removed.append(f"{verb} {resource}{'.batch' if resource == 'jobs' else ''} in namespace {stage.namespace}")
        # The API server learns of a changed role a moment later.
        wait_until(lambda: missing(provider) == [("r1", action) for action in removed])
    assert stage.objects("r1") == []


def test_external_addresses_need_to_get_nodes(stage: Stage) -> None:
    refusal = stage.launch(restricted(stage, external_addresses=True)).refusal
    assert refusal is not None and (refusal.kind, refusal.action) == ("permission", "get nodes"), refusal
    asked = restricted(stage, external_addresses=True)
    assert isinstance(asked, Checking)
    assert {one.action for one in asked.permissions() if not one.granted} == {"get nodes"}
    clusters = kubernetes_from_document(stage.document(external_addresses=True)).clusters
    stage.lab.apply("r1", policy(clusters[0]))
    try:
        assert stage.launch(restricted(stage, external_addresses=True)).refusal is None
    finally:
        for kind in ("clusterrole", "clusterrolebinding"):
            stage.lab.kubectl("r1", "delete", kind, ROLE)
