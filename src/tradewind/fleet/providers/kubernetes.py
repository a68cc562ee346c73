"""Machines that are pods of the user's Kubernetes clusters. Each cluster is a zone of its region.

A machine is a Job with one pod (docs/decisions/0029-kubernetes-objects.md), a Secret with its join document, which is
deleted as soon as the gateway runs, and perhaps a Service. The Job owns the others. Its name follows from the order's
key, so that a repeated order finds the same machine, and its labels are the tags, by which any process finds it.

The document has `kind` and what `model.kubernetes.KubeSettings.document` returns.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tradewind.errors import GatewayError
from tradewind.fleet.boot.ports import CONTROL_PORT, DATA_PORT
from tradewind.fleet.calls import each_of, machines_of_each
from tradewind.fleet.earlier_orders import known_machine
from tradewind.fleet.kubernetes.calls import ClusterCalls, require_lightkube
from tradewind.fleet.kubernetes.machines import Found, is_ours, is_pod_of, job_of, machine_of
from tradewind.fleet.kubernetes.objects import job, job_name, named_service, secret, service
from tradewind.fleet.kubernetes.permissions import permission_answers
from tradewind.fleet.kubernetes.pods import LOOK_S, PodHost
from tradewind.fleet.kubernetes.refusals import of_event
from tradewind.fleet.provider import (
    ANY_TYPE,
    FLEET_TAG,
    CallRefused,
    Ended,
    Home,
    LaunchOrder,
    LaunchResult,
    Leftover,
    Machine,
    Offer,
    PermissionAnswer,
    Quota,
    Refusal,
)
from tradewind.model.kubernetes import KubeCluster, KubeSettings, kubernetes_from_document
from tradewind.model.records import dataclass, field

if TYPE_CHECKING:
    from tradewind.fleet.providers import Settings

__all__ = ["KubernetesProvider", "connect"]

BOOT_S = 5.0
"""Typical time from the order until the gateway answers, if its node has the image."""
#: A launch call returns at the latest this long after its pods have room. Images may be pulled after that.
STARTED_S = 10.0
#: Time until the controller of Jobs has made a pod, after which events may say why it has not.
POD_S = 2.0
#: Interval between two looks at machines that start or end.
POLL_S_MIN, POLL_S_MAX = 0.1, 0.5
#: Time that a pod has to disappear after its grace period.
END_S = 20.0
#: Time that a Service has to disappear after its Job.
NAME_S = 10.0
#: Attempts to find free ports for a Service, and to make a Job whose name an ended machine still has.
TRIES_MAX = 4
#: The Job of a machine outlives the pod's own deadline by this, so that the pod says why it ended.
DEADLINE_MARGIN_S = 60
#: Kind of a Job whose pod has ended. Kubernetes removes it and what it owns later (`ttlSecondsAfterFinished`).
ENDED_JOB = "Job that has ended"

R = TypeVar("R")


@dataclass(slots=True)
class _Member:
    """A cluster, its calls, and what this process knows of it."""

    cluster: KubeCluster
    calls: ClusterCalls
    #: Machines that this process launched and has not seen running yet, by the name of the Job.
    unconfirmed: set[str] = field(default_factory=set)
    #: The last listing of each fleet, with its time.
    looked: dict[str, tuple[float, dict[str, Found]]] = field(default_factory=dict)
    #: External addresses of nodes.
    external: dict[str, str | None] = field(default_factory=dict)

    def found(self, tags: Mapping[str, str]) -> dict[str, Found]:
        """Return what the cluster lists of the machines with these tags, by the name of the Job."""
        jobs, pods, services = each_of([self.calls.jobs, self.calls.pods, self.calls.services], lambda call: call(tags))
        ours = {job_of(each): each for each in jobs if is_ours(each)}
        # A pod of an earlier Job of the same name may not have ended yet.
        pods = [pod for pod in pods if is_pod_of(pod, ours.get(job_of(pod)))]
        by_name = [ours, *({job_of(each): each for each in listed if is_ours(each)} for listed in (pods, services))]
        names = dict.fromkeys(name for listed in by_name for name in listed)
        return {name: Found(name, *(listed.get(name) for listed in by_name)) for name in names}

    def look(self, fleet: str, name: str) -> Found | None:
        """Return a machine of a fleet. A machine that is asked for often is looked at every LOOK_S."""
        looked_s, listed = self.looked.get(fleet, (-math.inf, {}))
        if time.monotonic() - looked_s >= LOOK_S:
            listed = self.found({FLEET_TAG: fleet})
            self.looked[fleet] = (time.monotonic(), listed)
        return listed.get(name)

    def machine(self, found: Found) -> Machine:
        """Return a machine that the cluster lists."""
        return machine_of(self.cluster, found, self._external_address)

    def _external_address(self, node: str) -> str | None:
        if node not in self.external:
            addresses = (self.calls.node(node).get("status") or {}).get("addresses") or []
            named = {address["type"]: address["address"] for address in addresses}
            self.external[node] = named.get("ExternalIP")
        return self.external[node]

    def expose(self, job: Mapping[str, Any], name: str, ports: Mapping[int, int]) -> None:
        """Make a Service that leads to the pod of a Job. Raises CallRefused."""
        of_job = job["metadata"]["name"]
        made = named_service(of_job, self.cluster, job["metadata"]["uid"], name, ports)
        # Kubernetes removes the Service of a former pod a moment after its Job.
        deadline_s = time.monotonic() + NAME_S
        while self.calls.create(made) is None and name not in self.calls.named_services(of_job):
            if time.monotonic() > deadline_s:
                where = f"namespace {self.cluster.namespace} has a Service {name} that is not Tradewind's"
                raise CallRefused(Refusal("bad request", f"{self.cluster.context}: {where}"))
            time.sleep(POLL_S_MAX)

    def confirm(self, name: str) -> None:
        """Delete the join document of a machine that runs, and let its Job live as long as its pod may."""
        self.calls.set_deadline(name, self.cluster.longest_h * 3600 + DEADLINE_MARGIN_S)
        self.calls.delete_secret(name)
        self.unconfirmed.discard(name)


class KubernetesProvider:
    """Runs gateways as pods."""

    kind = "kubernetes"
    settles_s = 0.0

    def __init__(self, settings: KubeSettings) -> None:
        self._settings = settings
        self._members = [_Member(each, ClusterCalls(each, settings.kubeconfig)) for each in settings.clusters]
        self._by_context = {member.cluster.context: member for member in self._members}
        #: Clusters in which this object may have launched machines, by fleet.
        self._used: dict[str, set[str]] = {}
        #: Held while machines are placed and made, so that two launches do not take the same room.
        self._placing = threading.Lock()

    def document(self) -> dict[str, Any]:
        """Return the kind and the clusters."""
        return {"kind": self.kind, **self._settings.document()}

    def home(self, region: str) -> Home:
        """Return this machine, with the address that pods call if the configuration has one."""
        return Home() if self._settings.home is None else Home(address=self._settings.home)

    def kept_s_max(self, region: str) -> float:
        """Return the shortest life of pods in the clusters of a region; 0 if they call home."""
        clusters = [each for each in self._settings.clusters if each.region == region]
        return min((0.0 if each.network == "out" else each.longest_h * 3600.0 for each in clusters), default=0.0)

    def offers(self, regions: Collection[str]) -> tuple[Offer, ...]:
        """Return one offer per cluster, the cheapest first."""
        clusters = [each for each in self._settings.clusters if each.region in regions]
        return tuple(
            Offer(
                each.region,
                ANY_TYPE,
                usd_per_s=each.usd_per_hour / 3600,
                price_source="the configuration",
                egress_gbps=each.egress_gbps or math.inf,
                ingress_gbps=each.ingress_gbps or math.inf,
                boot_s=BOOT_S,
                zones=(each.context,),
            )
            for each in sorted(clusters, key=lambda one: (one.region, one.usd_per_hour))
        )

    def quota(self, region: str) -> Quota | None:
        """Return how many gateways the clusters of a region run at most, by the configuration.

        A cluster that does not answer counts as full. Raises CallRefused if none answers.
        """
        members = self._in(region)
        listed = each_of(members, lambda member: _answer(lambda: member.found({})))
        refusals = [answer for answer in listed if isinstance(answer, Refusal)]
        if refusals and len(refusals) == len(members):
            raise CallRefused(refusals[0])
        used = (
            member.cluster.gateways if isinstance(found, Refusal) else _living(found)
            for member, found in zip(members, listed, strict=True)
        )
        return Quota(sum(member.cluster.gateways for member in members), sum(used))

    def permissions(self) -> tuple[PermissionAnswer, ...]:
        """Return which permissions of the smallest roles this login has."""
        answers = each_of(self._members, lambda member: permission_answers(member.cluster, member.calls))
        return tuple(answer for of in answers for answer in of)

    def launch(self, orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
        """Make the Jobs of all orders concurrently, and return when their pods run or cannot run.

        A machine that was ordered before with the same key is returned instead.
        """
        results: dict[str, LaunchResult] = {}
        with self._placing:
            placed = self._place(orders, results)
            for order, member in placed:
                self._used.setdefault(order.fleet_id, set()).add(member.cluster.context)
            made = each_of(placed, lambda each: (*each, _answer(lambda: self._make(*each))))
        waiting: dict[str, list[LaunchOrder]] = {}
        for order, member, answer in made:
            if isinstance(answer, Refusal):
                self._discard(member, job_name(order))
                results[order.key] = LaunchResult(order, refusal=answer)
            else:
                waiting.setdefault(member.cluster.context, []).append(order)
        for found in each_of(
            list(waiting.items()), lambda each: self._wait_started(self._by_context[each[0]], each[1])
        ):
            results |= found
        return [results[order.key] for order in orders]

    def _place(
        self, orders: Sequence[LaunchOrder], results: dict[str, LaunchResult]
    ) -> list[tuple[LaunchOrder, _Member]]:
        """Return a cluster for each order that is new. `results` gets the known machines and the refusals."""
        members = [member for member in self._members if any(order.region == member.cluster.region for order in orders)]
        listed = each_of(members, lambda member: _answer(lambda: member.found({})))
        there = {id(member): answer for member, answer in zip(members, listed, strict=True)}
        taken = {key: _living(answer) for key, answer in there.items() if not isinstance(answer, Refusal)}
        living = [
            member.machine(found)
            for member in members
            for found in _found_in(there[id(member)]).values()
            if not found.is_ended
        ]
        placed = []
        for order in orders:
            known = known_machine(order, living) or _impossible(order)
            if known is not None:
                if known.machine is not None and known.machine.zone is not None:
                    self._used.setdefault(order.fleet_id, set()).add(known.machine.zone)
                results[order.key] = known
                continue
            able = [one for one in self._in(order.region) if order.zone in (None, one.cluster.context)]
            reached = [one for one in able if id(one) in taken]
            free = [one for one in reached if taken[id(one)] < one.cluster.gateways]
            if not free:
                refusals = [answer for one in able if isinstance(answer := there[id(one)], Refusal)]
                refusal = refusals[0] if refusals and not reached else _full(order.region, able)
                results[order.key] = LaunchResult(order, refusal=refusal)
                continue
            member = min(free, key=lambda one: taken[id(one)] / one.cluster.gateways)
            taken[id(member)] += 1
            placed.append((order, member))
        return placed

    def _make(self, order: LaunchOrder, member: _Member) -> None:
        """Make the objects of a machine. Raises CallRefused."""
        name, cluster, calls = job_name(order), member.cluster, member.calls
        for _ in range(TRIES_MAX):
            ports = _ports(order, cluster)
            made = calls.create(job(order, cluster, ports))
            if made is None:
                if not self._is_stale(member, name):
                    return  # The answer to an earlier call was lost, or another process makes the machine.
                continue
            member.unconfirmed.add(name)
            uid = made["metadata"]["uid"]
            try:
                if cluster.network == "service" and ports:
                    calls.create(service(order, cluster, uid, ports))
                calls.create(secret(order, cluster, uid, _join_document(order, cluster, ports)))
            except CallRefused as error:
                if "already allocated" not in error.refusal.reason:
                    raise
                calls.delete_job(name)
                continue
            return
        raise CallRefused(Refusal("transient", f"{cluster.context}: no free ports or names after {TRIES_MAX} attempts"))

    def _is_stale(self, member: _Member, name: str) -> bool:
        """Remove a Job that has ended, or that a lost call left without its Secret; return whether it was one."""
        found = member.found({}).get(name)
        if found is None:
            return True
        if found.is_ended or (found.job is not None and not found.is_scheduled):
            member.calls.delete_job(name)
            return True
        return False

    def _wait_started(self, member: _Member, orders: Sequence[LaunchOrder]) -> dict[str, LaunchResult]:
        """Return the results of orders whose Jobs were made, by key."""
        left = {job_name(order): order for order in orders}
        results: dict[str, LaunchResult] = {}
        fleets = {order.fleet_id for order in orders}
        tags = {FLEET_TAG: next(iter(fleets))} if len(fleets) == 1 else {}
        began_s, poll_s = time.monotonic(), POLL_S_MIN
        while left:
            try:
                there = member.found(tags)
            except CallRefused as error:
                there, refused = {}, error.refusal
                if time.monotonic() - began_s > STARTED_S or refused.kind == "permission":
                    return results | {one.key: LaunchResult(one, refusal=refused) for one in left.values()}
            for name, order in list(left.items()):
                result = self._started(member, order, there.get(name), time.monotonic() - began_s)
                if result is not None:
                    results[order.key] = result
                    del left[name]
            if left:
                time.sleep(poll_s)
                poll_s = min(POLL_S_MAX, poll_s * 1.5)
        return results

    def _started(
        self, member: _Member, order: LaunchOrder, found: Found | None, waited_s: float
    ) -> LaunchResult | None:
        """Return the result of an order; None while it is open."""
        cluster, name = member.cluster, job_name(order)
        refusal: Refusal | None = None
        if found is not None and found.pod is None and waited_s > POD_S:
            refusal = _answer_or(lambda: _why_no_pod(member, name))
        elif found is not None:
            refusal = found.refusal(cluster, is_late=waited_s > cluster.wait_s)
        if refusal is None and found is not None and found.is_running and name in member.unconfirmed:
            refusal = _answer_or(lambda: member.confirm(name))
            if refusal is not None and refusal.kind != "permission":
                refusal = None  # It is confirmed when it is listed.
        if refusal is not None:
            self._discard(member, name)
            return LaunchResult(order, refusal=refusal)
        if found is not None and (found.is_running or found.is_ended):
            machine = _answer(lambda: member.machine(found))
            if isinstance(machine, Refusal):
                self._discard(member, name)
                return LaunchResult(order, refusal=machine)
            return LaunchResult(order, machine)
        is_awaited = found is not None and found.pod is not None and cluster.autoscales and waited_s > cluster.wait_s
        if waited_s < cluster.wait_s + STARTED_S and not (is_awaited and found is not None and not found.is_scheduled):
            return None
        if found is not None and (found.is_scheduled or is_awaited):
            return LaunchResult(order, member.machine(found))
        self._discard(member, name)
        words = f"{cluster.context}: its controllers made no pod within {waited_s:.0f} s"
        return LaunchResult(order, refusal=Refusal("transient", words))

    def _discard(self, member: _Member, name: str) -> None:
        """Remove what was made of a machine that is refused. What cannot be removed ends by the Job's deadline."""
        member.unconfirmed.discard(name)
        _answer(lambda: member.calls.delete_job(name))

    def machines(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """Return machines with these tags.

        A fleet that this object launched is looked for in its own clusters, otherwise in all. Each must answer.
        """
        used = self._used.get(tags.get(FLEET_TAG, ""))
        members = [member for member in self._members if used is None or member.cluster.context in used]
        machines = machines_of_each(members, lambda member: self._machines_of(member, tags))
        return tuple(sorted(machines, key=lambda machine: (machine.name, machine.id)))

    def _machines_of(self, member: _Member, tags: Mapping[str, str]) -> list[Machine]:
        there = member.found(tags)
        for name in member.unconfirmed & there.keys():
            if there[name].is_running:
                _answer(lambda name=name: member.confirm(name))  # type: ignore[misc]
        return [member.machine(found) for found in there.values() if found.job is not None or found.pod is not None]

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        """Delete the Jobs of machines with all that they own, and return when their pods are gone."""
        wanted = list(dict.fromkeys(ids))
        by_context: dict[str, list[str]] = {}
        for machine_id in wanted:
            by_context.setdefault(machine_id.rpartition("/")[0], []).append(machine_id)
        answers: dict[str, Ended] = {}
        for ended in each_of(list(by_context.items()), lambda each: self._end_in(*each, grace_s)):
            answers |= {one.id: one for one in ended}
        return [answers[machine_id] for machine_id in wanted]

    def _end_in(self, context: str, ids: Sequence[str], grace_s: float) -> list[Ended]:
        member = self._by_context.get(context)
        if member is None:
            return [Ended(machine_id) for machine_id in ids]  # Not a machine of ours.
        names = {machine_id.rpartition("/")[2] for machine_id in ids}
        answer = _answer(lambda: self._end_all(member, names, grace_s))
        if isinstance(answer, Refusal):
            return [Ended(machine_id, refusal=answer) for machine_id in ids]
        lost = Refusal("transient", f"{context}: its pod is still there")
        return [
            Ended(one, refusal=lost) if one.rpartition("/")[2] in answer else Ended(one, time.time()) for one in ids
        ]

    def _end_all(self, member: _Member, names: Collection[str], grace_s: float) -> set[str]:
        """Delete machines; return the names of those that are still there. A lost node is not waited for."""
        there = {name: found for name, found in member.found({}).items() if name in names}
        each_of([name for name, found in there.items() if found.job is not None], member.calls.delete_job)
        # Its node confirms the end of a pod, unless the grace period is 0.
        seconds = max(1, math.ceil(grace_s))
        pods = [found.pod["metadata"]["name"] for found in there.values() if found.pod is not None]
        each_of(pods, lambda pod: member.calls.delete_pod(pod, seconds))
        deadline_s, poll_s = time.monotonic() + seconds + END_S, POLL_S_MIN
        while there and time.monotonic() < deadline_s:
            there = {name: found for name, found in member.found({}).items() if name in names}
            gone = [found.pod["metadata"]["name"] for found in there.values() if found.node_is_lost and found.pod]
            each_of(gone, lambda pod: member.calls.delete_pod(pod, 0))
            if there:
                time.sleep(poll_s)
                poll_s = min(POLL_S_MAX, poll_s * 1.5)
        member.unconfirmed.difference_update(names)
        return set(there)

    def leftovers(self) -> tuple[Leftover, ...]:
        """Return all Jobs of ours, and pods and Services without one. Raises CallRefused if a cluster is silent.

        Secrets are not listed: that permission would reveal those of others. The Job of each owns it.
        """
        left = []
        for member, there in zip(self._members, each_of(self._members, lambda one: one.found({})), strict=True):
            for name, found in there.items():
                left.append(
                    Leftover(f"{member.cluster.context}/{name}", _kind_of(found), member.cluster.region, found.tags)
                )
        return tuple(left)

    @property
    def leaves(self) -> tuple[str, ...]:
        """Kinds of resources that a fleet may leave."""
        return "Jobs", "pods", "Services"

    def left_of(self, fleet_id: str) -> tuple[Leftover, ...]:
        """Return what is left of a fleet. Raises CallRefused."""
        return tuple(one for one in self.leftovers() if one.tags.get(FLEET_TAG) == fleet_id)

    def host(self, machine: Machine) -> PodHost | None:
        """Return the end of the machine's log, and how it ended. A pod has no shell, so nothing else is possible."""
        context, _, name = machine.id.rpartition("/")
        member = self._by_context.get(context)
        if member is None:
            return None
        fleet = machine.tags.get(FLEET_TAG, "")
        return PodHost(machine, member.cluster, member.calls, lambda: member.look(fleet, name))

    def expose(self, machine: Machine, services: Mapping[str, Mapping[int, int]]) -> None:
        """Make Services in the cluster of a machine. Raises CallRefused if a Service of another owner has the name."""
        context, _, name = machine.id.rpartition("/")
        member = self._by_context[context]
        found = member.found({FLEET_TAG: machine.tags[FLEET_TAG]}).get(name)
        if found is None or found.job is None:
            raise CallRefused(Refusal("transient", f"{context}: the Job {name} is gone"))
        for service_name, ports in services.items():
            member.expose(found.job, service_name, ports)

    def _in(self, region: str) -> list[_Member]:
        return [member for member in self._members if member.cluster.region == region]


def _answer(call: Callable[[], R]) -> R | Refusal:
    try:
        return call()
    except CallRefused as error:
        return error.refusal


def _answer_or(call: Callable[[], Refusal | None]) -> Refusal | None:
    """Return the refusal that a call returns or raises."""
    return _answer(call)


def _found_in(answer: dict[str, Found] | Refusal) -> dict[str, Found]:
    return {} if isinstance(answer, Refusal) else answer


def _kind_of(found: Found) -> str:
    """Return the kind of something that is left, in words."""
    if found.job is not None:
        return ENDED_JOB if found.is_ended else "machine"
    return "pod" if found.pod is not None else "service"


def _living(found: Mapping[str, Found] | Refusal) -> int:
    return 0 if isinstance(found, Refusal) else sum(not each.is_ended for each in found.values())


def _why_no_pod(member: _Member, name: str) -> Refusal | None:
    events = member.calls.events(name)
    told = (of_event(member.cluster.context, one.get("reason") or "", one.get("message") or "") for one in events)
    return next((refusal for refusal in told if refusal is not None), None)


def _impossible(order: LaunchOrder) -> LaunchResult | None:
    if order.join is not None:
        return None
    words = "a gateway in a cluster needs an identity: without one nobody can control it from outside its pod"
    return LaunchResult(order, refusal=Refusal("bad request", words))


def _full(region: str, able: Sequence[_Member]) -> Refusal:
    count = sum(member.cluster.gateways for member in able)
    return Refusal("quota", f"no cluster of {region} may run another gateway: they may run {count}")


def _ports(order: LaunchOrder, cluster: KubeCluster) -> dict[str, int]:
    """Return the ports at which a gateway listens, by what for. A node's ports are random: others may have some."""
    names = ["control", "data"] if order.peers else ["control"]
    if cluster.network == "out":
        return {}
    if cluster.network == "service" and cluster.service == "NodePort":
        first, last = cluster.node_ports
        return dict(zip(names, random.sample(range(first, last + 1), len(names)), strict=True))
    fixed = {"control": CONTROL_PORT, "data": DATA_PORT}
    return {name: fixed[name] for name in names}


def _join_document(order: LaunchOrder, cluster: KubeCluster, ports: Mapping[str, int]) -> str:
    if order.join is None:
        raise GatewayError("a gateway in a cluster needs an identity")
    data = f"0.0.0.0:{ports['data']}" if "data" in ports else None
    if cluster.network == "out":
        return order.join.calling(f"0.0.0.0:{DATA_PORT}" if order.peers else None)
    return order.join.listening(f"0.0.0.0:{ports['control']}", data)


def connect(document: Mapping[str, Any], settings: Settings) -> KubernetesProvider:
    """Return the provider of the clusters that the document names. Raises GatewayError without its client library."""
    require_lightkube()
    return KubernetesProvider(kubernetes_from_document(document))
