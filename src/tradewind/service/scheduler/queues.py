"""Queues of waiting jobs, and the resources that they wait for.

Jobs that get the same bindings form one queue, so one attempt to start its first job speaks for all. A blocked queue
is noted at the resources that block it, and looked at again only when one of these has room. So a decision never scans
the jobs: it takes the time of a heap operation, and of sorting the tenants and activities that wait for one resource.
"""

from __future__ import annotations

import heapq
import math
from itertools import accumulate

from tradewind.service.scheduler.jobs import Resource, ServiceJob
from tradewind.service.scheduler.shares import FairShares, Weights

__all__ = ["AGEING_S", "EQUAL_S", "ResourceQueue", "WaitingQueue", "order_key"]

AGEING_S = 3600.0
"""Waiting time that is worth one step of priority."""
EQUAL_S = 300.0
"""Step of aged priority. Jobs in the same step are equals: the one with the fewest bytes left goes first."""

OrderKey = tuple[int, int, int]


def order_key(job: ServiceJob, left_bytes: int, number: int) -> OrderKey:
    """Return the sort key of a job in its queue.

    All jobs age alike, so priority + waited/AGEING_S orders two jobs in the same way at all times, and the key is
    constant.
    """
    aged_s = job.submitted_s - job.priority * AGEING_S
    return math.floor(aged_s / EQUAL_S), left_bytes, number


class WaitingQueue:
    """Waiting jobs that get the same bindings, first in order first."""

    __slots__ = ("_heap", "_keys", "activity", "blocked_by", "joined", "name", "number", "tenant", "waiting_bytes")

    def __init__(self, number: int, name: tuple[object, ...], tenant: str, activity: str) -> None:
        self.number, self.name, self.tenant, self.activity = number, name, tenant, activity
        self.blocked_by: dict[Resource, OrderKey] = {}
        self.joined: tuple[Resource, ...] = ()
        self.waiting_bytes = 0
        self._heap: list[tuple[OrderKey, str]] = []
        self._keys: dict[str, OrderKey] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, job_id: str, key: OrderKey) -> None:
        """Add a job."""
        self._keys[job_id] = key
        self.waiting_bytes += key[1]
        heapq.heappush(self._heap, (key, job_id))

    def remove(self, job_id: str) -> None:
        """Remove a job."""
        self.waiting_bytes -= self._keys.pop(job_id)[1]

    def bytes_until(self) -> dict[str, int]:
        """Return the bytes before each job, with its own."""
        ordered = sorted(self._keys, key=lambda job_id: self._keys[job_id])
        return dict(zip(ordered, accumulate(self._keys[job_id][1] for job_id in ordered), strict=True))

    def first(self) -> tuple[OrderKey, str] | None:
        """Return the first job with its key; None if the queue is empty."""
        while self._heap:
            key, job_id = self._heap[0]
            if self._keys.get(job_id) == key:
                return key, job_id
            heapq.heappop(self._heap)
        return None


class ResourceQueue:
    """The queues that wait for one resource, by tenant and activity, and whose turn it is."""

    __slots__ = ("_heaps", "shares")

    def __init__(self, weights: Weights) -> None:
        self.shares = FairShares(weights)
        self._heaps: dict[tuple[str, str], list[tuple[OrderKey, int, WaitingQueue]]] = {}

    def add(self, resource: Resource, queue: WaitingQueue) -> None:
        """Note a queue at its place by its first job. An earlier note of the queue becomes invalid."""
        first = queue.first()
        if first:
            queue.blocked_by[resource] = first[0]
            heap = self._heaps.setdefault((queue.tenant, queue.activity), [])
            heapq.heappush(heap, (first[0], queue.number, queue))

    def next(self, resource: Resource) -> WaitingQueue | None:
        """Return the queue whose turn it is; None if none waits. It stays noted."""
        for pair in self.shares.order(self._heaps):
            queue = self._first(pair, resource)
            if queue:
                return queue
        return None

    def of_tenant(self, tenant: str) -> list[WaitingQueue]:
        """Return the queues of a tenant that wait for the resource, or did. They stay noted."""
        heaps = (heap for (name, _), heap in self._heaps.items() if name == tenant)
        return list(dict.fromkeys(queue for heap in heaps for _, _, queue in heap))

    def _first(self, pair: tuple[str, str], resource: Resource) -> WaitingQueue | None:
        heap = self._heaps[pair]
        while heap:
            key, _, queue = heap[0]
            first = queue.first()
            is_valid = queue.blocked_by.get(resource) == key and first is not None
            if is_valid and first and first[0] == key:
                return queue
            heapq.heappop(heap)
            if is_valid:
                self.add(resource, queue)
        del self._heaps[pair]
        return None
