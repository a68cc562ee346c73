"""The permissions that gateways in a cluster need, as manifests to apply."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.model.kubernetes import KubeCluster, KubeSettings

__all__ = ["ROLE", "cluster_rules", "policies", "policy", "rules"]

#: Name of the Role, the RoleBinding and the ServiceAccount.
ROLE = "tradewind"
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9./-]*")
#: Words that YAML does not read as texts.
_WORDS = ("true", "false", "yes", "no", "on", "off", "y", "n", "null")


def rules(cluster: KubeCluster) -> list[dict[str, Any]]:
    """Return the rules of the Role, in the cluster's namespace."""
    found = [
        _rule("batch", "jobs", "create", "list", "patch", "delete"),
        _rule("", "secrets", "create", "delete"),
        _rule("", "pods", "list", "delete"),
        _rule("", "pods/log", "get"),
        _rule("", "events", "list"),
    ]
    if cluster.network == "service":
        found.append(_rule("", "services", "create", "list"))
    return found


def cluster_rules(cluster: KubeCluster) -> list[dict[str, Any]]:
    """Return the rules of the ClusterRole: none, unless the external addresses of nodes are needed."""
    return [_rule("", "nodes", "get")] if cluster.external_addresses else []


def policy(cluster: KubeCluster, subject: Mapping[str, str] | None = None) -> str:
    """Return the manifests of all permissions as YAML. They are bound to `subject`, by default a ServiceAccount.

    `subject` is one of a RoleBinding: `{"kind": "User", "name": "you@example.com"}`.
    """
    account = {"kind": "ServiceAccount", "name": ROLE, "namespace": cluster.namespace}
    documents: list[dict[str, Any]] = []
    if subject is None:
        documents.append({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _named(cluster)})
    documents += _bound("Role", rules(cluster), _named(cluster), subject or account)
    if cluster_rules(cluster):
        documents += _bound("ClusterRole", cluster_rules(cluster), {"name": ROLE}, subject or account)
    return "---\n".join(_yaml(document) for document in documents)


def policies(settings: KubeSettings) -> str:
    """Return the manifests of all clusters, each after a comment with its context."""
    return "\n".join(
        f"# kubectl --context {cluster.context} apply -f -\n{policy(cluster)}" for cluster in settings.clusters
    )


def _rule(group: str, resource: str, *verbs: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def _named(cluster: KubeCluster) -> dict[str, str]:
    return {"name": ROLE, "namespace": cluster.namespace}


def _bound(
    kind: str, rules: Sequence[Mapping[str, Any]], metadata: Mapping[str, str], subject: Mapping[str, str]
) -> list[dict[str, Any]]:
    group = "rbac.authorization.k8s.io"
    api = {"apiVersion": f"{group}/v1"}
    role = {**api, "kind": kind, "metadata": dict(metadata), "rules": list(rules)}
    who = dict(subject) if subject["kind"] == "ServiceAccount" else {"apiGroup": group, **subject}
    reference = {"apiGroup": group, "kind": kind, "name": ROLE}
    binding = {**api, "kind": f"{kind}Binding", "metadata": dict(metadata), "subjects": [who], "roleRef": reference}
    return [role, binding]


def _yaml(document: Mapping[str, Any], depth: int = 0) -> str:
    """Return a document as YAML. Lists and tables without inner tables are written on one line, as JSON."""
    lines, indent = [], "  " * depth
    for key, value in document.items():
        if isinstance(value, Mapping):
            lines.append(f"{indent}{key}:\n{_yaml(value, depth + 1)}")
        elif isinstance(value, list):
            items = "".join(f"{indent}- {json.dumps(item)}\n" for item in value)
            lines.append(f"{indent}{key}:\n{items}")
        else:
            lines.append(f"{indent}{key}: {_scalar(value)}\n")
    return "".join(lines)


def _scalar(value: str) -> str:
    """Return a text without quotes only if YAML reads it as a text: a namespace may be called `no` or `123`."""
    is_plain = _PLAIN.fullmatch(value) is not None and value.lower() not in _WORDS
    return value if is_plain else json.dumps(value)
