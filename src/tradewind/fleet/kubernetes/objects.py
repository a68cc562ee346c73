"""The objects of one machine: a Job with one pod, the Secret with its join document, and perhaps a Service.

The Job owns the other two, so they go when it goes. Everything here is plain data for lightkube.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from tradewind.fleet.provider import LaunchOrder
from tradewind.model.kubernetes import KubeCluster, Toleration

__all__ = [
    "CONTAINER",
    "ENTRANCE_TAG",
    "LEASE_TAG",
    "ROLE_TAG",
    "START_S",
    "TYPE_TAG",
    "job",
    "job_name",
    "labels_of",
    "named_service",
    "owned_by",
    "secret",
    "service",
]

#: Labels of a machine beside the tags of its order.
LEASE_TAG, ROLE_TAG, TYPE_TAG = "tradewind-lease", "tradewind-role", "tradewind-type"
ENTRANCE_TAG = "tradewind-entrance"
"""Label of Services at which programs of a cluster reach a gateway, with the name of its Job. They are no machines."""
CONTAINER = "gateway"
JOIN_FOLDER, JOIN_FILE = "/join", "document"
#: Where the gateway gives signs of life, and links its program: the path of an image's entry point is not known.
ALIVE_FOLDER = "/alive"
#: A Job ends after this time unless it is confirmed: its client has seen its gateway run. It is longer than a join
#: token is valid, so that a pod that finds room too late ends too.
START_S = 1200
#: The remains of an ended Job are removed after this time.
REMAINS_S = 300
#: Time that a gateway has to save its work when its node is drained or its Job ends.
GRACE_S = 15
#: A gateway that stands still is found after 30 s (SILENCE_MAX) by the first of these checks, and is killed if the
#: next ones fail too. A check that does not answer at all, because the container is frozen, counts as failed, but a
#: busy node may take long to start one.
CHECKS = {"periodSeconds": 10, "timeoutSeconds": 20, "failureThreshold": 3}
#: The pods of a node that has stopped to report count as ended after this time.
LOST_S = 30
#: Labels and annotations of a pod. A service mesh adds no container: it would keep the pod after its gateway, whose
#: connections are sealed anyway. Autoscalers do not move a gateway to another node while bytes pass through it.
UNMESHED = {"sidecar.istio.io/inject": "false"}
UNDISTURBED = {
    "linkerd.io/inject": "disabled",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
#: Images are for Linux. Each node has this label.
SYSTEM = {"kubernetes.io/os": "linux"}
AZURE_IDENTITY = "azure.workload.identity/use"
#: The user and group that run the gateway: nobody.
NOBODY = 65534


def job_name(order: LaunchOrder) -> str:
    """Return the name of an order's objects. It follows from the order's key, so that nothing is made twice."""
    return f"tradewind-{sha256(f'{order.fleet_id}/{order.key}'.encode()).hexdigest()[:24]}"


def labels_of(order: LaunchOrder) -> dict[str, str]:
    """Return the labels of a machine: the tags of its order, and what else describes it."""
    found = {**order.tags, LEASE_TAG: str(order.lease.seconds), ROLE_TAG: order.role}
    return {**found, **({} if order.type is None else {TYPE_TAG: order.type})}


def job(order: LaunchOrder, cluster: KubeCluster, ports: Mapping[str, int]) -> dict[str, Any]:
    """Return the Job of a machine. `ports` are those at which its gateway listens, by what for.

    Its pod lives for `cluster.longest_h` at most: its kubelet ends it then, even if the API server is gone. The Job
    lives for START_S until it is confirmed.
    """
    name, labels = job_name(order), labels_of(order)
    pod = _pod(name, order, cluster, ports)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": cluster.namespace, "labels": labels},
        "spec": {
            "parallelism": 1,
            "completions": 1,
            # A replacement would be another machine, which only the fleet orders.
            "backoffLimit": 0,
            "activeDeadlineSeconds": START_S,
            "ttlSecondsAfterFinished": REMAINS_S,
            "template": {
                "metadata": {"labels": labels | UNMESHED | _identity_labels(cluster), "annotations": UNDISTURBED},
                "spec": pod,
            },
        },
    }


def _pod(name: str, order: LaunchOrder, cluster: KubeCluster, ports: Mapping[str, int]) -> dict[str, Any]:
    is_host = cluster.network == "host"
    container = {
        "name": CONTAINER,
        "image": cluster.image,
        "args": [
            *("serve", "--join", f"{JOIN_FOLDER}/{JOIN_FILE}"),
            *("--lease-s", str(order.lease.seconds), "--alive-dir", ALIVE_FOLDER),
        ],
        "livenessProbe": {"exec": {"command": [f"{ALIVE_FOLDER}/gateway", "alive", ALIVE_FOLDER]}, **CHECKS},
        "resources": {
            "requests": {"cpu": cluster.cpu, "memory": cluster.memory},
            "limits": {"memory": cluster.memory},
        },
        "ports": [
            {"name": of, "containerPort": port, **({"hostPort": port} if is_host else {})} for of, port in ports.items()
        ],
        # The end of its log becomes part of the pod's status, which can be read without a permission for logs.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "join", "mountPath": JOIN_FOLDER, "readOnly": True},
            {"name": "alive", "mountPath": ALIVE_FOLDER},
        ],
    }
    return {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": cluster.longest_h * 3600,
        "terminationGracePeriodSeconds": GRACE_S,
        "hostNetwork": is_host,
        "dnsPolicy": "ClusterFirstWithHostNet" if is_host else "ClusterFirst",
        **({} if cluster.service_account is None else {"serviceAccountName": cluster.service_account}),
        # Workload identities have tokens of their own, which are not for the API server.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NOBODY,
            "runAsGroup": NOBODY,
            "fsGroup": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "nodeSelector": {**SYSTEM, **cluster.node_selector},
        "tolerations": [*_tolerations_of_loss(), *(_toleration(one) for one in cluster.tolerations)],
        "imagePullSecrets": [{"name": secret} for secret in cluster.pull_secrets],
        "volumes": [
            {"name": "join", "secret": {"secretName": name, "defaultMode": 0o440}},
            {"name": "alive", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        ],
        "containers": [container],
    }


def _identity_labels(cluster: KubeCluster) -> dict[str, str]:
    """Return the label with which Azure gives a pod the token of its service account; Amazon and Google need none."""
    return {} if cluster.service_account is None else {AZURE_IDENTITY: "true"}


def _tolerations_of_loss() -> list[dict[str, Any]]:
    """Return what makes the pods of a lost node count as ended after LOST_S. Kubernetes waits 5 minutes by default."""
    keys = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
    lost = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LOST_S}
    return [{"key": key, **lost} for key in keys]


def _toleration(one: Toleration) -> dict[str, Any]:
    found = {"key": one.key, "operator": "Equal" if one.value else "Exists"}
    return {**found, **({"value": one.value} if one.value else {}), **({"effect": one.effect} if one.effect else {})}


def owned_by(name: str, uid: str) -> list[dict[str, Any]]:
    """Return the reference to the Job that owns an object."""
    return [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "blockOwnerDeletion": False}]


def secret(order: LaunchOrder, cluster: KubeCluster, uid: str, document: str) -> dict[str, Any]:
    """Return the Secret with the join document, which the Job with this uid owns."""
    name = job_name(order)
    metadata = {"name": name, "namespace": cluster.namespace, "labels": labels_of(order)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**metadata, "ownerReferences": owned_by(name, uid)},
        "immutable": True,
        "stringData": {JOIN_FILE: document},
    }


def service(order: LaunchOrder, cluster: KubeCluster, uid: str, ports: Mapping[str, int]) -> dict[str, Any]:
    """Return the Service of a machine. Its gateway listens at the same ports at which the service is reached.

    Only the node of the pod answers, so that no other node forwards the bytes.
    """
    name = job_name(order)
    is_node_port = cluster.service == "NodePort"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": labels_of(order),
            "ownerReferences": owned_by(name, uid),
        },
        "spec": {
            "type": cluster.service,
            "externalTrafficPolicy": "Local",
            "selector": {"batch.kubernetes.io/job-name": name},
            "ports": [
                {"name": of, "port": port, "targetPort": port, **({"nodePort": port} if is_node_port else {})}
                for of, port in ports.items()
            ],
        },
    }


def named_service(job: str, cluster: KubeCluster, uid: str, name: str, ports: Mapping[int, int]) -> dict[str, Any]:
    """Return a Service at which programs of the cluster reach a gateway. The Job with this uid owns it.

    `ports` are those of its pod, by the Service's port.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": {ENTRANCE_TAG: job},
            "ownerReferences": owned_by(job, uid),
        },
        "spec": {
            "type": "ClusterIP",
            "selector": {"batch.kubernetes.io/job-name": job},
            "ports": [{"name": f"port-{port}", "port": port, "targetPort": of_pod} for port, of_pod in ports.items()],
        },
    }
