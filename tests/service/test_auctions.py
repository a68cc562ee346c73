"""Auctions on a real database: cleared once, within budgets, and charged to the cent; and their requests."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select, update

from tests.service.local import new_database, scheduler
from tests.service.server import Server
from tradewind.market.money import MICROS_PER_CENT
from tradewind.service import auctions
from tradewind.service import database as clock
from tradewind.service.auction_tables import HOUR_MS, bids
from tradewind.service.auction_tables import auctions as results
from tradewind.service.auctions import clear_auctions, past_auctions, place_bid, withdraw_bid
from tradewind.service.auth import Sender
from tradewind.service.budgets import budget_view
from tradewind.service.database import ServiceDatabase
from tradewind.service.invoices import invoice_months, invoice_of
from tradewind.service.jobs import JobQueue, JobRow
from tradewind.service.money_tables import budgets, charges
from tradewind.service.problems import ApiProblem
from tradewind.service.scheduling import ServiceScheduler
from tradewind.service.scheduling_tables import resource_limits, schedulers
from tradewind.service.tables import tenants

LINE = "site:local>site:local"
#: The hour that the tests sell. Their database has a clock of its own, so that it may have ended.
HOUR = int(time.time()) // 3600 - 2
#: Reserve of a slice: 0.30 USD for 1 Gbit/s and an hour.
RESERVE = 30_000
NAMES = ("ada", "bob", "eve")


@pytest.fixture(autouse=True)
def right_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the database its own clock again after each test."""
    monkeypatch.setattr(clock, "SQLITE_CLOCK_MS", clock.SQLITE_CLOCK_MS)


@pytest.fixture
def database(tmp_path: Path, right_clock: None) -> Iterator[ServiceDatabase]:
    database = sold_database(tmp_path)
    yield database
    database.close()


def sold_database(folder: Path) -> ServiceDatabase:
    database = new_database(folder)
    with database.write() as connection:
        for name in NAMES:
            connection.execute(insert(tenants).values(name=name, created_unix_ms=0))
        connection.execute(insert(resource_limits).values(kind="link", name=LINE, rate_gbps=0.5))
    begin(HOUR - 1)
    return database


def begin(hour: int, after_s: float = 1) -> None:
    """Set the database's clock to some time after the start of an hour."""
    clock.SQLITE_CLOCK_MS = str(round(hour * HOUR_MS + after_s * 1000))


@pytest.fixture
def server(database: ServiceDatabase, tmp_path: Path) -> Callable[[str], ServiceScheduler]:
    return lambda name: scheduler(database, tmp_path, name)


def sender(tenant: str) -> Sender:
    return Sender("token", tenant, "operator", frozenset())


def bid(database: ServiceDatabase, tenant: str, slices: int, usd_micros: int, link: str = LINE) -> str:
    with database.write() as connection:
        row = place_bid(connection, sender(tenant), link, HOUR, slices, usd_micros)
    return str(row["id"])


def set_budget(database: ServiceDatabase, tenant: str, limit: int) -> None:
    with database.write() as connection:
        row = {"tenant": tenant, "period": "month", "limit_usd_micros": limit, "updated_unix_ms": 0}
        connection.execute(insert(budgets).values(**row))


def money(database: ServiceDatabase, tenant: str) -> tuple[int, int]:
    """Return what a tenant has spent, and what is reserved for it."""
    with database.read() as connection:
        found = budget_view(connection, tenant, HOUR * HOUR_MS)
    assert found is not None
    return found["spent_usd_micros"], found["reserved_usd_micros"]


def states(database: ServiceDatabase) -> dict[str, tuple[str, int, int]]:
    """Return state, slices and charge of each tenant's bid."""
    with database.read() as connection:
        return {
            row.tenant: (row.state, row.won_slices, row.charged_usd_micros) for row in connection.execute(select(bids))
        }


def charged(database: ServiceDatabase) -> list[tuple[str, int]]:
    with database.read() as connection:
        return [(row.tenant, row.usd_micros) for row in connection.execute(select(charges).order_by(charges.c.number))]


def test_winners_pay_the_highest_losing_bid_and_losers_are_released(
    database: ServiceDatabase, server: Callable[[str], ServiceScheduler]
) -> None:
    for tenant in NAMES:
        set_budget(database, tenant, 1_000_000)
    bid(database, "ada", 3, 90_000)
    bid(database, "bob", 2, 80_000)
    bid(database, "eve", 1, 70_000)
    assert money(database, "ada") == (0, 270_000)
    one = server("one")
    one.step()
    assert states(database)["ada"] == ("open", 0, 0), "the hour has not begun"
    begin(HOUR)
    one.step()
    assert states(database) == {"ada": ("won", 3, 210_000), "bob": ("won", 2, 140_000), "eve": ("lost", 0, 0)}
    assert charged(database) == [("ada", 210_000), ("bob", 140_000)]
    assert [money(database, name) for name in NAMES] == [(210_000, 0), (140_000, 0), (0, 0)]
    with database.read() as connection:
        assert [tuple(row) for row in connection.execute(select(results.c.slices, results.c.usd_micros))] == [
            (5, 70_000)
        ]


def test_an_auction_is_cleared_once_across_restarts_and_replicas(
    database: ServiceDatabase, server: Callable[[str], ServiceScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_budget(database, "ada", 1_000_000)
    bid(database, "ada", 2, 50_000)
    bid(database, "bob", 2, 50_000)
    one, two = server("one"), server("two")
    one.step()
    begin(HOUR)
    whole = auctions._settle

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(auctions, "_settle", dies)
    with pytest.raises(KeyboardInterrupt):
        one.step()
    monkeypatch.setattr(auctions, "_settle", whole)
    assert (charged(database), money(database, "ada")) == ([], (0, 100_000)), "the winners were charged, then it died"
    with database.write() as connection:
        connection.execute(update(schedulers).values(lease_unix_ms=0))
    two.step()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda server: server.step(), [one, two, one, two]))
    assert charged(database) == [("ada", 2 * RESERVE), ("bob", 2 * RESERVE)]
    restarted = server("three")
    with database.write() as connection:
        connection.execute(update(schedulers).values(lease_unix_ms=0))
    restarted.step()
    assert restarted.is_scheduling
    assert len(charged(database)) == 2
    assert money(database, "ada") == (2 * RESERVE, 0)


def test_a_bid_keeps_within_the_budget_and_can_be_withdrawn(database: ServiceDatabase) -> None:
    set_budget(database, "ada", 100_000)
    first = bid(database, "ada", 2, 40_000)
    with database.write() as connection:
        connection.execute(insert(resource_limits).values(kind="link", name="a:1>a:2", rate_gbps=1.0))
    with pytest.raises(ApiProblem, match="left of the budget") as caught:
        bid(database, "ada", 1, 30_000, "a:1>a:2")
    assert caught.value.status == 402
    with pytest.raises(ApiProblem, match="for the same link and hour"):
        bid(database, "ada", 1, 1)
    with database.write() as connection, pytest.raises(ApiProblem, match="no such bid"):
        withdraw_bid(connection, sender("bob"), first)
    with database.write() as connection:
        withdraw_bid(connection, sender("ada"), first)
    assert money(database, "ada") == (0, 0)
    second = bid(database, "ada", 1, 30_000, "a:1>a:2")
    begin(HOUR, 0)
    with database.write() as connection, pytest.raises(ApiProblem, match="is closed"):
        withdraw_bid(connection, sender("ada"), second)
    with pytest.raises(ApiProblem, match="is not open"):
        bid(database, "bob", 1, 1)


def test_a_late_auction_is_void(database: ServiceDatabase, server: Callable[[str], ServiceScheduler]) -> None:
    set_budget(database, "ada", 1_000_000)
    bid(database, "ada", 2, 50_000)
    begin(HOUR, 301)
    server("one").step()
    assert states(database) == {"ada": ("void", 0, 0)}
    assert money(database, "ada") == (0, 0)
    assert charged(database) == []


def submit(database: ServiceDatabase, tenant: str, name: str) -> JobRow:
    request: dict[str, Any] = {"source": "/data/source", "verb": "cp", "recursive": True, "limit_bytes_per_s": None}
    place = f"/data/{name}"
    row, _ = JobQueue(database).submit(sender(tenant), name, "", {**request, "destination": [place]}, [place])
    return row


def test_only_what_running_jobs_leave_is_sold_and_the_winner_gets_it(
    database: ServiceDatabase, server: Callable[[str], ServiceScheduler]
) -> None:
    one = server("one")
    first = submit(database, "eve", "first")
    with database.write() as connection:
        connection.execute(update(resource_limits).values(rate_gbps=0.2))
    one.step()
    with database.write() as connection:
        connection.execute(update(resource_limits).values(rate_gbps=0.5))
    bid(database, "ada", 5, 50_000)
    begin(HOUR)
    one.step()
    assert states(database)["ada"] == ("won", 3, 3 * 50_000), "a job runs at 0.2 Gbit/s; the lost part sets the price"
    other, mine = submit(database, "eve", "other"), submit(database, "ada", "mine")
    one.step()
    answer = one.answer(other.id)
    assert answer is not None
    assert answer[0] is not None
    assert answer[0].startswith(f"The limit of link {LINE} is reached: rate")
    pages = (JobQueue(database).page(name, before=None, state="running", limit=9) for name in NAMES)
    found = {row.id: row for page in pages for row in page}
    assert set(found) == {first.id, mine.id}
    assert '"rate_gbps": 0.3' in str(found[mine.id].granted)


def test_a_restarted_scheduler_keeps_what_is_sold(
    database: ServiceDatabase, server: Callable[[str], ServiceScheduler]
) -> None:
    bid(database, "ada", 5, 50_000)
    begin(HOUR)
    server("one").step()
    two = server("two")
    with database.write() as connection:
        connection.execute(update(schedulers).values(lease_unix_ms=0))
    row = submit(database, "eve", "other")
    two.step()
    answer = two.answer(row.id)
    assert answer is not None
    assert answer[0] is not None
    assert "because a part of it is sold until" in answer[0]


prices = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(1, 6), st.integers(0, 200_000)),
    max_size=3,
    unique_by=lambda one: one[0],
)


@given(prices)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_invoices_are_the_charges_and_budgets_hold(
    database: ServiceDatabase, offers: list[tuple[str, int, int]]
) -> None:
    with suppress(Undone), database.write() as connection:
        for tenant, slices, price in offers:
            row = {"tenant": tenant, "period": "month", "limit_usd_micros": slices * price, "updated_unix_ms": 0}
            connection.execute(insert(budgets).values(**row))
            begin(HOUR - 1)
            place_bid(connection, sender(tenant), LINE, HOUR, slices, price)
        begin(HOUR)
        clear_auctions(connection, lambda *_: None)
        for tenant, slices, price in offers:
            found = connection.execute(select(bids).where(bids.c.tenant == tenant)).mappings().one()
            spent, budget = found["charged_usd_micros"], budget_view(connection, tenant, HOUR * HOUR_MS)
            assert found["state"] in ("won", "lost")
            assert spent <= slices * price
            assert budget is not None
            assert (budget["spent_usd_micros"], budget["reserved_usd_micros"]) == (spent, 0)
            months = invoice_months(connection, tenant)
            assert len(months) == (found["state"] == "won")
            for entry in months:
                invoice = invoice_of(connection, tenant, entry["month"])
                assert invoice is not None
                assert [(line["subject"], line["usd_micros"]) for line in invoice["lines"]] == [(found["id"], spent)]
                assert sum(line["cents"] for line in invoice["lines"]) == invoice["total_cents"]
                assert invoice["total_cents"] == round(Fraction(spent, MICROS_PER_CENT))
        raise Undone


class Undone(Exception):
    """Rolls a transaction back, so that the next example starts anew."""


def test_a_page_reads_a_part_of_a_history_that_is_hidden(
    database: ServiceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end names no hidden link, and no auction is lost between pages."""
    monkeypatch.setattr(auctions, "AUCTIONS_READ_MAX", 5)
    hidden, seen = [f"a:{number}>s3://theirs" for number in range(3)], "a:1>a:2"
    rows = [(link, hour) for hour in range(1, 20) for link in (*hidden, *([seen] if hour in (1, 2, 9) else []))]
    with database.write() as connection:
        values = [{"link": link, "hour": hour, "slices": 0, "cleared_unix_ms": 1} for link, hour in rows]
        connection.execute(insert(results), values)
        found, place, pages = [], None, 0
        while place is not None or pages == 0:
            page, place = past_auctions(connection, [], place, 1)
            found += [(row["link"], row["hour"]) for row in page]
            assert len(page) <= 1 and (place is None or place[1] in ("", seen))
            pages += 1
    assert found == [(seen, 9), (seen, 2), (seen, 1)]
    assert pages > len(found)


def check_lots(server: Server, admin: httpx.Client, limit: dict[str, Any]) -> None:
    """Links are sold if their rate is limited, they are not closed, and the tenant may use their stores."""
    theirs = "a:4>s3://example.org:443/theirs"
    others = [
        {"kind": "link", "name": "a:2>a:3", "active": 1},
        {"kind": "link", "name": "a:3>a:4", "rate_gbps": 1},
        {"kind": "link", "name": theirs, "rate_gbps": 1},
        {"kind": "link", "name": "a:5>a:6", "rate_gbps": 1},
    ]
    assert admin.put("/v1/limits", json={"limits": [limit, *others]}).status_code == 200
    closed = {"kind": "link", "name": "a:3>a:4", "reason": "a cut cable"}
    ban = admin.post("/v1/bans", json=closed).json()
    found = admin.get("/v1/market/lots", params={"limit": 1}).json()
    (lot,) = found["lots"]
    assert (lot["link"], lot["reserve_usd_micros"], found["next"]) == ("a:1>a:2", 10 * RESERVE, "a:1>a:2")
    assert lot["last_hour"] - lot["first_hour"] == 167
    rest = admin.get("/v1/market/lots", params={"cursor": found["next"]}).json()
    assert [one["link"] for one in rest["lots"]] == ["a:5>a:6"] and rest["next"] is None
    offer = {"hour": int(time.time() // 3600) + 2, "rate_gbps": 0.1, "usd_micros": 10**6}
    refusals = [admin.post("/v1/market/bids", json={**offer, "link": link}) for link in (theirs, "a:7>a:8")]
    assert [refused.status_code for refused in refusals] == [409, 409]
    assert refusals[0].json()["detail"] == refusals[1].json()["detail"].replace("a:7>a:8", theirs)
    past = [(theirs, 9, 0, None, 1), ("a:1>a:2", 8, 0, None, 1), (theirs, 7, 0, None, 1), ("a:5>a:6", 6, 0, None, 1)]
    with closing(sqlite3.connect(server.state / "service.sqlite", timeout=30)) as database, database:
        columns = "link, hour, slices, usd_micros, cleared_unix_ms"
        database.executemany(f"INSERT INTO auctions ({columns}) VALUES (?, ?, ?, ?, ?)", past)
    one = admin.get("/v1/market/auctions", params={"limit": 1}).json()
    assert [row["link"] for row in one["auctions"]] == ["a:1>a:2"] and one["next"] == "8 a:1>a:2"
    two = admin.get("/v1/market/auctions", params={"cursor": one["next"]}).json()
    assert [row["link"] for row in two["auctions"]] == ["a:5>a:6"] and two["next"] is None
    assert admin.get("/v1/market/auctions", params={"cursor": "7 "}).json() == two
    assert admin.delete(f"/v1/bans/{ban['id']}").status_code == 204
    assert admin.put("/v1/limits", json={"limits": [limit]}).status_code == 200


def test_the_requests_of_two_tenants(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.start()
    try:
        with server.client() as admin:
            limit = {"kind": "link", "name": "a:1>a:2", "rate_gbps": 1}
            assert admin.put("/v1/limits", json={"limits": [limit]}).status_code == 200
            assert admin.post("/v1/tenants", json={"name": "lab"}).status_code == 201
            check_lots(server, admin, limit)
            token = admin.post("/v1/tokens", json={"tenant": "lab", "role": "operator"}).json()["token"]
            hour = int(time.time() // 3600) + 2
            offer = {"link": "a:1>a:2", "hour": hour, "rate_gbps": 0.3, "usd_micros": 500_000}
            with server.client(token) as lab:
                made = lab.post("/v1/market/bids", json=offer)
                assert made.status_code == 201, made.text
                found = made.json()
                assert {name: found[name] for name in offer} == offer
                assert (found["state"], found["reserved_usd_micros"]) == ("open", 150_000)
                assert lab.get("/v1/market/bids").json() == {"bids": [found], "next": None}
                assert admin.get("/v1/market/bids").json() == {"bids": [], "next": None}
                assert admin.get(f"/v1/market/bids/{found['id']}").status_code == 404
                assert admin.delete(f"/v1/market/bids/{found['id']}").status_code == 404
                for wrong, status in (
                    ({"rate_gbps": 0.25}, 422),
                    ({"usd_micros": 5}, 422),
                    ({"link": "a:1"}, 422),
                    ({"hour": hour - 2}, 409),
                    ({"hour": hour + 1000}, 409),
                    ({"link": "a:2>a:1"}, 409),
                ):
                    assert lab.post("/v1/market/bids", json={**offer, **wrong}).status_code == status
                assert lab.delete(f"/v1/market/bids/{found['id']}").status_code == 204
                assert lab.get("/v1/market/bids").json()["bids"] == []
    finally:
        server.kill()
