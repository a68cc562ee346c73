"""Plans are made with the operator's rules in mind: what is closed, and limits of rates."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import Connection, insert

from tests.service.local import copy_request, new_database
from tradewind.engine.closed import ClosedPlaces
from tradewind.engine.engine import Engine
from tradewind.engine.proposal import Request
from tradewind.errors import InfeasibleGoal, StateError
from tradewind.fleet.given import GivenCredentials
from tradewind.model.region import Region
from tradewind.service import quotes
from tradewind.service.auction_tables import HOUR_MS, auctions, bids
from tradewind.service.database import ServiceDatabase, database_unix_ms
from tradewind.service.faults import Faults
from tradewind.service.job_routes import JobRoutes
from tradewind.service.operator_rules import ClosedToRun, OperatorRules, PresentRules, operator_rules
from tradewind.service.quotes import QuoteMaker
from tradewind.service.scheduler.events import BandwidthSold
from tradewind.service.scheduler.jobs import LINK, SITE, Resource
from tradewind.service.scheduler.limits import ResourceLimit
from tradewind.service.scheduling_tables import bans, resource_limits

A, B, RELAY = (Region("aws", name) for name in ("us-east-1", "eu-west-1", "eu-north-1"))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ServiceDatabase]:
    database = new_database(tmp_path)
    yield database
    database.close()


def ban(database: ServiceDatabase, kind: str, name: str, *, from_ms: int = -1000, until_ms: int | None = None) -> None:
    """Ban a resource between times from now."""
    with database.write() as connection:
        now_ms = database_unix_ms(connection)
        times = {"start_unix_ms": now_ms + from_ms, "end_unix_ms": None if until_ms is None else now_ms + until_ms}
        flags = dict.fromkeys(("stops_jobs", "refuses_jobs", "is_maintenance"), 0)
        connection.execute(
            insert(bans).values(id=f"b-{kind}-{name}", kind=kind, name=name, reason="x", **times, **flags)
        )


def limit(database: ServiceDatabase, kind: str, name: str, **limits: float) -> None:
    with database.write() as connection:
        connection.execute(insert(resource_limits).values(kind=kind, name=name, **limits))


def test_a_plan_goes_around_what_is_closed(database: ServiceDatabase) -> None:
    ban(database, "site", str(RELAY))
    ban(database, "link", f"{A}>{B}")
    ban(database, "site", "aws:us-west-2", from_ms=60_000)
    ban(database, "site", "aws:us-west-1", until_ms=-1)
    ban(database, "link", f"s3://bucket>{B}")
    ban(database, "store", "s3://bucket")
    limit(database, "link", f"{B}>{A}", active=0)
    limit(database, "site", "gcp:us-east1", rate_gbps=0.0)
    limit(database, "site", "servers", active=0)
    limit(database, "site", "gcp:us-east4", rate_gbps=1.0)
    with database.read() as connection:
        asked = operator_rules(connection).around_closed(Request("s3://a", "s3://b"))
    assert set(asked.closed_regions) == {RELAY, Region("gcp", "us-east1")}
    assert set(asked.closed_links) == {(A, B), (B, A)}


def test_a_running_job_leaves_what_is_closed_and_enters_nothing_below_its_rate(database: ServiceDatabase) -> None:
    ban(database, "link", f"{A}>{B}")
    ban(database, "site", "gcp:us-east1")
    for link in (f"{A}>{RELAY}", f"{RELAY}>{B}", f"{B}>{A}"):
        limit(database, "link", link, rate_gbps=1.0)
    limit(database, "site", str(RELAY), rate_gbps=0.5)
    rules, used = operator_rules_of(database), [f"{A}>{B}", f"{A}>{RELAY}"]
    closed = rules.closed_to(used, 2.0)
    assert (closed.regions, closed.links) == ({Region("gcp", "us-east1")}, {(A, B), (RELAY, B), (B, A)})
    assert rules.closed_to([f"{A}>{B}"], 1.0).regions == {Region("gcp", "us-east1"), RELAY}
    assert rules.closed_to([f"{A}>{B}"], 1.0).links == {(A, B)}


def operator_rules_of(database: ServiceDatabase) -> OperatorRules:
    with database.read() as connection:
        return operator_rules(connection)


def read_once(rules: PresentRules) -> OperatorRules:
    """Return what a read of the database yields that begins now, if one is due."""
    if rules.reading is not None:
        rules.reading.join()
    rules.latest(0.0)
    assert rules.reading is not None
    rules.reading.join()
    found = rules.latest(0.0)
    assert found is not None
    return found


def test_rules_are_read_again_after_a_while(database: ServiceDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = PresentRules(database, Faults())
    assert not read_once(rules).closed
    ban(database, "link", f"{A}>{B}")
    assert not read_once(rules).closed
    monkeypatch.setattr("tradewind.service.operator_rules.RULES_EVERY_S", 0.0)
    rules = PresentRules(database, Faults())
    before = read_once(rules)
    assert before.closed and read_once(rules) is before
    ban(database, "link", f"{B}>{A}")
    assert len(read_once(rules).closed) == 2


def test_rules_of_an_earlier_run_are_not_those_of_a_later_one(database: ServiceDatabase) -> None:
    """The plan of the later one may use what was closed then."""
    rules = PresentRules(database, Faults())
    assert read_once(rules) is rules.latest(0.0)
    assert rules.latest(time.monotonic()) is None


def test_a_database_that_does_not_answer_holds_up_no_run() -> None:
    """The thread of a run stops it when its lease ends, which it must notice in time."""
    hanging = threading.Event()

    class Frozen:
        def read(self) -> AbstractContextManager[Connection]:
            assert hanging.wait(60)
            raise StateError("the connection is lost")

    faults = Faults()
    rules = PresentRules(cast(ServiceDatabase, Frozen()), faults)
    try:
        assert rules.latest(0.0) is None and rules.latest(0.0) is None
    finally:
        hanging.set()
        assert rules.reading is not None
        rules.reading.join()
    assert rules.latest(0.0) is None and not faults.failing()


def test_a_fault_of_the_program_is_recorded_and_ends_no_run() -> None:
    faults = Faults()
    rules = PresentRules(cast(ServiceDatabase, None), faults)
    assert rules.latest(0.0) is None and rules.reading is not None
    rules.reading.join()
    assert rules.latest(0.0) is None and [fault.part for fault in faults.failing()] == ["jobs"]


def test_a_run_hears_of_what_has_changed_only() -> None:
    told = list[ClosedPlaces]()
    run, used = ClosedToRun('{"rate_gbps": 2.0}', told.append), {f"{A}>{B}"}
    closed = OperatorRules(frozenset({Resource(LINK, f"{A}>{B}")}), {})
    narrow = OperatorRules(closed.closed, {Resource(LINK, f"{A}>{RELAY}"): ResourceLimit(rate_gbps=1.0)})
    for rules, links in ((closed, used), (closed, used), (narrow, used), (narrow, {f"{A}>{RELAY}"})):
        run.look(rules, links)
    assert [set(one.links) for one in told] == [{(A, B)}, {(A, B), (A, RELAY)}, {(A, B)}]


def test_a_job_that_needs_what_is_closed_is_planned_nevertheless() -> None:
    """It waits then until its routes are open. A goal that no plan meets is refused."""
    rules = OperatorRules(frozenset({Resource(SITE, str(RELAY))}), {})

    class Planner:
        needs: Region | None = RELAY

        def propose(self, request: Request, *, credentials: GivenCredentials | None) -> Request:
            if self.needs is None or self.needs in request.closed_regions:
                raise InfeasibleGoal("too slow", hint=None, nearest=None)
            return request

    planner, wanted = Planner(), Request("s3://a", "s3://b")

    def closed() -> Any:
        return cast(Any, rules.proposed(cast(Engine, planner), wanted, None)).closed_regions

    assert closed() == ()
    planner.needs = B
    assert closed() == (RELAY,)
    planner.needs = None
    with pytest.raises(InfeasibleGoal):
        closed()


def test_the_lowest_limit_of_all_that_a_job_uses(database: ServiceDatabase, tmp_path: Path) -> None:
    routes, document = JobRoutes((f"{A}>{RELAY}", f"{RELAY}>{B}"), 5.0), copy_request(tmp_path)

    def rate_gbps() -> float:
        with database.read() as connection:
            return operator_rules(connection).rate_gbps("lab", document, routes)

    assert rate_gbps() == math.inf
    for lower, (kind, name) in enumerate(
        [
            ("tenant", "lab"),
            ("site", str(RELAY)),
            ("link", f"{RELAY}>{B}"),
            ("store-in", "local"),
            ("store-out", "local"),
            ("site", "servers"),
        ]
    ):
        limit(database, kind, name, rate_gbps=4.0 - lower / 2)
        assert rate_gbps() == 4.0 - lower / 2
    limit(database, "tenant", "other", rate_gbps=0.1)
    limit(database, "link", f"{A}>{B}", rate_gbps=0.1)
    limit(database, "link", f"{A}>{RELAY}", rate_gbps=0.0)
    assert rate_gbps() == 1.5, "a job waits for what is closed"


def test_a_quote_is_planned_again_only_for_a_lower_rate(
    database: ServiceDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit that is no whole number of bytes per second is rounded."""
    limit_gbps, planned = 0.0200000048, list[int | None]()
    limit(database, "tenant", "lab", rate_gbps=limit_gbps)

    class Planner:
        def propose(self, request: Request, *, credentials: GivenCredentials | None) -> SimpleNamespace:
            planned.append(request.options.limit_bytes_per_s)
            rate_gbps = min(1.0, (planned[-1] or math.inf) * 8e-9)
            return SimpleNamespace(request=request, plan=rate_gbps, drop=lambda: None)

    monkeypatch.setattr(quotes, "planned_routes", lambda rate_gbps, _: JobRoutes((f"{A}>{B}",), rate_gbps))
    maker = QuoteMaker(database, cast(Engine, Planner()))
    maker._proposed("lab", Request("s3://a", "s3://b"), copy_request(tmp_path), None)
    assert planned == [None, round(limit_gbps * 1e9 / 8)]


@pytest.mark.parametrize(("sold_gbps", "own", "others"), [(3.0, 10.0, 7.0), (7.5, 10.0, 2.5), (9.0, 10.0, 10.0)])
def test_a_quote_leaves_out_what_others_have_bought(sold_gbps: float, own: float, others: float) -> None:
    """With less than a quarter of the limit left, the job waits for the end of the hour at the whole rate."""
    link = Resource(LINK, f"{A}>{B}")
    sold = BandwidthSold(link, "buyer", sold_gbps, 0.0, 3600.0)
    rules = OperatorRules(frozenset(), {link: ResourceLimit(rate_gbps=10.0)}, [sold])
    document = {"source": "s3://one/", "destination": ["s3://two/"]}
    routes = JobRoutes((link.name,), 20.0)
    assert rules.rate_gbps("buyer", document, routes) == own
    assert rules.rate_gbps("other", document, routes) == others


def test_only_what_is_sold_for_the_present_hour_counts(database: ServiceDatabase) -> None:
    link = Resource(LINK, f"{A}>{B}")
    with database.write() as connection:
        hour = database_unix_ms(connection) // HOUR_MS
        for later, slices in ((0, 30), (1, 50)):
            lot = {"link": link.name, "hour": hour + later, "slices": slices, "usd_micros": 10}
            connection.execute(insert(auctions).values(**lot, cleared_unix_ms=hour * HOUR_MS))
            won = {"id": f"b{later}", "tenant": "default", "state": "won", "won_slices": slices}
            money = dict.fromkeys(("placed_unix_ms", "reserved_usd_micros", "charged_usd_micros"), 0)
            connection.execute(insert(bids).values(**lot, **won, **money))
    with database.read() as connection:
        (sold,) = operator_rules(connection).sold
    assert (sold.resource, sold.tenant, sold.rate_gbps) == (link, "default", 3.0)
