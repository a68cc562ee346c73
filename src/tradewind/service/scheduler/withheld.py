"""Bandwidth that a tenant has bought and cannot use, because the service makes its jobs wait.

Bans, turns of other tenants, and limits of stores, links and sites are of the service. What the tenant can change
itself is not: its own limits, its own jobs on the same resource, the cost of its jobs, or stores that do not answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tradewind.service.scheduler.admission import Admitter, Grant
from tradewind.service.scheduler.job_states import JobState
from tradewind.service.scheduler.jobs import TENANT, Resource
from tradewind.service.scheduler.limits import ACTIVE, USD
from tradewind.service.scheduler.queues import WaitingQueue
from tradewind.service.scheduler.why import BANNED, LIMITED, TURN, WaitCause

__all__ = ["withheld_gbps"]

OWN_SHARE_MAX = 0.5
"""A limit is the tenant's own concern if its running jobs use this share of it, or more."""


def withheld_gbps(
    jobs: Mapping[str, JobState], queues: Iterable[WaitingQueue], admitter: Admitter, now_s: float
) -> dict[tuple[str, str], float]:
    """Return the withheld rates by the name of the resource and the tenant [Gbit/s]; each is above 0."""
    sold, waiting = admitter.limits.sold, [queue for queue in queues if len(queue)]
    found: dict[tuple[str, str], float] = {}
    for resource, tenant, right in sold.in_force(now_s):
        wanted = sum(
            _wanted_gbps(queue, resource, jobs, admitter, now_s) for queue in waiting if queue.tenant == tenant
        )
        if min(right.left_gbps, wanted) > 0:
            found[resource.name, tenant] = min(right.left_gbps, wanted)
    return found


def _wanted_gbps(
    queue: WaitingQueue, resource: Resource, jobs: Mapping[str, JobState], admitter: Admitter, now_s: float
) -> float:
    """Return the rate that the jobs of a queue could use on a resource; 0 unless they wait because of the service."""
    first = queue.first()
    if first is None or resource not in admitter.resources(jobs[first[1]].job):
        return 0.0
    state = jobs[first[1]]
    granted = admitter.admit(state.job, state.left_bytes, queue, now_s)
    if isinstance(granted, Grant) or not all(
        _is_of_service(cause, state.job.tenant, jobs, admitter) for cause in granted
    ):
        return 0.0
    return len(queue) * min(state.job.rate_gbps_max, admitter.bindings(state.job)[0].rate_gbps)


def _is_of_service(cause: WaitCause, tenant: str, jobs: Mapping[str, JobState], admitter: Admitter) -> bool:
    if cause.kind not in (BANNED, LIMITED, TURN) or cause.resource is None or cause.resource.kind == TENANT:
        return False
    if cause.kind == TURN:
        other = jobs.get(cause.subject)
        return other is not None and other.job.tenant != tenant
    return cause.kind == BANNED or (cause.subject != USD and not _is_own(cause, tenant, jobs, admitter))


def _is_own(cause: WaitCause, tenant: str, jobs: Mapping[str, JobState], admitter: Admitter) -> bool:
    """Return whether the tenant's own running jobs use much of the limit that a job waits for."""
    assert cause.resource is not None
    limit, count, rate_gbps = admitter.limits.limit(cause.resource), 0, 0.0
    for state in jobs.values():
        if state.grant is not None and state.job.tenant == tenant and cause.resource in state.grant.resources:
            count, rate_gbps = count + 1, rate_gbps + state.grant.rate_gbps
    used, most = (count, limit.active or 0) if cause.subject == ACTIVE else (rate_gbps, limit.rate_gbps)
    return used > 0 and most < math.inf and used >= OWN_SHARE_MAX * most
