"""Detecting a plan that falls short, finding the slow links, and the new request to the planner."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.sky.world import RELAY, SINK, SOURCE, WORLD
from tradewind.catalog.load import load_catalog
from tradewind.engine.closed import ClosedPlaces
from tradewind.engine.provisioning import plan_gateways
from tradewind.engine.rates import GRACE_S, SPAN_S, UNDER_S, RateMonitor, SlowRoutes
from tradewind.engine.replan import PlanRequest, TransferState, observed_links, revise_plan, unreachable
from tradewind.fleet.sky_catalog import sky_catalog
from tradewind.model.catalog import Catalog
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput
from tradewind.model.origin import Origin
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute, Prediction
from tradewind.model.price import EgressPrice, PriceTier
from tradewind.model.region import Region
from tradewind.planner.network import PlanningLimits
from tradewind.sky.file import network_from_document

HERE, VIA, THERE = Region.parse(SOURCE), Region.parse(RELAY), Region.parse(SINK)
DIRECT, RELAYED = ("a", "b"), ("a", "r", "b")
MBIT_BYTES = 125_000


def catalog() -> Catalog:
    return sky_catalog(network_from_document(WORLD, Path()), load_catalog())


def plan(*routes: tuple[str, ...]) -> Plan:
    """Return a plan with routes of equal share and a planned rate of 40 Mbit/s in total."""
    places = {"a": SOURCE, "r": RELAY, "b": SINK}
    passed = {name for route in routes for name in route}
    pairs = dict.fromkeys(pair for route in routes for pair in itertools.pairwise(route))
    return Plan(
        (PlannedGateway("lead", SOURCE), *(PlannedGateway(n, p) for n, p in places.items() if n in passed)),
        tuple(PlannedHop(start, end, 32) for start, end in pairs),
        tuple(PlannedRoute(route, 1 / len(routes)) for route in routes),
        prediction=Prediction(0.04, 60.0, 0.01),
    )


class Lead:
    """A fake lead that reports progress twice a second, with given rates of the routes."""

    def __init__(self, of: Plan, left_bytes: int = 10**9, **settings: Any) -> None:
        ids = {route.nodes: number for number, route in enumerate(of.routes)}
        rest: dict[str, Any] = {"limit_bytes_per_s": None, "chunk_bytes": 1 << 17, **settings}
        self.watch = RateMonitor(of, ids, **rest)
        self.ids, self.left_bytes, self.now_s = ids, left_bytes, 0.0
        self.bytes = dict.fromkeys(ids, 0.0)

    def run(self, lasting_s: float, down: tuple[str, ...] = (), **mbps: float) -> SlowRoutes | None:
        """Report for `lasting_s`; return the last answer. `mbps` has the rates of `direct` and `relayed` routes."""
        seen = None
        names = {DIRECT: "direct", RELAYED: "relayed"}
        for _ in range(round(lasting_s * 2)):
            self.now_s += 0.5
            for route in self.bytes:
                self.bytes[route] += mbps[names[route]] * MBIT_BYTES / 2
            hops = [
                {"id": self.ids[route], "bytes": int(count), "up": names[route] not in down}
                for route, count in self.bytes.items()
            ]
            done = int(sum(self.bytes.values()))
            seen = self.watch.see(
                {
                    "elapsed_s": self.now_s,
                    "listed": True,
                    "bytes_done": done,
                    "bytes_total": done + self.left_bytes,
                    "hops": hops,
                }
            )
        return seen


def test_a_route_that_slows_to_a_third_is_detected_within_seconds_but_not_at_once() -> None:
    lead = Lead(plan(DIRECT, RELAYED))
    assert lead.run(30, direct=20, relayed=20) is None
    assert lead.run(2, direct=20 / 3, relayed=20) is None
    seen = lead.run(SPAN_S + UNDER_S, direct=20 / 3, relayed=20)
    assert seen is not None and seen.under == (DIRECT,)
    assert seen.carried_gbps[DIRECT] == pytest.approx(0.02 / 3, rel=0.05)


def test_routes_whose_work_others_took_over_are_not_called_slow() -> None:
    lead = Lead(plan(DIRECT, RELAYED))
    assert lead.run(60, direct=5, relayed=35) is None


def test_if_no_route_moves_anything_none_is_called_slow() -> None:
    lead = Lead(plan(DIRECT, RELAYED))
    lead.run(30, direct=20, relayed=20)
    # While the measured rate is a mean over both phases, it may look like a shortfall.
    lead.run(SPAN_S, direct=0, relayed=0)
    assert lead.run(20, direct=0, relayed=0) is None
    alone = Lead(plan(DIRECT))
    alone.run(30, direct=40)
    assert alone.run(20, direct=0) is not None


def test_the_first_seconds_and_the_last_bytes_are_ignored() -> None:
    assert Lead(plan(DIRECT)).run(GRACE_S, direct=1) is None
    assert Lead(plan(DIRECT), left_bytes=1_000_000).run(60, direct=5) is None


def test_a_rate_limited_transfer_is_not_called_slow() -> None:
    assert Lead(plan(DIRECT), limit_bytes_per_s=5 * MBIT_BYTES).run(60, direct=5) is None


def test_a_link_of_a_route_at_its_planned_rate_is_not_called_slow() -> None:
    of = plan(DIRECT, RELAYED)
    carried = {DIRECT: 0.005, RELAYED: 0.02}
    promised = {DIRECT: 0.02, RELAYED: 0.02}
    links = observed_links(catalog(), of, SlowRoutes(carried, promised, (DIRECT,), frozenset()))
    assert links == {(HERE, THERE): pytest.approx(0.005 * 64 / 32)}
    swapped = SlowRoutes({DIRECT: 0.02, RELAYED: 0.005}, promised, (RELAYED,), frozenset())
    halved = observed_links(catalog(), of, SlowRoutes(carried, promised, (DIRECT,), frozenset()), 0.5)
    assert halved == pytest.approx({pair: gbps / 2 for pair, gbps in links.items()}), "compressed bytes"
    assert set(observed_links(catalog(), of, swapped)) == {(HERE, VIA), (VIA, THERE)}


def test_relays_used_only_by_dead_routes_and_ended_relays_are_planned_around() -> None:
    of = plan(DIRECT, RELAYED)
    rates = {DIRECT: 0.02, RELAYED: 0.0}
    seen = SlowRoutes(rates, {DIRECT: 0.02, RELAYED: 0.02}, (RELAYED,), frozenset({RELAYED}))
    assert unreachable(of, seen, {"lead", "a", "r", "b"}) == {"r"}
    assert unreachable(of, seen, {"lead", "a", "b"}) == {"r"}
    both = SlowRoutes(rates, rates, (DIRECT, RELAYED), frozenset())
    assert unreachable(of, both, {"lead", "a", "r", "b"}) == set()


def plan_request(goal: Goal, ceiling_usd: float | None = None) -> PlanRequest:
    return PlanRequest(catalog(), HERE, THERE, goal, PlanningLimits(machines_per_region=2), 1 << 17, ceiling_usd, None)


def state(**changes: Any) -> TransferState:
    """Return a state with half a GB left, and a direct link at 15 of its 47 Mbit/s."""
    rest: dict[str, Any] = {
        "left_bytes": 500_000_000,
        "total_bytes": 1_000_000_000,
        "elapsed_s": 80.0,
        "carried_gbps": 0.015,
        "egress_usd": 0.05,
        "machines_usd": 0.001,
        "links": {(HERE, THERE): 0.015},
        "dead": {},
    }
    return TransferState(**{**rest, **changes})


def test_a_slow_link_is_replaced_by_the_relay() -> None:
    found = revise_plan(plan_request(Fastest()), state())
    assert found is not None
    assert any("azure-westus2-1" in route.nodes for route in found.plan.routes)


def test_a_closed_link_or_region_is_left_for_a_slower_route_if_there_is_one() -> None:
    """Places that were closed when the job was proposed are open by now."""
    asked = plan_request(Fastest())
    asked = replace(asked, limits=replace(asked.limits, closed_regions=(VIA,)))

    def left(*, regions: tuple[Region, ...] = (), links: tuple[tuple[Region, Region], ...] = ()) -> set[str]:
        closed = ClosedPlaces(frozenset(regions), frozenset(links))
        found = revise_plan(asked, state(links={}, carried_gbps=0.0, closed=closed))
        assert found is None or not closed.used_by(found.plan)
        return set() if found is None else {one.region for one in found.plan.machines}

    assert left(links=((HERE, THERE),)) == {SOURCE, RELAY, SINK}
    assert left(regions=(VIA,)) == {SOURCE, SINK}
    assert left(regions=(HERE, THERE), links=((HERE, VIA),)) == {SOURCE, SINK}, "both ends stay where they are"
    assert left(regions=(VIA,), links=((HERE, THERE),)) == set()


def test_the_closed_places_of_a_plan_are_named_once() -> None:
    closed = ClosedPlaces(frozenset({HERE, VIA}), frozenset({(HERE, VIA), (THERE, HERE)}))
    assert closed.used_by(plan(DIRECT)) == ()
    assert closed.used_by(plan(DIRECT, RELAYED)) == (f"region {RELAY}", f"link {SOURCE} → {RELAY}")


def test_a_plan_that_is_hardly_better_is_not_adopted() -> None:
    fastest = plan_gateways(catalog(), HERE, THERE, 0.5, Fastest(), PlanningLimits(machines_per_region=2))
    assert fastest.prediction is not None
    almost = state(links={}, carried_gbps=fastest.prediction.throughput_gbps * 0.95)
    assert revise_plan(plan_request(Fastest()), almost) is None
    assert revise_plan(plan_request(Cheapest()), state()) is None, "the slow route is still the cheapest"


@pytest.mark.parametrize("ceiling_usd", [0.1, 0.13, 0.2])
def test_a_ceiling_is_reduced_by_the_spent_cost_and_never_exceeded(ceiling_usd: float) -> None:
    found = revise_plan(plan_request(MaxCost(ceiling_usd), ceiling_usd), state())
    assert found is not None
    assert found.plan.prediction is not None and found.ceiling_usd_per_gb is not None
    assert found.plan.prediction.cost_usd <= ceiling_usd - 0.051
    assert found.plan.overlay is not None
    assert found.ceiling_usd_per_gb * 1.0 + found.plan.overlay.cost.machines_usd + 0.001 <= ceiling_usd


def test_the_average_price_of_a_new_plan_counts_what_was_already_sent() -> None:
    """Else the lead of a resumed job would refuse the list of all its objects, because the rest is dear."""
    before = state()
    found = revise_plan(plan_request(MaxCost(0.2), 0.2), before)
    assert found is not None and found.ceiling_usd is not None and found.plan.mean_usd_per_gb > 0
    left_gb, total_gb = before.left_bytes / 1e9, before.total_bytes / 1e9
    assert 0 < left_gb < total_gb
    assert found.mean_usd_per_gb * total_gb == pytest.approx(before.egress_usd + left_gb * found.plan.mean_usd_per_gb)
    assert found.ceiling_usd >= found.mean_usd_per_gb * total_gb


@pytest.mark.parametrize("ceiling_usd", [0.052, 0.07])
def test_no_plan_is_adopted_if_the_ceiling_leaves_no_room(ceiling_usd: float) -> None:
    assert revise_plan(plan_request(MaxCost(ceiling_usd), ceiling_usd), state()) is None


def test_a_deadline_or_rate_that_became_infeasible_is_missed_by_little() -> None:
    for goal in (Deadline(85.0), MinThroughput(0.5)):
        found = revise_plan(plan_request(goal), state())
        assert found is not None and found.plan.prediction is not None
        assert found.plan.prediction.throughput_gbps > 0.09


def test_a_region_whose_machine_is_gone_is_excluded_from_planning() -> None:
    assert revise_plan(plan_request(Fastest()), state(dead={"azure-westus2-1": VIA})) is None


def test_no_gateway_reuses_the_name_of_one_that_is_gone() -> None:
    world = {**WORLD, "regions": {**WORLD["regions"], RELAY: {**WORLD["regions"][RELAY], "machines": 2}}}
    roomy = sky_catalog(network_from_document(world, Path()), load_catalog())
    asked = PlanRequest(roomy, HERE, THERE, Fastest(), PlanningLimits(machines_per_region=2), 1 << 17, None, None)
    found = revise_plan(asked, state(dead={"azure-westus2-1": VIA}))
    assert found is not None
    names = {gateway.name for gateway in found.plan.gateways}
    assert "azure-westus2-2" in names and "azure-westus2-1" not in names


def test_a_new_plan_continues_in_the_price_tier_that_was_reached() -> None:
    """The direct path costs 1.00 USD per GB for the account's first GB, then 0.10."""
    known = catalog()
    dear = EgressPrice((PriceTier(0.0, 1.0), PriceTier(1.0, 0.1)), Origin("imported", "a test", ""))
    prices = replace(known.prices, pairs={**known.prices.pairs, (HERE, THERE): dear, (VIA, THERE): dear})
    asked = replace(plan_request(Fastest()), catalog=replace(known, prices=prices))
    dearest = []
    for now in (state(), state(sent_gb={(HERE, THERE): 1.5})):
        found = revise_plan(asked, now)
        assert found is not None and found.plan.overlay is not None
        dearest.append(max(edge.usd_per_gb for edge in found.plan.overlay.edges))
    assert dearest == [pytest.approx(1.0), pytest.approx(0.1)]
