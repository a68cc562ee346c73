"""Bandwidth that tenants have bought is kept for them, and nobody else waits longer than it says."""

import random

import pytest

from tests.service.scheduler.scenes import direct, job, limited, started, submit
from tests.service.scheduler.test_state import why
from tradewind.service.scheduler.events import (
    BandwidthSold,
    JobRestored,
    JobSubmitted,
    RunEnded,
    StartJob,
    TimePassed,
)
from tradewind.service.scheduler.job_states import RUNNING_PHASE
from tradewind.service.scheduler.jobs import LINK, Resource, ServiceJob
from tradewind.service.scheduler.limits import ResourceLimit
from tradewind.service.scheduler.state import Scheduler

HOUR_S = 3600.0
LINE = Resource(LINK, "cern>lab")


def sold(rate_gbps: float, tenant: str = "buyer", until_s: float = HOUR_S) -> BandwidthSold:
    return BandwidthSold(LINE, tenant, rate_gbps, 0.0, until_s)


def scene(limit_gbps: float, *rights: BandwidthSold) -> Scheduler:
    scheduler = Scheduler(direct)
    limited(scheduler, LINK, LINE.name, ResourceLimit(rate_gbps=limit_gbps))
    for right in rights:
        scheduler.handle(0.0, right)
    return scheduler


def rates(scheduler: Scheduler, name: str, **changes: object) -> list[float]:
    made = scheduler.handle(1.0, JobSubmitted(job(name, **changes)))
    return [one.rate_gbps for one in made if isinstance(one, StartJob)]


def test_others_get_what_is_not_sold_and_are_told_why() -> None:
    scheduler = scene(8.0, sold(5.0))
    assert rates(scheduler, "a") == [3.0]
    assert rates(scheduler, "b") == []
    assert why(scheduler, "b") == (
        "The limit of link cern>lab is reached: rate, because a part of it is sold until 1970-01-01 01:00:00 UTC."
    )
    assert rates(scheduler, "mine", tenant="buyer") == [5.0]
    assert why(scheduler, "b") == "The limit of link cern>lab is reached: rate."


def test_what_was_bought_is_enough_to_start_and_does_not_count_against_the_share() -> None:
    scheduler = scene(8.0, sold(0.5))
    assert rates(scheduler, "a") == [7.5]
    assert rates(scheduler, "b") == []
    assert rates(scheduler, "mine", tenant="buyer") == [0.5]
    assert rates(scheduler, "more", tenant="buyer") == []
    assert why(scheduler, "more") == "The limit of link cern>lab is reached: rate."
    assert started(scheduler.handle(2.0, RunEnded("mine"))) == ["more"]


def test_a_buyer_gets_what_it_bought_although_the_link_is_held_for_others() -> None:
    scheduler = scene(8.0)
    half = {"rate_gbps_max": 4.0}
    assert submit(scheduler, job("a", **half), job("b", activity="x", **half)) == ["a", "b"]
    assert rates(scheduler, "large", rate_gbps_min=6.0) == []
    assert started(scheduler.handle(2.0, RunEnded("a"))) == [], "the link is held for the large one"
    assert rates(scheduler, "c", tenant="third") == []
    assert why(scheduler, "c") == "Another job goes first on link cern>lab."
    scheduler.handle(3.0, sold(3.0))
    assert rates(scheduler, "mine", tenant="buyer") == [3.0]
    assert rates(scheduler, "more", tenant="buyer") == []
    assert started(scheduler.handle(4.0, RunEnded("mine"))) == ["more"]


def test_after_the_hour_the_rest_is_free_and_running_jobs_keep_their_rate() -> None:
    scheduler = scene(8.0, sold(6.0))
    assert rates(scheduler, "mine", tenant="buyer", rate_gbps_max=1.0) == [1.0]
    assert rates(scheduler, "a", rate_gbps_max=2.0) == [2.0]
    assert rates(scheduler, "b", rate_gbps_min=3.0) == []
    assert scheduler.next_wakeup_s() == HOUR_S
    (begun,) = scheduler.handle(HOUR_S, TimePassed())
    assert isinstance(begun, StartJob)
    assert (begun.job_id, begun.rate_gbps) == ("b", 5.0)


def test_a_restored_run_uses_what_was_bought_only_if_it_started_since() -> None:
    for started_s, left_gbps in ((-1.0, 3.0), (1.0, 2.0)):
        scheduler = scene(8.0, sold(3.0))
        (binding,) = direct(job("mine"))
        run = {"failures": {}, "binding": binding, "rate_gbps": 1.0, "started_s": started_s}
        scheduler.handle(2.0, JobRestored(job("mine", tenant="buyer"), **run))  # type: ignore[arg-type]
        assert rates(scheduler, "a") == [8.0 - 1.0 - left_gbps]


@pytest.mark.parametrize("seed", range(30))
def test_what_is_sold_is_kept_in_any_order_of_events(seed: int) -> None:
    rng, limit = random.Random(seed), 8.0
    scheduler = scene(limit)
    left = dict(zip(("buyer", "other"), (rng.choice([0.5, 2.0]), rng.choice([1.0, 3.0])), strict=True))
    tenants = "buyer", "other", "third"
    running: dict[str, float] = {}
    jobs: dict[str, ServiceJob] = {}
    for tenant, rate in left.items():
        scheduler.handle(0.0, sold(rate, tenant))
    for step in range(200):
        name = f"{step:03}"
        if running and rng.random() < 0.5:
            ended = rng.choice(sorted(running))
            del running[ended]
            made = scheduler.handle(step, RunEnded(ended))
        else:
            jobs[name] = job(name, tenant=rng.choice(tenants), rate_gbps_max=rng.choice([1.0, 2.0, 8.0]))
            made = scheduler.handle(step, JobSubmitted(jobs[name]))
        running |= {one.job_id: one.rate_gbps for one in made if isinstance(one, StartJob)}
        used = {tenant: sum(rate for one, rate in running.items() if jobs[one].tenant == tenant) for tenant in tenants}
        kept = sum(max(0.0, rate - used[tenant]) for tenant, rate in left.items())
        assert sum(used.values()) + kept <= limit * (1 + 1e-6)
        for tenant, rate in left.items():
            waits = any(
                scheduler.phase(one) not in (None, RUNNING_PHASE) for one, each in jobs.items() if each.tenant == tenant
            )
            assert not waits or used[tenant] >= rate - 1e-6, "a buyer waits only if it uses what it has bought"
