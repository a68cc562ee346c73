"""The scheduler's decisions, event by event."""

import math
from collections.abc import Sequence

import pytest

from tests.service.scheduler.scenes import GB, direct, job, limited, priced, started, submit
from tradewind.service.scheduler.bans import Ban
from tradewind.service.scheduler.events import (
    BanLifted,
    BanSet,
    FailJob,
    JobCancelled,
    JobPaused,
    JobResumed,
    JobSubmitted,
    RefuseJob,
    RunEnded,
    RunFailed,
    RunProgressed,
    StartJob,
    StopJob,
    StoreDown,
    StoreUp,
    TimePassed,
    WeightSet,
)
from tradewind.service.scheduler.jobs import LINK, SITE, STORE_IN, STORE_OUT, TENANT, Binding, Resource, ServiceJob
from tradewind.service.scheduler.limits import DAY_S, ResourceLimit
from tradewind.service.scheduler.retry import CLASSES
from tradewind.service.scheduler.state import Scheduler

ONE = ResourceLimit(active=1)


def why(scheduler: Scheduler, name: str) -> str:
    reason = scheduler.why(name)
    assert reason is not None
    return reason.sentence


@pytest.mark.parametrize(
    ("kind", "name"), [(STORE_OUT, "cern"), (STORE_IN, "lab"), (LINK, "cern>lab"), (TENANT, "physics")]
)
def test_each_limit_applies(kind: str, name: str) -> None:
    scheduler = Scheduler(direct)
    limited(scheduler, kind, name, ONE)
    assert submit(scheduler, job("a"), job("b")) == ["a"]
    assert why(scheduler, "b") == f"The limit of {Resource(kind, name)} is reached: active jobs."
    assert started(scheduler.handle(1, RunEnded("a"))) == ["b"]


def test_source_and_destination_limits_apply_together() -> None:
    scheduler = Scheduler(direct)
    limited(scheduler, STORE_OUT, "cern", ResourceLimit(active=2))
    limited(scheduler, STORE_IN, "lab", ONE)
    assert submit(scheduler, job("a"), job("b"), job("c", destination="far"), job("d", destination="far")) == ["a", "c"]
    assert "reads from store cern" in why(scheduler, "b")
    assert started(scheduler.handle(1, RunEnded("c"))) == ["d"]
    assert "writes to store lab" in why(scheduler, "b") or "reads from store cern" in why(scheduler, "b")
    assert started(scheduler.handle(2, RunEnded("a"))) == ["b"]


def test_a_rate_limit_lowers_the_rate_of_the_next_job_and_then_blocks() -> None:
    scheduler = Scheduler(direct)
    limited(scheduler, LINK, "cern>lab", ResourceLimit(rate_gbps=11))
    submit(scheduler, job("a"))
    (decision,) = scheduler.handle(0, JobSubmitted(job("b")))
    assert isinstance(decision, StartJob)
    assert decision.rate_gbps == 3
    assert submit(scheduler, job("c")) == []
    assert why(scheduler, "c") == "The limit of link cern>lab is reached: rate."


def test_a_job_that_needs_its_whole_rate_waits_for_it_or_for_the_limit() -> None:
    scheduler = Scheduler(direct)
    limited(scheduler, LINK, "cern>lab", ResourceLimit(rate_gbps=11))
    assert submit(scheduler, job("a"), job("whole", rate_share_min=1.0)) == ["a"]
    assert why(scheduler, "whole") == "The limit of link cern>lab is reached: rate."
    assert limited(scheduler, LINK, "cern>lab", ResourceLimit(rate_gbps=2), now_s=1) == []
    (decision,) = [one for one in scheduler.handle(2, RunEnded("a")) if isinstance(one, StartJob)]
    assert (decision.job_id, decision.rate_gbps) == ("whole", 2)


def test_small_jobs_do_not_overtake_one_that_needs_more_rate() -> None:
    scheduler = Scheduler(direct)
    limited(scheduler, STORE_IN, "lab", ResourceLimit(rate_gbps=16))
    assert submit(scheduler, job("a"), job("b"), job("wide", rate_gbps_min=8)) == ["a", "b"]
    scheduler.handle(0, JobSubmitted(job("c", sources=("desy",))))
    assert started(scheduler.handle(1, RunEnded("a"))) == ["wide"]
    assert started(scheduler.handle(2, RunEnded("b"))) == ["c"]


def test_a_days_budget() -> None:
    scheduler = Scheduler(priced)
    limited(scheduler, TENANT, "physics", ResourceLimit(usd_per_day=10))
    assert submit(scheduler, job("a", size_bytes=6 * GB), job("b", size_bytes=6 * GB)) == ["a"]
    assert "cost per day" in why(scheduler, "b")
    assert scheduler.handle(1, RunEnded("a")) == []
    assert scheduler.next_wakeup_s() == DAY_S
    assert started(scheduler.handle(DAY_S, TimePassed())) == ["b"]


def test_a_days_budget_counts_the_ceiling_until_the_cost_is_known() -> None:
    scheduler = Scheduler(direct)
    limited(scheduler, TENANT, "physics", ResourceLimit(usd_per_day=10))
    names = "abcde"
    assert submit(scheduler, *(job(name, usd_max=6.0) for name in names)) == ["a"]
    assert "cost per day" in why(scheduler, "b")
    assert started(scheduler.handle(1, RunEnded("a", spent_usd=1.0))) == ["b"]
    assert started(scheduler.handle(2, RunFailed("b", "transient", GB // 2, spent_usd=2.0))) == ["c"]
    assert started(scheduler.handle(3, JobCancelled("c", spent_usd=0.5))) == ["d"]
    assert started(scheduler.handle(4, RunEnded("d", spent_usd=7.5))) == [], "it cost more than was expected"
    assert started(scheduler.handle(DAY_S, TimePassed())) != []


def test_a_job_above_a_days_budget_uses_several_days() -> None:
    scheduler = Scheduler(priced)
    limited(scheduler, TENANT, "physics", ResourceLimit(usd_per_day=10))
    assert submit(scheduler, job("a", size_bytes=25 * GB), job("b")) == ["a"]
    days = [day for day in range(1, 5) if started(scheduler.handle(day * DAY_S, TimePassed()))]
    assert days == [2]


def test_late_binding_takes_the_source_that_is_free() -> None:
    scheduler = Scheduler(direct)
    limited(scheduler, STORE_OUT, "cern", ONE)
    submit(scheduler, job("a"))
    (decision,) = scheduler.handle(0, JobSubmitted(job("b", sources=("cern", "desy"))))
    assert isinstance(decision, StartJob)
    assert decision.binding.source == "desy"


def test_priority_age_and_what_is_left_order_a_queue() -> None:
    scheduler = Scheduler(direct)
    limited(scheduler, LINK, "cern>lab", ONE)
    submit(scheduler, job("first"))
    submit(scheduler, job("large", size_bytes=9 * GB), job("small"), job("urgent", priority=1))
    submit(scheduler, job("late", submitted_s=4000, priority=1), now_s=4000)
    order = ["first"]
    for _ in range(4):
        order += started(scheduler.handle(4000, RunEnded(order[-1])))
    assert order == ["first", "urgent", "small", "large", "late"]


def test_what_a_stopped_job_has_moved_counts_for_its_place() -> None:
    """The end of a running job follows its progress, too."""
    scheduler = Scheduler(direct)
    limited(scheduler, STORE_IN, "lab", ResourceLimit(active=1))
    assert submit(scheduler, job("large", size_bytes=4 * GB), job("small")) == ["large"]
    first = scheduler.eta("large")
    scheduler.handle(10, RunProgressed("large", 3_600_000_000))
    assert first is not None and scheduler.eta("large") != first
    ban = Ban("b", Resource(STORE_IN, "lab"), "test", stops_jobs=True)
    assert scheduler.handle(20, BanSet(ban)) == [StopJob("large", "ban b: test")]
    assert started(scheduler.handle(30, BanLifted("b"))) == ["large"], "it has less left than the small one"


def test_shares_follow_the_weights_and_unused_shares_flow() -> None:
    scheduler = Scheduler(direct)
    limited(scheduler, LINK, "cern>lab", ONE)
    scheduler.handle(0, WeightSet("astro", 3))
    submit(scheduler, job("first", tenant="other"))
    for number in range(40):
        submit(scheduler, job(f"p{number}"), job(f"a{number}", tenant="astro"))
    running, order = "first", []
    for _ in range(40):
        (running,) = started(scheduler.handle(1, RunEnded(running)))
        order.append(running)
    assert sum(name.startswith("a") for name in order) == 30
    for number in range(40):
        scheduler.handle(1, JobCancelled(f"a{number}"))
    rest = []
    if running.startswith("a"):
        running = next(name for name in (f"p{n}" for n in range(40)) if scheduler.phase(name) == "running")
    while decided := started(scheduler.handle(2, RunEnded(running))):
        (running,) = decided
        rest.append(running)
    assert len(rest) in (29, 30)


def test_activities_share_within_their_tenant() -> None:
    scheduler = Scheduler(direct)
    limited(scheduler, LINK, "cern>lab", ONE)
    scheduler.handle(0, WeightSet("physics", 4, "production"))
    submit(scheduler, job("first"))
    for number in range(20):
        submit(scheduler, job(f"p{number}"), job(f"u{number}", activity="user"))
    running, order = "first", []
    for _ in range(20):
        (running,) = started(scheduler.handle(1, RunEnded(running)))
        order.append(running)
    assert sum(name.startswith("p") for name in order) in (15, 16)


def test_overlapping_destinations_wait_in_order() -> None:
    scheduler = Scheduler(direct)
    first, inside = job("a", path="data/"), job("b", path="data/run1", is_prefix=False)
    assert submit(scheduler, first, inside, job("c", path="data/run1", is_prefix=False), job("d", path="data2")) == [
        "a",
        "d",
    ]
    assert why(scheduler, "b") == "Job a writes to the same place first."
    assert started(scheduler.handle(1, RunEnded("a"))) == ["b"]
    assert started(scheduler.handle(2, JobCancelled("b"))) == ["c"]


def test_failures_use_the_attempts_of_their_class() -> None:
    scheduler = Scheduler(direct)
    submit(scheduler, job("a"))
    now_s = 0.0
    for _ in range(CLASSES["integrity"].attempts):
        assert scheduler.handle(now_s, RunFailed("a", "integrity")) == []
        assert "The last run failed (integrity)" in why(scheduler, "a")
        now_s = scheduler.next_wakeup_s()
        assert started(scheduler.handle(now_s, TimePassed())) == ["a"]
    (decision,) = scheduler.handle(now_s, RunFailed("a", "integrity"))
    assert isinstance(decision, FailJob)
    assert scheduler.phase("a") is None


def test_a_store_that_is_down_uses_no_attempts() -> None:
    scheduler = Scheduler(direct)
    submit(scheduler, job("a"))
    for second in range(50):
        (stop,) = scheduler.handle(second, StoreDown("lab"))
        assert isinstance(stop, StopJob)
        assert why(scheduler, "a") == "Store lab does not answer."
        assert scheduler.eta("a") is None
        assert started(scheduler.handle(second, StoreUp("lab"))) == ["a"]


def test_a_store_that_is_down_for_one_tenant_holds_up_no_other() -> None:
    """A limit of one job keeps both at the store, where the turn must not stay with the tenant that cannot use it."""
    scheduler = Scheduler(direct)
    limited(scheduler, STORE_IN, "lab", ONE)
    submit(scheduler, job("a", tenant="one"))
    submit(scheduler, job("b", tenant="one"))
    submit(scheduler, job("c", tenant="two"))
    decisions = scheduler.handle(1, StoreDown("lab", "one"))
    assert [type(one) for one in decisions] == [StopJob, StartJob]
    assert started(decisions) == ["c"]
    assert why(scheduler, "a") == why(scheduler, "b") == "Store lab does not answer."
    submit(scheduler, job("d", tenant="two"), now_s=2)
    assert started(scheduler.handle(3, RunEnded("c"))) == ["d"]
    assert started(scheduler.handle(4, RunEnded("d"))) == []
    assert len(started(scheduler.handle(5, StoreUp("lab", "one")))) == 1
    assert scheduler.handle(6, RunEnded("a")) != []


def test_a_drain_lets_jobs_finish_and_a_stop_does_not() -> None:
    scheduler = Scheduler(direct)
    submit(scheduler, job("a"))
    link = Resource(LINK, "cern>lab")
    assert scheduler.handle(1, BanSet(Ban("fibre", link, "cut"))) == []
    assert submit(scheduler, job("b"), now_s=1) == []
    assert why(scheduler, "b") == "Ban fibre closes link cern>lab."
    (stop,) = scheduler.handle(2, BanSet(Ban("fibre", link, "cut", stops_jobs=True)))
    assert isinstance(stop, StopJob)
    assert sorted(started(scheduler.handle(3, BanLifted("fibre")))) == ["a", "b"]


def test_a_ban_can_refuse_new_jobs() -> None:
    scheduler = Scheduler(direct)
    scheduler.handle(0, BanSet(Ban("retired", Resource(STORE_IN, "lab"), "moved to lab2", refuses_jobs=True)))
    (decision,) = scheduler.handle(0, JobSubmitted(job("a")))
    assert decision == RefuseJob("a", "ban retired refuses new jobs: moved to lab2")


def test_a_maintenance_window_begins_and_ends_by_itself() -> None:
    scheduler = Scheduler(direct)
    submit(scheduler, job("a"))
    window = Ban("upgrade", Resource(STORE_IN, "lab"), "upgrade", start_s=100, end_s=200, stops_jobs=True)
    assert scheduler.handle(0, BanSet(window)) == []
    assert scheduler.next_wakeup_s() == 100
    (stop,) = scheduler.handle(100, TimePassed())
    assert isinstance(stop, StopJob)
    assert "until 1970-01-01 00:03:20 UTC" in why(scheduler, "a")
    assert started(scheduler.handle(200, TimePassed())) == ["a"]
    assert scheduler.next_wakeup_s() == math.inf


def test_pause_and_resume() -> None:
    scheduler = Scheduler(direct)
    submit(scheduler, job("a"), job("b", path="a/"))
    assert started(scheduler.handle(1, JobPaused("a"))) == ["b"]
    assert why(scheduler, "a") == "The job is paused."
    assert scheduler.handle(2, JobResumed("a")) == []
    assert why(scheduler, "a") == "Job b writes to the same place first."
    assert started(scheduler.handle(3, RunEnded("b"))) == ["a"]


def test_a_job_over_two_busy_sites_is_not_starved() -> None:
    def over_sites(each: object) -> list[Binding]:
        sites = {"both": ("x", "y"), "x": ("x",), "y": ("y",)}[each.activity]  # type: ignore[attr-defined]
        return [Binding("cern", (), sites, (), 8.0)]

    scheduler = Scheduler(over_sites)
    for name in ("x", "y"):
        limited(scheduler, SITE, name, ONE)
    running = {name: f"{name}0" for name in ("x", "y")}
    submit(scheduler, *(job(name, activity=name[0], tenant=name[0]) for name in ("x0", "y0")))
    submit(scheduler, job("both", activity="both"))
    for number in range(1, 200):
        for name in ("x", "y"):
            submit(scheduler, job(f"{name}{number}", activity=name, tenant=name), now_s=number)
            for one in started(scheduler.handle(number, RunEnded(running[name]))):
                running[name] = one
        if scheduler.phase("both") == "running":
            return
    pytest.fail("the job over both sites never started")


def test_queues_without_jobs_are_forgotten() -> None:
    scheduler = Scheduler(direct)
    limited(scheduler, LINK, "cern>lab", ONE)
    for number in range(20):
        # Each plan has a rate of its own, so each planned job has a queue of its own.
        names = [f"{number}{part}" for part in "abc"]
        assert submit(scheduler, *(job(name, planned_gbps=float(number)) for name in names)) == names[:1]
        scheduler.handle(number, JobCancelled(names[2]))
        assert started(scheduler.handle(number, RunEnded(names[0]))) == names[1:2]
        scheduler.handle(number, RunEnded(names[1]))
    assert len(scheduler._turns.queues) == 0
    assert len(scheduler._admitter._wanted) == 0


def counting() -> tuple[Scheduler, list[str]]:
    """Return a scheduler, and the jobs for which it has looked at their routes."""
    asked: list[str] = []

    def bound(each: ServiceJob) -> Sequence[Binding]:
        asked.append(each.id)
        return direct(each)

    return Scheduler(bound), asked


def test_a_limit_that_closes_nothing_is_set_without_a_look_at_all_jobs() -> None:
    """An operator may set thousands at once."""
    scheduler, asked = counting()
    limited(scheduler, LINK, "cern>lab", ONE)
    submit(scheduler, *(job(str(number)) for number in range(100)))
    asked.clear()
    limited(scheduler, TENANT, "astro", ONE, now_s=1)
    assert len(asked) < 10
    limited(scheduler, TENANT, "physics", ResourceLimit(active=0), now_s=2)
    assert scheduler.eta("50") is None
    limited(scheduler, TENANT, "physics", ResourceLimit(active=5), now_s=3)
    assert scheduler.eta("50") is not None


def test_a_store_of_one_tenant_costs_others_nothing() -> None:
    """A tenant can write down many stores that do not answer. Each must not look at the routes of all waiting jobs."""
    scheduler, asked = counting()
    limited(scheduler, LINK, "cern>lab", ONE)
    submit(scheduler, *(job(str(number), tenant="astro") for number in range(100)))
    submit(scheduler, job("own", sources=("wrong",)), job("next", path="own/"))
    assert scheduler.phase("next") == "owned"
    asked.clear()
    scheduler.handle(1, StoreDown("wrong", "physics"))
    assert scheduler.eta("next") is None
    scheduler.handle(2, StoreUp("wrong", "physics"))
    assert scheduler.eta("next") is not None
    assert len(asked) < 30
