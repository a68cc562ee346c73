"""Asks which permissions of the smallest role a login has in a cluster. The API server makes nothing."""

from __future__ import annotations

from tradewind.fleet.calls import each_of
from tradewind.fleet.kubernetes.calls import ClusterCalls
from tradewind.fleet.kubernetes.policy import cluster_rules, rules
from tradewind.fleet.provider import CallRefused, PermissionAnswer
from tradewind.model.kubernetes import KubeCluster

__all__ = ["permission_answers"]

#: Consequences of missing permissions that fleets can do without.
LOSSES = {
    ("get", "pods/log"): "the end of a gateway's log cannot be shown",
    ("list", "events"): "the reason why a pod is not made cannot be shown",
}


def permission_answers(cluster: KubeCluster, calls: ClusterCalls) -> list[PermissionAnswer]:
    """Return an answer for each permission of the role. Those of a cluster that does not answer are unknown."""
    wanted = [
        (verb, rule["apiGroups"][0], rule["resources"][0], namespace)
        for found, namespace in ((rules(cluster), cluster.namespace), (cluster_rules(cluster), None))
        for rule in found
        for verb in rule["verbs"]
    ]

    def ask(permission: tuple[str, str, str, str | None]) -> PermissionAnswer:
        verb, group, resource, namespace = permission
        where = f" in namespace {namespace}" if namespace else ""
        action = f"{verb} {resource}{f'.{group}' if group else ''}{where}"
        loss = LOSSES.get((verb, resource))
        try:
            return PermissionAnswer(cluster.context, action, calls.may(*permission), loss=loss)
        except CallRefused as error:
            return PermissionAnswer(cluster.context, action, None, str(error), loss, is_error=True)

    return each_of(wanted, ask)
