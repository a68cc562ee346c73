"""Requests are counted from the objects of a transfer, and priced by kind."""

from __future__ import annotations

import pytest

from tradewind.catalog.load import load_catalog
from tradewind.model.goal import Cheapest, MaxCost
from tradewind.model.region import parse_region
from tradewind.model.requests import ObjectSet, RequestPrices, Requests, request_usd
from tradewind.planner.plan import prepare, solve_overlay
from tradewind.render.words import plan_lines

AWS = RequestPrices(0.0004, 0.005, 0.005, 0.0004)


def test_a_million_small_objects_cost_a_million_requests() -> None:
    small = ObjectSet(1_000_000, 10e9)
    assert small.at_source() == Requests(gets=1_000_000, lists=1_000)
    assert small.at_destination() == Requests(puts=1_000_000)
    usd = request_usd(small.at_source(), AWS) + request_usd(small.at_destination(), AWS)
    assert usd == pytest.approx(0.40 + 0.005 + 5.00), "the list price"


def test_large_objects_are_written_in_parts_that_are_opened_and_closed() -> None:
    large = ObjectSet(3, 3 * 100 * 2**20)
    assert large.at_source().gets == 3 * 7
    assert large.at_destination().puts == 3 * (7 + 2)
    assert ObjectSet(3, 3 * 2**24).at_destination() == Requests(puts=3), "an object of one chunk is one write"
    assert ObjectSet.of_chunk_size(160e9).count == 9537
    assert str(large.at_source() + large.at_destination()) == "21 GET, 27 PUT, 1 LIST, 6 HEAD"


@pytest.mark.slow
def test_a_plan_and_its_ceiling_count_the_requests_of_the_objects() -> None:
    ends = parse_region("aws:us-east-1"), parse_region("aws:us-west-2")
    few, many = (prepare(load_catalog(), *ends, 10.0, objects=count) for count in (100, 1_000_000))
    cheap = solve_overlay(many, Cheapest())
    assert cheap.cost.requests_usd == pytest.approx(5.405)
    assert "  requests  $5.41: 1,000,000 GET, 1,000,000 PUT, 1,000 LIST for 1,000,000 objects" in plan_lines(cheap)
    assert solve_overlay(few, Cheapest()).cost.requests_usd < 0.01
    fast = solve_overlay(many, MaxCost(cheap.cost.total_usd * 1.05))
    assert fast.cost.total_usd <= cheap.cost.total_usd * 1.05 * (1 + 1e-9), "requests are under the ceiling"
