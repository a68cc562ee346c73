"""A Job and its pod as a machine: whether it runs, where it is reached, or why it does not start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from tradewind.fleet.kubernetes.objects import CONTAINER, LEASE_TAG, TYPE_TAG
from tradewind.fleet.kubernetes.refusals import of_unschedulable, of_waiting
from tradewind.fleet.provider import NAME_TAG, OWNER_TAG, Lease, Machine, Refusal
from tradewind.model.kubernetes import KubeCluster
from tradewind.model.records import dataclass

__all__ = ["Found", "is_ours", "is_pod_of", "job_of", "machine_of"]

TAG_PREFIX = "tradewind-"
JOB_LABEL, UID_LABEL = "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"
#: The exit code after SIGKILL.
KILLED = 137
STOOD_STILL = "its process was killed; a gateway that stands still is killed after a minute"
#: Phases of a pod that has ended.
ENDED_PHASES = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Found:
    """The objects of one machine that a cluster lists. Without a `job` the pod is an orphan."""

    name: str
    job: Mapping[str, Any] | None = None
    pod: Mapping[str, Any] | None = None
    service: Mapping[str, Any] | None = None

    @property
    def tags(self) -> dict[str, str]:
        """Our labels."""
        source = next((found for found in (self.job, self.pod, self.service) if found is not None), {})
        labels = source.get("metadata", {}).get("labels") or {}
        return {key: value for key, value in labels.items() if key.startswith(TAG_PREFIX)}

    @property
    def status(self) -> Mapping[str, Any]:
        """Status of the pod."""
        return {} if self.pod is None else self.pod.get("status") or {}

    @property
    def container(self) -> Mapping[str, Any]:
        """State of the gateway's container: `waiting`, `running` or `terminated`."""
        statuses = self.status.get("containerStatuses") or []
        # An admission webhook may have added containers of others.
        own: Mapping[str, Any] = next((status for status in statuses if status.get("name") == CONTAINER), {})
        state: Mapping[str, Any] = own.get("state") or {}
        return state

    @property
    def is_running(self) -> bool:
        """True if the gateway's process has started and not ended."""
        return "running" in self.container and not self.is_ended

    @property
    def is_ended(self) -> bool:
        """True if the pod has ended, is being deleted, or will never be made again."""
        if self.job is None:
            return True
        if self.pod is None:
            return self._job_condition("Failed") is not None or self._job_condition("Complete") is not None
        is_deleted = self.pod["metadata"].get("deletionTimestamp") is not None
        return is_deleted or self.status.get("phase") in ENDED_PHASES or "terminated" in self.container

    @property
    def is_scheduled(self) -> bool:
        """True if a node was found for the pod."""
        return bool(self.pod and (self.pod.get("spec") or {}).get("nodeName"))

    @property
    def node_is_lost(self) -> bool:
        """True if the pod's node has stopped to report."""
        ready = _condition(self.status.get("conditions"), "Ready")
        return ready is not None and ready.get("status") == "False" and "running" in self.container

    def _job_condition(self, kind: str) -> Mapping[str, Any] | None:
        status = {} if self.job is None else self.job.get("status") or {}
        found = _condition(status.get("conditions"), kind)
        return found if found is not None and found.get("status") == "True" else None

    def ending(self) -> str | None:
        """Return how the gateway ended, in one line; None if it has not."""
        if not self.is_ended:
            return None
        ended = self.container.get("terminated") or {}
        failed = self._job_condition("Failed") or {}
        texts = (ended.get("message"), self.status.get("message"), failed.get("message"))
        reason = self.status.get("reason") or ended.get("reason")
        code = ended.get("exitCode")
        words = next((text for text in texts if text), None) or "its pod has ended"
        if code == KILLED and reason == "Error":
            words = STOOD_STILL  # Only events say so. The end of its log is from before.
        told = ", ".join(part for part in (reason, None if code is None else f"exit code {code}") if part)
        return " ".join(f"{words} ({told})".split()) if told else " ".join(words.split())

    def refusal(self, cluster: KubeCluster, *, is_late: bool) -> Refusal | None:
        """Return why the machine does not start; None if it may, or does. `is_late` allows no more time."""
        context = cluster.context
        if self.is_ended:
            return self._early_end(context)
        scheduled = _condition(self.status.get("conditions"), "PodScheduled")
        if scheduled is not None and scheduled.get("reason") == "Unschedulable":
            if is_late and not cluster.autoscales:
                return of_unschedulable(context, scheduled.get("message") or "")
            return None
        waiting = self.container.get("waiting")
        if waiting is None:
            return None
        reason, message = waiting.get("reason") or "", waiting.get("message") or ""
        return of_waiting(context, cluster.image, reason, message, is_late)

    def _early_end(self, context: str) -> Refusal | None:
        """Return why a gateway ended while it was launched; None if it ended as it should, such as by its lease."""
        if (self.container.get("terminated") or {}).get("exitCode") == 0:
            return None
        reason = self.status.get("reason") or ""
        words = f"{context}: the gateway ended at once: {self.ending()}"
        if reason.startswith("OutOf") or reason == "Evicted":
            return Refusal("capacity", words)
        # With a reason of its own the pod was ended by its node, which may shut down, and not by the gateway.
        failed = self.container.get("terminated") is not None and not reason
        return Refusal("bad request" if failed else "transient", words)


def is_ours(found: Mapping[str, Any]) -> bool:
    """Return whether an object has the labels of a machine."""
    return NAME_TAG in (found["metadata"].get("labels") or {})


def is_pod_of(pod: Mapping[str, Any], job: Mapping[str, Any] | None) -> bool:
    """Return whether a pod is that of a Job, and not of an earlier one of the same name; True without a Job."""
    if job is None:
        return True
    uid: str | None = (pod["metadata"].get("labels") or {}).get(UID_LABEL)
    return uid is not None and uid == str(job["metadata"]["uid"])


def job_of(found: Mapping[str, Any]) -> str:
    """Return the name of the Job that an object belongs to. All objects of a machine have it, but the pod."""
    name: str = (found["metadata"].get("labels") or {}).get(JOB_LABEL) or found["metadata"]["name"]
    return name


def machine_of(cluster: KubeCluster, found: Found, external: Callable[[str], str | None]) -> Machine:
    """Return a machine. `external` returns the external address of a node."""
    tags = found.tags
    running = found.container.get("running") or {}
    ended = found.container.get("terminated") or {}
    addresses = _addresses(cluster, found, external)
    control = None
    if addresses and cluster.network != "out":
        control = f"{next(iter(addresses.values()))}:{_ports(found).get('control')}"
    seconds = tags.get(LEASE_TAG, "")
    lease = Lease(int(seconds), tags.get(OWNER_TAG, "")) if seconds.isdecimal() else None
    made = (found.job or found.pod or found.service or {})["metadata"]
    deleted = None if found.pod is None else found.pod["metadata"].get("deletionTimestamp")
    ended_at = ended.get("finishedAt") or (deleted if found.is_ended else None)
    return Machine(
        f"{cluster.context}/{found.name}",
        tags.get(NAME_TAG, found.name),
        cluster.region,
        tags.get(TYPE_TAG),
        cluster.context,
        launched_unix_s=_unix_s(made.get("creationTimestamp")),
        running_unix_s=_unix_s(running.get("startedAt") or ended.get("startedAt")),
        ended_unix_s=_unix_s(ended_at),
        ended=found.is_ended,
        addresses=addresses,
        control=control,
        inbound=cluster.network != "out",
        lease=lease,
        tags=tags,
    )


def _addresses(cluster: KubeCluster, found: Found, external: Callable[[str], str | None]) -> dict[str, str]:
    if cluster.network == "out":
        address = found.status.get("podIP")
        return {"pod": address} if address else {}
    if cluster.network == "service" and cluster.service == "LoadBalancer":
        status = {} if found.service is None else found.service.get("status") or {}
        ingress = ((status.get("loadBalancer") or {}).get("ingress") or [{}])[0]
        address = ingress.get("ip") or ingress.get("hostname")
        return {"service": address} if address else {}
    node = ((found.pod or {}).get("spec") or {}).get("nodeName")
    address = found.status.get("hostIP")
    if cluster.external_addresses and node:
        address = external(node) or address
    return {"node": address} if address else {}


def _ports(found: Found) -> dict[str, int]:
    source = (found.job or {}).get("spec", {}).get("template", {}).get("spec") or (found.pod or {}).get("spec") or {}
    own: Mapping[str, Any] = next((one for one in source.get("containers") or [] if one.get("name") == CONTAINER), {})
    return {port["name"]: port["containerPort"] for port in own.get("ports") or []}


def _condition(conditions: list[Mapping[str, Any]] | None, kind: str) -> Mapping[str, Any] | None:
    return next((condition for condition in conditions or [] if condition.get("type") == kind), None)


def _unix_s(time: str | datetime | None) -> float | None:
    if time is None:
        return None
    if isinstance(time, str):
        time = datetime.fromisoformat(time.replace("Z", "+00:00"))
    return time.timestamp()
