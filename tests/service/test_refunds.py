"""Winners of auctions pay only for what they could use."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from tests.service.local import scheduler
from tests.service.test_auctions import HOUR, begin, bid, charged, sender, sold_database, submit
from tradewind.service import database as clock
from tradewind.service import refunds as refunding
from tradewind.service import scheduling
from tradewind.service.auction_tables import bids
from tradewind.service.database import ServiceDatabase
from tradewind.service.jobs import JobQueue
from tradewind.service.scheduling import ServiceScheduler
from tradewind.service.scheduling_tables import bans, resource_limits
from tradewind.service.tables import jobs

#: 0.3 Gbit/s of the link's 0.5, for an hour, at the reserve.
SLICES, PRICE = 3, 30_000
CHARGE = SLICES * PRICE
STEP_S = 225


@pytest.fixture(autouse=True)
def right_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "SQLITE_CLOCK_MS", clock.SQLITE_CLOCK_MS)
    monkeypatch.setattr(scheduling, "WITHHELD_EVERY_S", 0.0)
    monkeypatch.setattr(refunding, "WITHHELD_GAP_S", 300.0)


@pytest.fixture
def database(tmp_path: Path, right_clock: None) -> Iterator[ServiceDatabase]:
    database = sold_database(tmp_path)
    yield database
    database.close()


@pytest.fixture
def server(database: ServiceDatabase, tmp_path: Path) -> ServiceScheduler:
    """Return a scheduler that has sold most of the link to ada."""
    bid(database, "ada", SLICES, PRICE)
    begin(HOUR, 0)
    one = scheduler(database, tmp_path, "one")
    one.step()
    assert charged(database) == [("ada", CHARGE)]
    return one


def pass_time(server: ServiceScheduler, from_s: int, to_s: int) -> None:
    for at_s in range(from_s, to_s + 1, STEP_S):
        begin(HOUR, at_s)
        server.step()


def refunds(database: ServiceDatabase) -> list[int]:
    return [-usd_micros for _, usd_micros in charged(database)[1:]]


def ban(database: ServiceDatabase, kind: str, name: str) -> None:
    row: dict[str, Any] = {"id": "b", "kind": kind, "name": name, "reason": "repair", "start_unix_ms": 0}
    more = {"end_unix_ms": None, "stops_jobs": 0, "refuses_jobs": 0, "is_maintenance": 0}
    with database.write() as connection:
        connection.execute(insert(bans).values(**row, **more))


def limit(database: ServiceDatabase, kind: str, name: str, active: int) -> None:
    with database.write() as connection:
        connection.execute(insert(resource_limits).values(kind=kind, name=name, active=active))


def end_jobs(database: ServiceDatabase) -> None:
    with database.write() as connection:
        connection.execute(update(jobs).values(state="done"))


def test_bandwidth_that_nobody_wanted_is_paid(database: ServiceDatabase, server: ServiceScheduler) -> None:
    pass_time(server, 0, 3600)
    assert refunds(database) == []
    with database.read() as connection:
        row = connection.execute(select(bids)).mappings().one()
    assert (row["counted_unix_ms"], row["withheld_slice_ms"], row["refunded_usd_micros"]) == (None, 0, 0)


@pytest.mark.parametrize("kind", ["ban", "store"])
def test_what_a_ban_or_a_limit_withholds_is_refunded(
    database: ServiceDatabase, server: ServiceScheduler, kind: str
) -> None:
    """A job of the winner waits for a quarter of the hour."""
    if kind == "ban":
        ban(database, "store-in", "local")
    else:
        limit(database, "store-in", "local", 1)
        submit(database, "eve", "other")
        server.step()
    submit(database, "ada", "mine")
    pass_time(server, 0, 900 - STEP_S)
    end_jobs(database)
    pass_time(server, 900, 3600)
    assert refunds(database) == [CHARGE // 4]
    with database.read() as connection:
        assert connection.execute(select(bids.c.refunded_usd_micros)).scalar_one() == CHARGE // 4


@pytest.mark.parametrize("kind", ["tenant", "own"])
def test_what_the_winner_limits_itself_is_paid(database: ServiceDatabase, server: ServiceScheduler, kind: str) -> None:
    if kind == "tenant":
        limit(database, "tenant", "ada", 0)
    else:
        limit(database, "store-in", "local", 1)
        slow: dict[str, Any] = {"source": "/data/source", "verb": "cp", "recursive": True, "limit_bytes_per_s": 1}
        JobQueue(database).submit(sender("ada"), "slow", "", {**slow, "destination": ["/data/slow"]}, ["/data/slow"])
        server.step()
    submit(database, "ada", "mine")
    pass_time(server, 0, 3600)
    assert refunds(database) == []


def test_time_without_a_scheduler_is_refunded(database: ServiceDatabase, server: ServiceScheduler) -> None:
    pass_time(server, 0, 1800)
    begin(HOUR + 1)
    server.step()
    assert refunds(database) == [CHARGE // 2]


def test_time_without_a_scheduler_is_paid_for_what_a_job_uses(
    database: ServiceDatabase, server: ServiceScheduler
) -> None:
    submit(database, "ada", "mine")
    begin(HOUR, 1)
    server.step()
    begin(HOUR + 1)
    server.step()
    assert refunds(database) == []


def test_a_small_job_gets_a_small_refund(database: ServiceDatabase, server: ServiceScheduler) -> None:
    ban(database, "store-in", "local")
    sixth = {"source": "/data/source", "verb": "cp", "recursive": True, "limit_bytes_per_s": 6_250_000}
    JobQueue(database).submit(sender("ada"), "slow", "", {**sixth, "destination": ["/data/slow"]}, ["/data/slow"])
    pass_time(server, 0, 3600)
    assert refunds(database) == [CHARGE // 6]
