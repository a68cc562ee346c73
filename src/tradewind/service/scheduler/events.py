"""Events that the scheduler gets, and its decisions. All times are seconds since 1970, UTC."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.model.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tradewind.service.scheduler.bans import Ban
    from tradewind.service.scheduler.jobs import Binding, Resource, ServiceJob
    from tradewind.service.scheduler.limits import ResourceLimit
    from tradewind.service.scheduler.tuning import RequestStart, Tuning

__all__ = [
    "BanLifted",
    "BanSet",
    "BandwidthSold",
    "CostCounted",
    "Decision",
    "FailJob",
    "JobCancelled",
    "JobPaused",
    "JobReplanned",
    "JobRestored",
    "JobResumed",
    "JobSubmitted",
    "LimitSet",
    "LinkRestored",
    "RebindJob",
    "RefuseJob",
    "RoutesChanged",
    "RunEnded",
    "RunFailed",
    "RunProgressed",
    "RunRerouted",
    "SchedulerEvent",
    "StartJob",
    "StopJob",
    "StoreDown",
    "StoreUp",
    "TimePassed",
    "TuneLink",
    "WeightSet",
]


@dataclass(frozen=True)
class JobSubmitted:
    """A tenant submitted a job."""

    job: ServiceJob


@dataclass(frozen=True)
class JobRestored:
    """A job of before the scheduler's start. With a `binding` it runs, with the rate that it was granted.

    `failures` counts the failures of each retry class, and `failure` is the class of the last one; `moved_bytes` are
    proven at the destination.
    """

    job: ServiceJob
    failures: Mapping[str, int]
    failure: str = ""
    not_before_s: float = 0.0
    moved_bytes: int = 0
    binding: Binding | None = None
    rate_gbps: float = 0.0
    started_s: float = 0.0


@dataclass(frozen=True)
class CostCounted:
    """A job that ended today, before the scheduler's start, has cost `usd` on its resources."""

    resources: tuple[Resource, ...]
    usd: float


@dataclass(frozen=True)
class LinkRestored:
    """A link as an earlier scheduler had tuned it: the jobs that it may run, and the requests that jobs begin with.

    `is_starting` says that nothing had shown yet that the link is full.
    """

    link: str
    jobs_max: int
    read_requests: int
    write_requests: int
    goodput_gbps: float
    is_starting: bool = False


@dataclass(frozen=True)
class RunEnded:
    """A running job succeeded. Objects that were already present and correct count as moved.

    `moved_bytes` are proven at the destination by this run; None for all that was left. `spent_usd` is what the run has
    cost; None if only the estimate is known.
    """

    job_id: str
    moved_bytes: int | None = None
    spent_usd: float | None = None


@dataclass(frozen=True)
class RunFailed:
    """A running job failed. `kind` is a retry class; `moved_bytes` are proven at the destination by this run.

    `spent_usd` is as for `RunEnded`.
    """

    job_id: str
    kind: str
    moved_bytes: int = 0
    spent_usd: float | None = None


@dataclass(frozen=True)
class RunProgressed:
    """`moved_bytes` of a running job are proven at the destination by this run so far.

    `left_bytes` is what is left after them, if the source has been listed; None if that is not known better than when
    the job was submitted. `requests` are those that each of its gateways may have in flight to the source and to a
    destination now, None if that is not known.
    """

    job_id: str
    moved_bytes: int
    left_bytes: int | None = None
    requests: tuple[float | None, float | None] | None = None


@dataclass(frozen=True)
class RunRerouted:
    """The plan of a running job was replaced: `links` are those of all hops of its present routes.

    `planned_gbps` is the planned rate of all routes together, as in `ServiceJob`.
    """

    job_id: str
    links: tuple[str, ...]
    planned_gbps: float


@dataclass(frozen=True)
class JobReplanned:
    """A waiting job has other planned routes, or none any more: it is planned when it starts next."""

    job: ServiceJob


@dataclass(frozen=True)
class JobCancelled:
    """The tenant cancelled a job. `spent_usd` is what its run has cost, as for `RunEnded`."""

    job_id: str
    spent_usd: float | None = None


@dataclass(frozen=True)
class JobPaused:
    """The tenant paused a job. It loses its place among jobs that write to the same objects."""

    job_id: str


@dataclass(frozen=True)
class JobResumed:
    """The tenant resumed a paused job."""

    job_id: str


@dataclass(frozen=True)
class LimitSet:
    """An operator set the limit of a resource."""

    resource: Resource
    limit: ResourceLimit


@dataclass(frozen=True)
class WeightSet:
    """An operator set the weight of a tenant, or of one of its activities."""

    tenant: str
    weight: float
    activity: str | None = None


@dataclass(frozen=True)
class BanSet:
    """An operator closed a resource."""

    ban: Ban


@dataclass(frozen=True)
class BanLifted:
    """An operator lifted a ban."""

    ban_id: str


@dataclass(frozen=True)
class BandwidthSold:
    """A tenant has bought a rate on a resource. Its jobs that start between the two times use it."""

    resource: Resource
    tenant: str
    rate_gbps: float
    since_s: float
    until_s: float


@dataclass(frozen=True)
class StoreDown:
    """A store does not answer. Its jobs pause, and no attempts are used.

    With `tenant` only the jobs of that tenant pause: it was reached with the tenant's own settings. `where` says which,
    such as `at https://s3.lab.example in region lab-1`.
    """

    store: str
    tenant: str = ""
    where: str = ""


@dataclass(frozen=True)
class StoreUp:
    """A store answers again: that of `StoreDown` with the same store and tenant."""

    store: str
    tenant: str = ""


@dataclass(frozen=True)
class RoutesChanged:
    """The binder may return other bindings than before."""


@dataclass(frozen=True)
class TimePassed:
    """Nothing happened, but a time that `next_wakeup_s` returned has come."""


SchedulerEvent = (
    JobSubmitted
    | JobRestored
    | CostCounted
    | LinkRestored
    | RunEnded
    | RunFailed
    | RunProgressed
    | RunRerouted
    | JobReplanned
    | JobCancelled
    | JobPaused
    | JobResumed
    | LimitSet
    | WeightSet
    | BanSet
    | BanLifted
    | BandwidthSold
    | StoreDown
    | StoreUp
    | RoutesChanged
    | TimePassed
)


@dataclass(frozen=True)
class StartJob:
    """Start a run of a job with this binding, at this rate. If `is_limited`, it must not be faster.

    Its gateways begin with `requests` in flight; None if the scheduler does not tune them.
    """

    job_id: str
    binding: Binding
    rate_gbps: float
    is_limited: bool = False
    requests: RequestStart | None = None


@dataclass(frozen=True)
class StopJob:
    """Stop the run of a job. The job waits; it loses no attempt."""

    job_id: str
    reason: str


@dataclass(frozen=True)
class RebindJob:
    """A running job uses this binding from now on, at the rate that it was started with."""

    job_id: str
    binding: Binding


@dataclass(frozen=True)
class FailJob:
    """A job failed for good: its class of failure has no attempts left."""

    job_id: str
    reason: str


@dataclass(frozen=True)
class RefuseJob:
    """A job was not accepted, because a ban refuses new submissions or its id is taken."""

    job_id: str
    reason: str


@dataclass(frozen=True)
class TuneLink:
    """A link runs at most `jobs_max` jobs from now on, and its jobs begin with these requests.

    `goodput_gbps` is the moving average of its goodput, and `success` that of its runs. `changes` has the decisions
    that changed something, each with its reason. `is_starting` says that nothing has shown yet that the link is full.
    """

    link: str
    jobs_max: int
    read_requests: int
    write_requests: int
    goodput_gbps: float
    success: float
    changes: tuple[Tuning, ...] = ()
    is_starting: bool = False


Decision = StartJob | StopJob | RebindJob | FailJob | RefuseJob | TuneLink
