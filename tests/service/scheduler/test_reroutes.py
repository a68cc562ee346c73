"""A running job whose routes have changed counts for the links that it uses now, and gives back the others."""

from collections.abc import Sequence

import pytest

from tests.service.scheduler.scenes import GB, job, limited, started, submit
from tradewind.service.scheduler.bans import Ban
from tradewind.service.scheduler.events import (
    BanSet,
    CostCounted,
    Decision,
    RebindJob,
    RunEnded,
    RunProgressed,
    RunRerouted,
    StopJob,
)
from tradewind.service.scheduler.jobs import LINK, Binding, Resource, ServiceJob
from tradewind.service.scheduler.limits import ResourceLimit
from tradewind.service.scheduler.state import Scheduler

BEFORE, AFTER = ("cern>r", "r>lab"), ("cern>s", "s>lab")
ONE = ResourceLimit(active=1)


def planned(job: ServiceJob) -> Sequence[Binding]:
    """Bind a job to the links of its plan."""
    return [Binding(job.sources[0], job.links, (), (), job.planned_gbps, 1.0)]


def routed(name: str, links: tuple[str, ...], **others: object) -> ServiceJob:
    return job(name, links=links, planned_gbps=8.0, **others)


def reroute(scheduler: Scheduler, name: str, links: tuple[str, ...], now_s: float = 1.0) -> list[Decision]:
    return scheduler.handle(now_s, RunRerouted(name, links, 8.0))


@pytest.fixture
def scheduler() -> Scheduler:
    scheduler = Scheduler(planned, tunes_links=True)
    for link in (*BEFORE, *AFTER):
        limited(scheduler, LINK, link, ONE)
    assert submit(scheduler, routed("a", BEFORE)) == ["a"]
    return scheduler


def test_links_that_ended_are_given_back_and_new_ones_count(scheduler: Scheduler) -> None:
    assert submit(scheduler, routed("old", BEFORE), routed("new", ("s>lab",), tenant="astro")) == ["new"]
    scheduler.handle(0.5, RunEnded("new"))
    decisions = reroute(scheduler, "a", AFTER)
    (rebound,) = [one for one in decisions if isinstance(one, RebindJob)]
    assert (rebound.job_id, rebound.binding.links) == ("a", AFTER)
    assert started(decisions) == ["old"], "its links are free"
    assert submit(scheduler, routed("later", ("s>lab",), tenant="astro"), now_s=2) == []
    assert started(scheduler.handle(3, RunEnded("a"))) == ["later"]


def test_rate_and_cost_move_with_the_job() -> None:
    scheduler = Scheduler(planned)
    limits = scheduler._admitter.limits
    for link in (BEFORE[0], AFTER[0]):
        limited(scheduler, LINK, link, ResourceLimit(rate_gbps=10, usd_per_day=100))
    submit(scheduler, routed("a", BEFORE, size_bytes=4 * GB))
    scheduler.handle(1, RunProgressed("a", GB))
    reroute(scheduler, "a", AFTER)
    old, new = (limits.usage(Resource(LINK, link)) for link in (BEFORE[0], AFTER[0]))
    assert (old.active, old.rate_gbps, old.usd) == (0, 0, 1.0), "a quarter of the cost was spent there"
    assert (new.active, new.rate_gbps, new.usd) == (1, 8, 3.0)
    scheduler.handle(2, RunEnded("a"))
    assert (new.active, new.rate_gbps) == (0, 0)
    assert (old.active, old.rate_gbps) == (0, 0)


def test_a_link_that_stays_is_counted_once(scheduler: Scheduler) -> None:
    reroute(scheduler, "a", (BEFORE[0], AFTER[1]))
    assert submit(scheduler, routed("b", (BEFORE[0],)), now_s=2) == []
    assert submit(scheduler, routed("c", (BEFORE[1],)), now_s=2) == ["c"]
    scheduler.handle(3, RunEnded("a"))
    assert scheduler.phase("b") == "running"


@pytest.mark.parametrize("is_full", [False, True])
def test_a_run_stops_where_it_may_not_be(scheduler: Scheduler, is_full: bool) -> None:
    """It waits then for the links of its new routes."""
    if is_full:
        assert submit(scheduler, routed("there", AFTER)) == ["there"]
    else:
        scheduler.handle(0, BanSet(Ban("b-1", Resource(LINK, AFTER[1]), "drill")))
    decisions = reroute(scheduler, "a", AFTER)
    (stop,) = [one for one in decisions if isinstance(one, StopJob)]
    assert stop.job_id == "a" and AFTER[1 - is_full] in stop.reason, stop
    assert not [one for one in decisions if isinstance(one, RebindJob)]
    why = scheduler.why("a")
    assert why is not None and AFTER[1 - is_full] in why.sentence
    assert submit(scheduler, routed("old", BEFORE), now_s=2) == ["old"]
    if is_full:
        assert started(scheduler.handle(3, RunEnded("there"))) == ["a"]


def test_the_rate_limit_of_a_new_link_holds() -> None:
    scheduler = Scheduler(planned)
    limited(scheduler, LINK, AFTER[0], ResourceLimit(rate_gbps=5))
    submit(scheduler, routed("a", BEFORE))
    assert [one.job_id for one in reroute(scheduler, "a", AFTER) if isinstance(one, StopJob)] == ["a"]
    assert scheduler.phase("a") == "running", "it starts again, within the limit"


@pytest.mark.parametrize("spent_usd", [0.0, 8.0])
def test_the_daily_cost_of_a_new_link_holds(spent_usd: float) -> None:
    """The job's remaining cost counts there. It waits if others have spent the day's limit."""
    scheduler, link = Scheduler(planned), Resource(LINK, AFTER[0])
    limited(scheduler, LINK, link.name, ResourceLimit(usd_per_day=10))
    submit(scheduler, routed("a", BEFORE, size_bytes=4 * GB))
    scheduler.handle(0.5, CostCounted((link,), spent_usd))
    scheduler.handle(1, RunProgressed("a", GB))
    stopped = [one.job_id for one in reroute(scheduler, "a", AFTER) if isinstance(one, StopJob)]
    assert stopped == (["a"] if spent_usd else [])
    assert scheduler.phase("a") == ("queued" if spent_usd else "running")


def test_a_job_that_does_not_run_is_left_alone(scheduler: Scheduler) -> None:
    submit(scheduler, routed("b", BEFORE))
    assert reroute(scheduler, "b", AFTER) == []
    assert reroute(scheduler, "unknown", AFTER) == []
    assert reroute(scheduler, "a", BEFORE) == [], "the same routes"
