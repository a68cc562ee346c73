"""The plan of a job as a tenant sees it: rates of hops add up, and replaced machines are named."""

from __future__ import annotations

import pytest

import tradewind
from tests.render.small_world import SEATTLE, TOKYO, TORONTO, small_world
from tradewind.engine.replan import with_names
from tradewind.planner.gateways import assign_gateways
from tradewind.service.job_plan import job_plan


def test_a_plan_has_the_rates_of_its_hops_and_the_machines_that_were_replaced() -> None:
    planned = tradewind.plan(str(TORONTO), str(TOKYO), volume_gb=50, max_vms=2, goal="fastest", catalog=small_world())
    first = assign_gateways(planned.overlay)
    gone = next(gateway.name for gateway in first.machines if gateway.region == str(SEATTLE))
    found = job_plan([first, with_names(first, {gone: "fresh"})])
    assert sum(route["share"] for route in found["routes"]) == pytest.approx(1)
    into = [hop for hop in found["hops"] if hop["dst"] == str(TOKYO)]
    assert sum(hop["planned_gbps"] for hop in into) == pytest.approx(planned.throughput_gbps)
    assert {name for hop in into for name in hop["routes"]} == {route["name"] for route in found["routes"]}
    assert any("fresh" in route["name"] for route in found["routes"])
    ended = [machine for machine in found["machines"] if not machine["is_used"]]
    assert ended == [{"name": gone, "region": str(SEATTLE), "is_used": False, "replaced_by": "fresh"}]
    assert found["map"]["svg"].startswith("<svg") and all(hop["lines"] for hop in found["hops"])
