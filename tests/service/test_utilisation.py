"""The utilisation that the scheduler records, and that prices follow."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from tests.service.local import new_database
from tests.service.scheduler.scenes import direct, job, limited, submit
from tradewind.service.scheduler.jobs import LINK, SITE, Resource
from tradewind.service.scheduler.limits import ResourceLimit
from tradewind.service.scheduler.state import Scheduler
from tradewind.service.stores import SERVERS
from tradewind.service.utilisation import link_shares, price_utilisations, record_utilisation, smoothed, stepped

HOUR_MS = 3_600_000
STEP_MS = HOUR_MS // 12
LINK_AB = Resource(LINK, "a>b")


def test_a_link_is_as_full_as_the_fullest_of_its_limits() -> None:
    scheduler = Scheduler(direct)
    limited(scheduler, LINK, "cern>lab", ResourceLimit(active=4, rate_gbps=20.0))
    assert scheduler.utilisation() == {}
    assert submit(scheduler, job("1")) == ["1"]
    assert scheduler.utilisation() == {Resource(LINK, "cern>lab"): pytest.approx(0.4)}
    limited(scheduler, LINK, "cern>lab", ResourceLimit(active=1, rate_gbps=20.0))
    assert scheduler.utilisation() == {Resource(LINK, "cern>lab"): 1.0}


def test_a_tuned_link_is_as_full_as_its_jobs() -> None:
    scheduler = Scheduler(direct, tunes_links=True)
    assert submit(scheduler, job("1"), job("2")) == ["1", "2"]
    assert scheduler.utilisation() == {Resource(LINK, "cern>lab"): 2 / 16}


def test_an_hour_has_a_weight_of_an_eighth_in_any_steps() -> None:
    assert smoothed(0.0, 1.0, HOUR_MS) == pytest.approx(1 / 8)
    share = 0.0
    for _ in range(60):
        share = smoothed(share, 1.0, HOUR_MS // 60)
    assert share == pytest.approx(1 / 8)


def test_tenants_see_quarters() -> None:
    shares = [random.Random(1).random() * 2 for _ in range(100)]
    assert {stepped(share) for share in shares} <= {0.0, 0.25, 0.5, 0.75, 1.0}
    assert [stepped(share) for share in sorted(shares)] == sorted(stepped(share) for share in shares)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    with new_database(tmp_path).write() as connection:
        yield connection


def test_the_record_follows_what_is_in_use(connection: Connection) -> None:
    assert price_utilisations(connection, [("a>b",)]) == [0.0]
    used = {LINK_AB: 1.0, SERVERS: 0.5, Resource(SITE, "lab"): 1.0}
    for step in range(60 * 12):
        record_utilisation(connection, used, step * STEP_MS)
    assert link_shares(connection) == {"a>b": pytest.approx(1.0, abs=0.01)}
    assert price_utilisations(connection, [("a>b",), ("c>d",), ("c>d", "a>b")]) == [1.0, 0.5, 1.0]
    for hour in range(60, 160):
        record_utilisation(connection, {}, hour * HOUR_MS)
    assert link_shares(connection) == {}
    assert price_utilisations(connection, [("a>b",)]) == [0.0]


def test_a_clock_that_is_set_back_changes_nothing(connection: Connection) -> None:
    for step in range(13):
        record_utilisation(connection, {LINK_AB: 1.0}, 10 * HOUR_MS + step * STEP_MS)
    record_utilisation(connection, {LINK_AB: 1.0}, 2 * HOUR_MS)
    assert link_shares(connection) == {"a>b": pytest.approx(1 / 8)}


def test_more_than_a_full_link_counts_as_full(connection: Connection) -> None:
    """A limit that was lowered while many jobs ran must not keep prices high for a day."""
    for step in range(13):
        record_utilisation(connection, {LINK_AB: 50.0}, step * STEP_MS)
    assert link_shares(connection) == {"a>b": pytest.approx(1 / 8)}
    assert price_utilisations(connection, [("a>b",)]) == [0.0]


def test_a_pause_of_all_servers_counts_as_idle(connection: Connection) -> None:
    for step in range(13):
        record_utilisation(connection, {LINK_AB: 1.0}, step * STEP_MS)
    record_utilisation(connection, {LINK_AB: 1.0}, 25 * HOUR_MS)
    assert link_shares(connection) == {"a>b": pytest.approx(1 / 8 * (7 / 8) ** 24, abs=0.02)}
