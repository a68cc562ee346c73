"""The check that a job may start now: its bindings against bans, stores that are down, holds and limits.

A hold keeps the room of a resource for one queue. It begins when it is the queue's turn and the resource has room, but
too little rate or budget for this queue; or when the queue has often found one of several resources busy. Until the
queue starts, no other one starts there. A queue gets all the holds it needs at once or none, so holds never wait for
each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tradewind.model.records import dataclass
from tradewind.service.scheduler.bans import Bans
from tradewind.service.scheduler.jobs import (
    STORE_IN,
    STORE_OUT,
    Binder,
    Binding,
    Resource,
    ServiceJob,
    resources_of,
    store_of_tenant,
)
from tradewind.service.scheduler.limits import ACTIVE, SOLD, TUNED, Limits
from tradewind.service.scheduler.queues import WaitingQueue
from tradewind.service.scheduler.why import BANNED, LIMITED, NO_ROUTE, STORE_IS_DOWN, TURN, WaitCause

__all__ = ["NO_RESOURCE", "TURNS_MAX", "Admitter", "Grant"]

NO_RESOURCE = Resource("route", "")
"""Where queues without any route wait."""
TURNS_MAX = 8
"""Turns that a queue loses because another of its resources is busy, before all of them are held for it."""


@dataclass(frozen=True)
class Grant:
    """The binding and rate that a job gets when it starts. `usd` is its whole cost at the binding's price."""

    binding: Binding
    resources: tuple[Resource, ...]
    rate_gbps: float
    usd: float


class Admitter:
    """Everything that may keep a job from starting."""

    def __init__(self, binder: Binder) -> None:
        self.limits = Limits()
        self.bans = Bans()
        #: Stores that do not answer, with the tenant, and where they were asked. The tenant is empty if they answer
        #: no job.
        self.down: dict[tuple[str, str], str] = {}
        self._binder = binder
        self._holders: dict[Resource, WaitingQueue] = {}
        self._holds: dict[int, list[Resource]] = {}
        self._turns_lost: dict[int, int] = {}
        self._wanted: dict[int, tuple[Resource, ...]] = {}

    def bindings(self, job: ServiceJob) -> Sequence[Binding]:
        """Return the possible bindings of a job, best first."""
        return self._binder(job)

    def resources(self, job: ServiceJob) -> tuple[Resource, ...]:
        """Return everything that the job would use with any of its bindings."""
        every = (one for binding in self._binder(job) for one in resources_of(job, binding))
        return tuple(dict.fromkeys(every)) or (NO_RESOURCE,)

    def admit(self, job: ServiceJob, left_bytes: int, queue: WaitingQueue, now_s: float) -> Grant | list[WaitCause]:
        """Return what the job gets if it may start, or one cause for each binding."""
        causes: list[WaitCause] = []
        for binding in self._binder(job):
            resources = resources_of(job, binding)
            usd = job.cost_usd(left_bytes, binding.usd_per_gb)
            cause = self._closed(job, binding, resources, now_s) or self._held(resources, queue)
            if cause is None:
                rate_gbps = min([binding.rate_gbps, job.rate_gbps_max, *self._bought_of_held(resources, queue)])
                admission = self.limits.admit(
                    resources, rate_gbps, job.rate_gbps_min, usd, job.tenant, job.rate_share_min
                )
                if admission.resource is None:
                    return Grant(binding, resources, admission.rate_gbps, usd)
                until_s = self.limits.sold.until_s(admission.resource) if admission.dimension == SOLD else None
                cause = WaitCause(LIMITED, admission.resource, admission.dimension, until_s)
            if not causes:
                self._wanted[queue.number] = resources
            causes.append(cause)
        return causes or [WaitCause(NO_ROUTE, NO_RESOURCE)]

    @property
    def may_be_closed(self) -> bool:
        """Return whether bans, stores that are down or limits may close a route."""
        return bool(self.down) or self.bans.exist or self.limits.has_closed

    def opens_s(self, job: ServiceJob, left_bytes: int, now_s: float) -> float:
        """Return when a route of a job is open, as far as bans, stores that are down and closed limits say.

        It is `now_s` if one is open then, and infinity if only people can open one.
        """
        return min((self._opens_s(job, left_bytes, one, now_s) for one in self._binder(job)), default=math.inf)

    def _opens_s(self, job: ServiceJob, left_bytes: int, binding: Binding, now_s: float) -> float:
        resources, usd = resources_of(job, binding), job.cost_usd(left_bytes, binding.usd_per_gb)
        if self._store_down(job, binding) or any(self.limits.closes(one, job.rate_gbps_min, usd) for one in resources):
            return math.inf
        return self.bans.opens_s(resources, now_s)

    def down_for(self, job: ServiceJob) -> tuple[str, str] | None:
        """Return a store of a job that does not answer, as in `down`; None if all of them do."""
        stores = (*job.sources, *job.destinations) if self.down else ()
        named = ((store, tenant) for store in stores for tenant in ("", job.tenant))
        return next((one for one in named if one in self.down), None)

    def _closed(
        self, job: ServiceJob, binding: Binding, resources: tuple[Resource, ...], now_s: float
    ) -> WaitCause | None:
        if cause := self._store_down(job, binding):
            return cause
        ban = self.bans.in_force(resources, now_s)
        if ban is None:
            return None
        return WaitCause(BANNED, ban.resource, ban.id, ban.end_s if ban.end_s < float("inf") else None)

    def _store_down(self, job: ServiceJob, binding: Binding) -> WaitCause | None:
        used = [(STORE_OUT, binding.source), *((STORE_IN, name) for name in job.destinations)] if self.down else []
        for kind, store in used:
            if (store, "") in self.down:
                return WaitCause(STORE_IS_DOWN, Resource(kind, store), store)
            if (store, job.tenant) in self.down:
                # At the store itself, the turn would stay with this tenant, and keep others from it.
                where = self.down[store, job.tenant]
                return WaitCause(STORE_IS_DOWN, store_of_tenant(store, job.tenant), store, where=where)
        return None

    def _held(self, resources: tuple[Resource, ...], queue: WaitingQueue) -> WaitCause | None:
        for resource in resources if self._holders else ():
            holder = self._holders.get(resource)
            first = holder.first() if holder and holder is not queue else None
            # A hold keeps room of the limit, but not what the tenant has bought.
            if first and not self.limits.sold.left_gbps(resource, queue.tenant):
                return WaitCause(TURN, resource, first[1])
        return None

    def _bought_of_held(self, resources: tuple[Resource, ...], queue: WaitingQueue) -> list[float]:
        """Return the rates that the tenant has bought of resources that are held for another queue."""
        held = [one for one in resources if self._holders.get(one, queue) is not queue] if self._holders else []
        return [left for one in held if (left := self.limits.sold.left_gbps(one, queue.tenant))]

    def holder(self, resource: Resource) -> WaitingQueue | None:
        """Return the queue that the room of a resource is held for, or None."""
        return self._holders.get(resource)

    def hold(self, queue: WaitingQueue, causes: list[WaitCause], turn: Resource | None) -> None:
        """Hold resources for a queue that was blocked at its turn on `turn`."""
        if turn is None or queue.number in self._holds:
            return
        for cause in causes:
            if cause.kind == LIMITED and cause.resource == turn and cause.subject not in (ACTIVE, TUNED):
                self._hold(queue, (turn,))
                return
        if all(cause.kind == LIMITED and cause.resource != turn for cause in causes):
            lost = self._turns_lost[queue.number] = self._turns_lost.get(queue.number, 0) + 1
            if lost > TURNS_MAX:
                # A hold on a resource without a limit would only keep others of the tenant from starting.
                self._hold(queue, tuple(one for one in self._wanted[queue.number] if self.limits.has_limit(one)))

    def _hold(self, queue: WaitingQueue, resources: tuple[Resource, ...]) -> None:
        if self._holders.keys().isdisjoint(resources):
            self._holders.update(dict.fromkeys(resources, queue))
            self._holds[queue.number] = list(resources)

    def release_holds(self, queue: WaitingQueue) -> list[Resource]:
        """End the holds of a queue. Return the resources that were held."""
        self._turns_lost.pop(queue.number, None)
        self._wanted.pop(queue.number, None)
        held = self._holds.pop(queue.number, [])
        for resource in held:
            del self._holders[resource]
        return held
