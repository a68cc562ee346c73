"""The links of planned jobs, and that a job does not start on links that the scheduler has not granted."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.service.scheduler.scenes import job
from tradewind.errors import StateError
from tradewind.model.plan import Plan
from tradewind.service.bindings import ServiceBinder
from tradewind.service.faults import Faults
from tradewind.service.granted_routes import RoutesNotGranted, require_granted
from tradewind.service.grid import GridReader
from tradewind.service.job_routes import JobRoutes, RoutesInUse, planned_routes
from tradewind.service.jobs import JobRow, LeaseLost
from tradewind.service.routes_recorder import RoutesRecorder
from tradewind.service.scheduler.jobs import LINK, SITE, Resource, resources_of

PLACES = {"a1": "site:a", "a2": "site:a", "r": "site:r", "b": "site:b"}


def plan(*routes: tuple[str, ...], has_machines: bool = True) -> Plan:
    gateways = [SimpleNamespace(name=name, region=region) for name, region in PLACES.items()]
    made = [SimpleNamespace(nodes=nodes) for nodes in routes]
    overlay = object() if has_machines else None
    prediction = SimpleNamespace(throughput_gbps=3.0)
    return cast(Plan, SimpleNamespace(gateways=gateways, routes=made, overlay=overlay, prediction=prediction))


def test_each_hop_between_regions_is_a_link() -> None:
    found = planned_routes(plan(("a1", "b"), ("a2", "r", "b"), ("a1", "a2", "b")), "site:a>site:b")
    assert found == JobRoutes(("site:a>site:b", "site:a>site:r", "site:r>site:b"), 3.0)
    assert JobRoutes.of_text(found.text()) == found


def test_a_direct_link_counts_if_it_is_used_or_names_a_store() -> None:
    assert planned_routes(plan(("a1", "r", "b")), "site:a>site:b") == JobRoutes(("site:a>site:r", "site:r>site:b"), 3.0)
    assert planned_routes(plan(("a1", "b")), "s3://x>site:b") == JobRoutes(("site:a>site:b", "s3://x>site:b"), 3.0)
    assert planned_routes(plan(("a1", "a2")), "site:a>site:a") == JobRoutes(("site:a>site:a",), 3.0)
    assert planned_routes(plan(("a1", "b"), has_machines=False), "site:a>site:b") is None


def test_a_planned_job_is_counted_on_its_relays(tmp_path: Path) -> None:
    links = ("aws:us-east-1>aws:eu-west-1", "aws:eu-west-1>aws:eu-north-1")
    planned = job("1", sources=("s3://a",), destination="s3://b", links=links, planned_gbps=3.0)
    (binding,) = ServiceBinder(GridReader(str(tmp_path)))(planned)
    assert binding.rate_gbps == 3.0
    used = resources_of(planned, binding)
    assert [one.name for one in used if one.kind == LINK] == list(links)
    assert Resource(SITE, "aws:eu-west-1") in used


def test_a_link_that_two_routes_share_is_counted_once() -> None:
    planned = job("1", links=("a>r", "r>b", "a>r"))
    (binding,) = [cast(Any, SimpleNamespace(source="cern", links=planned.links, sites=()))]
    assert [one.name for one in resources_of(planned, binding) if one.kind == LINK] == ["a>r", "r>b"]


def test_routes_in_use_follow_the_plan() -> None:
    used = RoutesInUse(("site:a>site:b",), "site:a>site:b")
    first, second = plan(("a1", "b")), plan(("a1", "r", "b"))

    def recorded(plan: Plan) -> list[JobRoutes]:
        found: list[JobRoutes] = []
        used.record(plan, found.append)
        return found

    def fails(_: JobRoutes) -> None:
        raise StateError("no answer")

    assert recorded(first) == [], "as granted"
    with pytest.raises(StateError):
        used.record(second, fails)
    assert recorded(second) == [JobRoutes(("site:a>site:r", "site:r>site:b"), 3.0)], "it was not recorded before"
    assert recorded(second) == []
    assert recorded(plan(("a2", "r", "b"))) == [], "other machines of the same regions"
    assert recorded(plan(("a1", "b"), has_machines=False)) == []
    assert recorded(first) == [JobRoutes(("site:a>site:b",), 3.0)]


def test_a_database_that_hangs_while_routes_are_recorded_does_not_hold_up_the_run() -> None:
    """The thread of a run stops it when its lease ends, which it must notice in time."""
    hanging, written = threading.Event(), list[JobRoutes]()

    def write(found: JobRoutes) -> None:
        assert hanging.wait(60)
        written.append(found)

    recorder = RoutesRecorder(RoutesInUse((), "site:a>site:b"), write, Faults())
    present = plan(("a1", "b"))
    recorder.look(present)
    first = recorder.recording
    recorder.look(present)
    assert first is not None and recorder.recording is first and not written
    hanging.set()
    first.join()
    recorder.look(present)
    assert recorder.recording is first and written == [JobRoutes(("site:a>site:b",), 3.0)]


def test_a_write_that_finds_the_lease_lost_ends_the_run_and_others_are_tried_again() -> None:
    answers: list[Exception] = [StateError("no answer"), LeaseLost("j1")]

    def write(_: JobRoutes) -> None:
        raise answers.pop(0)

    faults = Faults()
    recorder = RoutesRecorder(RoutesInUse((), "site:a>site:b"), write, faults)
    for _ in range(2):
        recorder.look(plan(("a1", "b")))
        assert recorder.recording is not None
        recorder.recording.join()
    with pytest.raises(LeaseLost):
        recorder.look(plan(("a1", "b")))
    assert not answers and not faults.failing()


def test_plans_that_alternate_are_granted_together() -> None:
    def row(granted: tuple[str, ...], routes: JobRoutes | None) -> JobRow:
        values = dict.fromkeys(JobRow.__dataclass_fields__)
        text = None if routes is None else routes.text()
        return JobRow(**{**values, "granted": json.dumps({"links": granted}), "routes": text})  # type: ignore[arg-type]

    first, second = JobRoutes(("a>r", "r>b"), 3.0), JobRoutes(("a>s", "s>b"), 4.0)
    require_granted(row(("a>b",), None), None)
    with pytest.raises(RoutesNotGranted) as planned:
        require_granted(row(("a>b",), None), first)
    assert planned.value.routes == first
    require_granted(row(first.links, first), first)
    with pytest.raises(RoutesNotGranted) as planned:
        require_granted(row(first.links, first), second)
    assert set(planned.value.routes.links) == {*first.links, *second.links}
    require_granted(row(planned.value.routes.links, planned.value.routes), first)
    for closed in (Resource("link", "a>r"), Resource("site", "r")):
        with pytest.raises(RoutesNotGranted) as planned:
            require_granted(row(first.links, first), second, [closed])
        assert planned.value.routes == second, "it would wait for what its plan does not use"


@pytest.mark.parametrize(
    ("closed", "is_used"),
    [
        (Resource(LINK, "site:a>site:r"), True),
        (Resource(SITE, "site:r"), True),
        (Resource(SITE, "site:a"), False),
        (Resource(LINK, "site:r>site:a"), False),
        (Resource(LINK, "s3://one>s3://two"), False),
    ],
)
def test_routes_use_what_another_plan_may_avoid(closed: Resource, is_used: bool) -> None:
    """No plan avoids the regions of the stores, or the link that is named by these."""
    routes = JobRoutes(("site:a>site:r", "site:r>site:b", "s3://one>s3://two"), 3.0)
    assert routes.uses({closed, Resource(LINK, "site:x>site:y")}) == is_used
