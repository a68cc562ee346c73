"""A tenant that may have no right to write to a place does not keep other tenants from it."""

from tests.service.scheduler.scenes import direct, job, limited, started, submit
from tradewind.service.scheduler.events import RunProgressed, StopJob, TimePassed
from tradewind.service.scheduler.jobs import ServiceJob
from tradewind.service.scheduler.limits import ResourceLimit
from tradewind.service.scheduler.state import Scheduler
from tradewind.service.scheduler.why import OWNED

NONE, MANY = ResourceLimit(active=0), ResourceLimit(active=9)


def blocked(name: str, **changes: object) -> ServiceJob:
    """Return a job of another tenant, without a proof, whose source is closed."""
    return job(name, **{"tenant": "rival", "sources": ("far",), "path": "same/", "is_proven": False, **changes})


def test_a_waiting_job_without_a_proof_lets_other_tenants_go_first() -> None:
    scheduler = Scheduler(direct)
    limited(scheduler, "store-out", "far", NONE)
    assert submit(scheduler, blocked("first"), job("mine", path="same/")) == ["mine"]
    assert submit(scheduler, blocked("second")) == [], "a job that runs is waited for"
    why = scheduler.why("second")
    assert why is not None and why.causes[0].kind == OWNED


def test_with_a_proof_and_within_a_tenant_the_order_is_kept() -> None:
    scheduler = Scheduler(direct)
    limited(scheduler, "store-out", "far", NONE)
    assert submit(scheduler, blocked("first", is_proven=True), job("mine", path="same/")) == []
    scheduler = Scheduler(direct)
    limited(scheduler, "store-out", "far", NONE)
    assert submit(scheduler, blocked("first"), job("second", tenant="rival", path="same/")) == []


def test_a_run_that_writes_nothing_is_stopped_for_another_tenant() -> None:
    scheduler = Scheduler(direct)
    assert submit(scheduler, blocked("first"), job("mine", path="same/")) == ["first"]
    assert scheduler.handle(59.0, TimePassed()) == []
    decisions = scheduler.handle(61.0, TimePassed())
    assert [one.job_id for one in decisions if isinstance(one, StopJob)] == ["first"]
    assert started(decisions) == ["mine"]
    why = scheduler.why("first")
    assert why is not None and why.causes[0].kind == OWNED


def test_a_run_that_writes_is_not_stopped() -> None:
    scheduler = Scheduler(direct)
    submit(scheduler, blocked("first"), job("mine", path="same/"))
    scheduler.handle(30.0, RunProgressed("first", 1, 10))
    assert scheduler.handle(100.0, TimePassed()) == []


def test_a_run_that_nobody_waits_for_is_not_stopped() -> None:
    scheduler = Scheduler(direct)
    submit(scheduler, blocked("first"), job("own", tenant="rival", path="same/"))
    assert scheduler.handle(1000.0, TimePassed()) == []
    limited(scheduler, "store-out", "far", MANY)
