"""The ledger's sums: everything is counted exactly once over all runs."""

from __future__ import annotations

import json
import random

import pytest

from tradewind.model.document import to_document
from tradewind.model.event import Progress
from tradewind.model.ledger import (
    EdgePrice,
    JobPrices,
    Ledger,
    MachinePrice,
    MachineUse,
    Pieces,
    RunCount,
    run_requests,
)
from tradewind.model.origin import Origin
from tradewind.model.price import EgressPrice, PriceTier
from tradewind.model.requests import RequestPrices, Requests

PRICES = JobPrices(
    {"aws:us-east-1": MachinePrice(0.001, "list")},
    RequestPrices(0.4, 5.0, 5.0, 0.4),
    "store list",
    RequestPrices(0.4, 5.0, 5.0, 0.4),
    "store list",
)


def use(launched_s: float, ended_s: float | None, run: int = 1) -> MachineUse:
    return MachineUse(run, "fleet", "relay-1", "aws:us-east-1", launched_s, ended_s, 0.001, "list")


def test_the_total_is_the_sum_of_the_lines() -> None:
    runs = (RunCount(1, 0.5, Requests(gets=1000, lists=1), Requests(puts=1000)), RunCount(2, 0.25))
    ledger = Ledger(PRICES, 1.0, (use(0.0, 100.0), use(200.0, 250.0, 2)), runs)
    lines = ledger.lines(1000.0)
    assert [(line.run, line.kind) for line in lines] == [
        (1, "machine"),
        (1, "egress"),
        (1, "requests"),
        (1, "requests"),
        (1, "requests"),
        (2, "machine"),
        (2, "egress"),
    ]
    assert ledger.total_usd(1000.0) == pytest.approx(0.15 + 0.75 + 0.4 + 0.005 + 5.0)
    assert sum(line.usd for line in lines) == ledger.total_usd(1000.0)
    assert all(line.source for line in lines)


SHARED, LAST = EdgePrice("aws:a → azure:b", 0.02, "list"), EdgePrice("azure:b → gcp:c", 0.05, "list")
ROUTES = {"a-1 → b-1 → c-1": (SHARED, LAST), "a-1 → b-1": (SHARED,)}


def test_egress_has_a_line_per_edge_with_its_volume_and_price() -> None:
    count = RunCount(1, 3 * 0.02 + 2 * 0.05, route_bytes={"a-1 → b-1 → c-1": 2 * 10**9, "a-1 → b-1": 10**9})
    ledger = Ledger(JobPrices(routes=ROUTES), runs=(count,))
    lines = [(line.what, line.quantity, line.unit, line.unit_usd) for line in ledger.lines(0.0)]
    assert lines == [("aws:a → azure:b", 3.0, "GB", 0.02), ("azure:b → gcp:c", 2.0, "GB", 0.05)]
    assert Ledger.from_document(json.loads(json.dumps(to_document(ledger)))) == ledger


def test_egress_lines_add_up_to_what_the_lead_counts() -> None:
    """Bytes that were sent twice arrived once. Egress that another version counted has no routes."""
    arrived = {"a-1 → b-1": 10**9, "unknown": 10**9}
    for usd, what in (
        (0.03, ["aws:a → azure:b", "bytes sent again"]),
        (0.02, ["aws:a → azure:b"]),
        (0.01, ["all routes"]),
    ):
        ledger = Ledger(JobPrices(routes=ROUTES), runs=(RunCount(1, usd, route_bytes=arrived),))
        assert [line.what for line in ledger.lines(0.0)] == what
        assert ledger.total_usd(0.0) == pytest.approx(usd)
    assert [line.what for line in Ledger(runs=(RunCount(1, 0.5),)).lines(0.0)] == ["all routes"]


def test_a_machine_of_a_dead_owner_is_charged_until_its_lease_must_have_ended() -> None:
    ledger = Ledger(PRICES, machines=(use(0.0, None),), heartbeat_s=50.0, alive_s_max=905.0)
    assert ledger.total_usd(60.0) == pytest.approx(0.060)
    assert ledger.total_usd(1e6) == pytest.approx(0.955)
    # Another process ended it and recorded that.
    assert ledger.ended(100.0).total_usd(1e6) == pytest.approx(0.1)
    assert ledger.ended(1e6).total_usd(2e6) == pytest.approx(0.955)


def test_a_clock_set_back_makes_no_machine_cheaper() -> None:
    """Its owner wrote a heartbeat at 4000 and died. Now the clock shows 500, before the launch."""
    ledger = Ledger(PRICES, machines=(use(1000.0, None),), heartbeat_s=4000.0, alive_s_max=905.0)
    assert ledger.total_usd(500.0) == pytest.approx(3.0)
    assert ledger.ended(500.0).total_usd(500.0) == pytest.approx(3.905), "until its lease had expired"
    assert ledger.ended(3999.0).total_usd(500.0) == pytest.approx(3.0), "clocks are adjusted by a little all the time"


def test_a_ledger_is_the_same_after_it_was_written_and_read() -> None:
    runs = (RunCount(1, 0.5, Requests(gets=3), Requests(puts=4)),)
    ledger = Ledger(PRICES, 1.0, (use(0.0, None), use(1.0, 2.0)), runs, 0.25, 50.0, 905.0)
    assert Ledger.from_document(json.loads(json.dumps(to_document(ledger)))) == ledger
    assert Ledger.from_document({"of_a_later_version": 1}) == Ledger()


def test_requests_of_a_run_leave_out_those_of_earlier_runs_and_count_retries() -> None:
    now = Progress(
        objects_total=3000,
        objects_done=3000,
        objects_earlier=1000,
        bytes_done=3000 * 10_000,
        bytes_earlier=1000 * 10_000,
        retries=7,
    )
    read, write = run_requests(now, destinations=1, chunk_bytes=1 << 24)
    assert (read, write) == (Requests(gets=2007, lists=3), Requests(puts=2007, heads=1000))
    earlier = Progress(objects_done=9, objects_earlier=9)
    assert run_requests(earlier, 1, 1 << 24) == (Requests(), Requests(heads=9)), "earlier copies are checked by HEAD"
    assert run_requests(earlier, 1, 1 << 24, compares=True) == (Requests(), Requests()), (
        "they are checked by the listing"
    )
    read, write = run_requests(now, destinations=1, chunk_bytes=1 << 24, moves=True)
    assert (read.heads, write.heads) == (0, 3000), "each copy is checked by HEAD before its source is deleted"
    read, write = run_requests(now, destinations=3, chunk_bytes=1 << 24, compares=True)
    assert (read.lists, write.lists) == (1, 3), "each destination is listed"


def test_objects_that_the_destination_already_has_are_listed_too() -> None:
    unchanged = Progress(objects_total=500, objects_skipped=9_500)
    read, write = run_requests(unchanged, 1, 1 << 24, compares=True)
    assert (read, write) == (Requests(lists=10), Requests(lists=10))
    read, write = run_requests(unchanged, 2, 1 << 24, compares=True)
    assert (read.lists, write.lists) == (5, 10), "progress counts objects × destinations"


def test_a_large_object_is_read_and_written_in_parts_and_two_destinations_are_read_once() -> None:
    now = Progress(objects_total=2, objects_done=2, bytes_done=2 * 100)
    read, write = run_requests(now, destinations=2, chunk_bytes=10)
    assert read == Requests(gets=10, lists=1, heads=2)
    assert write == Requests(puts=2 * (10 + 2), heads=2)


def test_the_parts_of_a_large_object_among_many_small_ones_are_counted() -> None:
    small, large = 100_000, 1_000
    pieces = Pieces(10)
    lines = [
        *(Progress(objects_total=small + 1, objects_done=done, bytes_done=done) for done in range(0, small + 1, 500)),
        *(Progress(objects_total=small + 1, objects_done=small, bytes_done=small + 10 * part) for part in range(large)),
        Progress(objects_total=small + 1, objects_done=small + 1, bytes_done=small + 10 * large),
    ]
    for now in lines:
        pieces.see(now)
    late, last = lines[-9], lines[-1]
    pieces.see(late)
    read, write = run_requests(last, destinations=1, chunk_bytes=10, pieces=pieces.count)
    assert (read.gets, write.puts) == (small + large, small + large)
    read, write = run_requests(last, destinations=2, chunk_bytes=10, pieces=pieces.count)
    assert (read.gets, write.puts) == ((small + large) // 2, small + large)


def test_prices_of_lists_and_heads_alone_cost_something() -> None:
    assert JobPrices(read=RequestPrices(list_usd_per_1000=0.005)).cost_anything
    assert JobPrices(write=RequestPrices(head_usd_per_1000=0.0004)).cost_anything
    assert not JobPrices().cost_anything


def test_a_machine_is_billed_for_its_providers_minimum() -> None:
    short = MachineUse(1, "fleet", "relay-1", "aws:us-east-1", 100.0, 107.0, 0.001, "list", billed_s_min=60.0)
    long = MachineUse(2, "fleet", "relay-1", "aws:us-east-1", 200.0, 300.0, 0.001, "list", billed_s_min=60.0)
    ledger = Ledger(PRICES, machines=(short, long))
    assert [line.quantity for line in ledger.lines(1000.0)] == [60.0, 100.0]
    assert ledger.total_usd(1000.0) == pytest.approx(0.16)
    assert Ledger.from_document(json.loads(json.dumps(to_document(ledger)))) == ledger


TIERS = (PriceTier(0.0, 0.09), PriceTier(10.0, 0.05), PriceTier(100.0, 0.01))


def tiered(what: str, mean: float, used_gb: float = 0.0) -> EdgePrice:
    return EdgePrice(what, mean, "list", TIERS, "aws", used_gb)


def test_egress_is_metered_by_reached_tiers_not_by_the_plans_mean() -> None:
    """A job of 200 GB that stops after 20 GB is charged the first tiers. The next run continues in its tier."""
    mean = (10 * 0.09 + 90 * 0.05 + 100 * 0.01) / 200
    prices = JobPrices(routes={"a → b": (tiered("aws:a → gcp:b", mean),)})
    first = RunCount(1, 20 * mean, route_bytes={"a → b": 20 * 10**9})
    ledger = Ledger(prices, runs=(first,))
    assert [(line.what, line.quantity, line.unit_usd) for line in ledger.lines(0.0)] == [
        ("aws:a → gcp:b", 10.0, 0.09),
        ("aws:a → gcp:b, from 10 GB", 10.0, 0.05),
    ]
    whole = Ledger(prices, runs=(first, RunCount(2, 180 * mean, route_bytes={"a → b": 180 * 10**9})))
    assert whole.total_usd(0.0) == pytest.approx(200 * mean), "as the plan predicted"
    assert whole.sent_gb() == {"aws:a → gcp:b": 200.0}
    assert Ledger.from_document(json.loads(json.dumps(to_document(whole)))) == whole


@pytest.mark.parametrize("seed", range(50))
def test_metered_egress_does_not_depend_on_how_the_volume_is_divided(seed: int) -> None:
    rng = random.Random(seed)
    used_gb = rng.choice([0.0, 5.0, 10.0, 150.0])
    edges = tuple(tiered(f"aws:{name} → gcp:z", rng.uniform(0.02, 0.08), used_gb) for name in "abc")
    routes = {edge.what: (edge,) for edge in edges}
    runs = []
    for number in range(1, rng.randrange(2, 6)):
        sent = {edge.what: rng.randrange(60 * 10**9) for edge in edges if rng.random() < 0.8}
        at_mean = sum(sent.get(edge.what, 0) / 1e9 * edge.usd_per_gb for edge in edges)
        runs.append(RunCount(number, at_mean, route_bytes=sent))
    ledger = Ledger(JobPrices(routes=routes), runs=tuple(runs))
    volume_gb = sum(sum(run.route_bytes.values()) for run in runs) / 1e9
    price = EgressPrice(TIERS, Origin("imported", "list", ""))
    assert ledger.usd_of("egress", 0.0) == pytest.approx(price.cost_usd(volume_gb, used_gb))
