"""Jobs and schedulers for the tests."""

from collections.abc import Sequence

from tradewind.service.scheduler.events import Decision, JobSubmitted, LimitSet, StartJob
from tradewind.service.scheduler.jobs import Binding, Resource, ServiceJob
from tradewind.service.scheduler.limits import ResourceLimit
from tradewind.service.scheduler.state import Scheduler

GB = 1_000_000_000


def job(name: str, **changes: object) -> ServiceJob:
    """Return a job of 1 GB that writes below its own name."""
    values: dict[str, object] = {
        "id": name,
        "tenant": "physics",
        "activity": "production",
        "sources": ("cern",),
        "destination": "lab",
        "path": f"{name}/",
        "size_bytes": GB,
        "submitted_s": 0.0,
    }
    return ServiceJob(**(values | changes))  # type: ignore[arg-type]


def direct(job: ServiceJob) -> Sequence[Binding]:
    """Bind a job to each of its sources, over the direct link, at 8 Gbit/s."""
    return [Binding(source, (f"{source}>{job.destination}",), (), (), 8.0) for source in job.sources]


def priced(job: ServiceJob) -> Sequence[Binding]:
    """Bind a job as `direct` does, at 1 USD per GB."""
    return [Binding(source, (f"{source}>{job.destination}",), (), (), 8.0, 1.0) for source in job.sources]


def limited(scheduler: Scheduler, kind: str, name: str, limit: ResourceLimit, now_s: float = 0.0) -> list[str]:
    return started(scheduler.handle(now_s, LimitSet(Resource(kind, name), limit)))


def submit(scheduler: Scheduler, *jobs: ServiceJob, now_s: float = 0.0) -> list[str]:
    return [one for each in jobs for one in started(scheduler.handle(now_s, JobSubmitted(each)))]


def started(decisions: list[Decision]) -> list[str]:
    return [decision.job_id for decision in decisions if isinstance(decision, StartJob)]
