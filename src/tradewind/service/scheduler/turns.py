"""Whose turn it is: the queues of waiting jobs, noted at the resources that block them, and served in fair turns.

After `serve`, every queue is blocked or empty.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from tradewind.service.scheduler.admission import NO_RESOURCE, Admitter, Grant
from tradewind.service.scheduler.job_states import JobState
from tradewind.service.scheduler.jobs import Resource, ServiceJob
from tradewind.service.scheduler.queues import ResourceQueue, WaitingQueue, order_key
from tradewind.service.scheduler.shares import Weights

__all__ = ["Turns"]


class Turns:
    """All queues. `start` is called with each job that may start, which has left its queue, and what it gets."""

    def __init__(
        self, jobs: Mapping[str, JobState], admitter: Admitter, start: Callable[[JobState, Grant], None]
    ) -> None:
        self.weights = Weights()
        self._jobs, self._admitter, self._start = jobs, admitter, start
        self._queues: dict[tuple[object, ...], WaitingQueue] = {}
        self._numbers = 0
        self._at: dict[Resource, ResourceQueue] = {}
        self._freed: dict[Resource, None] = {}
        self._fresh: dict[WaitingQueue, None] = {}
        self._now_s = 0.0

    @property
    def queues(self) -> Collection[WaitingQueue]:
        """All queues with jobs, and those that become empty until the next `serve`."""
        return self._queues.values()

    def add(self, state: JobState) -> None:
        """Add a job to its queue."""
        queue = self.queue_of(state.job)
        queue.add(state.job.id, order_key(state.job, state.left_bytes, state.number))
        first = queue.first()
        if first and first[1] == state.job.id:
            queue.blocked_by.clear()
            self._fresh[queue] = None

    def remove(self, state: JobState) -> None:
        """Take a job out of its queue."""
        queue = self.queue_of(state.job)
        was_first = (queue.first() or (None, ""))[1] == state.job.id
        queue.remove(state.job.id)
        if was_first:
            self.free(self._admitter.release_holds(queue))
            self._fresh[queue] = None

    def try_all(self) -> None:
        """Let each queue try again."""
        self._fresh.update((queue, None) for queue in self._queues.values() if len(queue))

    def has_waiting(self, resource: Resource) -> bool:
        """Return whether a queue waits for a resource."""
        return resource in self._at and self._at[resource].next(resource) is not None

    def queue_of(self, job: ServiceJob) -> WaitingQueue:
        """Return the queue of a job."""
        rates = job.rate_gbps_min, job.rate_gbps_max, job.planned_gbps, job.rate_share_min
        name = (job.tenant, job.activity, job.sources, job.destinations, job.links, *rates)
        if name not in self._queues:
            self._numbers += 1
            self._queues[name] = WaitingQueue(self._numbers, name, job.tenant, job.activity)
        return self._queues[name]

    def noted_at(self, resource: Resource) -> ResourceQueue:
        """Return the queues that are noted at a resource."""
        if resource not in self._at:
            self._at[resource] = ResourceQueue(self.weights)
        return self._at[resource]

    def free(self, resources: Iterable[Resource]) -> None:
        """Let queues try again at resources where there may be room now."""
        for resource in resources:
            if resource in self._at:
                self._freed[resource] = None
                self._try_buyers(resource)

    def serve(self, now_s: float) -> None:
        """Let queues have their turns until every resource that was freed is full again, or nobody waits for it."""
        self._now_s = now_s
        while self._freed or self._fresh:
            if not self._freed:
                self._fill(self._fresh.popitem()[0])
                continue
            turn = self._next_turn()
            if turn is None:
                continue
            resource, queue = turn
            holder = self._admitter.holder(resource)
            queue.blocked_by.pop(resource, None)
            if self._try(queue, resource):
                if len(queue):
                    self._at[resource].add(resource, queue)
                else:
                    self._forget(queue)
            elif holder or resource in queue.blocked_by:
                # The turn stays with this queue: others would take the room that it waits for.
                self._freed.pop(resource, None)

    def _fill(self, queue: WaitingQueue) -> None:
        """Start jobs of a queue until it is blocked or empty."""
        while self._try(queue, None):
            pass

    def _try(self, queue: WaitingQueue, turn: Resource | None) -> bool:
        """Start the first job of a queue. If it is blocked, note the queue at what blocks it and return False."""
        first = queue.first()
        if first is None:
            self._forget(queue)
            return False
        state = self._jobs[first[1]]
        granted = self._admitter.admit(state.job, state.left_bytes, queue, self._now_s)
        if isinstance(granted, Grant):
            queue.remove(state.job.id)
            self.free(self._admitter.release_holds(queue))
            self._start(state, granted)
            return True
        if not queue.joined:
            queue.joined = self._admitter.resources(state.job)
            for resource in queue.joined:
                self.noted_at(resource).shares.join(queue.tenant, queue.activity)
        blocking = {cause.resource or NO_RESOURCE for cause in granted}
        for resource in queue.blocked_by.keys() - blocking:
            del queue.blocked_by[resource]
        for resource in blocking - queue.blocked_by.keys():
            self.noted_at(resource).add(resource, queue)
        self._admitter.hold(queue, granted, turn)
        return False

    def _forget(self, queue: WaitingQueue) -> None:
        """Forget an empty queue, and what is noted about it. Each plan of a job may have a queue of its own."""
        if self._queues.get(queue.name) is queue:
            del self._queues[queue.name]
        queue.blocked_by.clear()
        for resource in queue.joined:
            self._at[resource].shares.leave(queue.tenant, queue.activity)
        queue.joined = ()
        self.free(self._admitter.release_holds(queue))

    def _try_buyers(self, resource: Resource) -> None:
        """Let the tenants that have bought a part of a resource try, whoever's turn it is."""
        for tenant in self._admitter.limits.sold.tenants(resource):
            for queue in self._at[resource].of_tenant(tenant):
                self._fresh[queue] = None

    def _next_turn(self) -> tuple[Resource, WaitingQueue] | None:
        """Return the queue whose turn it is at one of the freed resources.

        Queues of one route may wait at different resources of it. So the first ones of all freed resources are
        compared by how far their tenants are ahead, summed over the resources that they use.
        """
        turns = []
        for resource in list(self._freed):
            queue = self._admitter.holder(resource) or self._at[resource].next(resource)
            if queue is None:
                del self._freed[resource]
            else:
                turns.append((self._lag(queue), queue.number, resource, queue))
        return min(turns)[2:] if turns else None

    def _lag(self, queue: WaitingQueue) -> tuple[float, float]:
        lags = [self._at[one].shares.lag(queue.tenant, queue.activity) for one in queue.joined]
        return sum(tenant for tenant, _ in lags), sum(activity for _, activity in lags)
