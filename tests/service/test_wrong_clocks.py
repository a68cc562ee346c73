"""Servers whose clocks are wrong: all times of the service are by the database's clock."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from testbed.loopback import Answer, LoopbackServer, Received
from tests.service.local import new_database, scheduler
from tests.service.server import eventually
from tradewind.engine.engine import Engine
from tradewind.engine.proposal import Request
from tradewind.market.invoice import month_of
from tradewind.service import scheduling
from tradewind.service.auth import Sender, new_token, sender_of, token_digest
from tradewind.service.courier import Courier
from tradewind.service.database import ServiceDatabase
from tradewind.service.down_stores import AskedStore, note_down
from tradewind.service.faults import Faults
from tradewind.service.invoices import invoice_months
from tradewind.service.jobs import JobQueue
from tradewind.service.money_tables import charges, quotes
from tradewind.service.problems import ApiProblem
from tradewind.service.quotes import QuoteMaker
from tradewind.service.schedule_runner import ScheduleRunner
from tradewind.service.scheduling_rows import costs_today
from tradewind.service.scheduling_tables import bans, down_stores, schedules
from tradewind.service.sealing import Sealer
from tradewind.service.settings import ServiceSettings
from tradewind.service.tables import audit, deliveries, job_events, jobs, tokens
from tradewind.service.tables import webhooks as webhook_table

HOUR_S = 3600
SENDER = Sender("admin", "default", "service_admin", frozenset())
REQUEST = {"source": "/a", "destination": ["/b"], "verb": "cp", "recursive": True, "limit_bytes_per_s": None}
both_ways = pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ServiceDatabase]:
    database = new_database(tmp_path)
    yield database
    database.close()


@pytest.fixture
def step_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def step(ahead_s: int) -> None:
        right_ns, right_s = time.time_ns, time.time
        monkeypatch.setattr(time, "time_ns", lambda: right_ns() + ahead_s * 10**9)
        monkeypatch.setattr(time, "time", lambda: right_s() + ahead_s)

    return step


def submit(database: ServiceDatabase) -> str:
    row, _ = JobQueue(database).submit(SENDER, "key", "digest", REQUEST, ["/b"])
    return row.id


def ban(database: ServiceDatabase, end_ms: int, *, refuses: bool) -> None:
    row = {"id": "b", "kind": "store", "name": "local", "reason": "repair", "is_maintenance": 0, "stops_jobs": 0}
    with database.write() as connection:
        connection.execute(insert(bans).values(**row, start_unix_ms=0, end_unix_ms=end_ms, refuses_jobs=int(refuses)))


def schedule_once(database: ServiceDatabase, folder: Path) -> None:
    """Let a server alone on the database decide once."""
    scheduler(database, folder, "server").step()


@both_ways
def test_an_event_is_due_by_the_clock_of_the_database(
    database: ServiceDatabase, step_clock: Callable[[int], None], ahead_s: int
) -> None:
    now_s = time.time()
    with database.write() as connection:
        row = {"id": "w", "tenant": "default", "url": "https://example.org/", "sealed": "", "dropped": 0}
        connection.execute(insert(webhook_table).values(**row, states=json.dumps(["waiting"]), created_unix_ms=0))
    step_clock(ahead_s)
    submit(database)
    with database.read() as connection:
        due_ms = connection.execute(select(deliveries.c.next_unix_ms)).scalar_one()
    assert abs(due_ms / 1000 - now_s) < HOUR_S / 2


@both_ways
def test_a_ban_ends_by_the_clock_of_the_database(
    database: ServiceDatabase, step_clock: Callable[[int], None], tmp_path: Path, ahead_s: int
) -> None:
    is_over, job_id = ahead_s < 0, submit(database)
    ban(database, round((time.time() + ahead_s / 2) * 1000), refuses=False)
    step_clock(ahead_s)
    schedule_once(database, tmp_path)
    with database.read() as connection:
        assert connection.execute(select(jobs.c.state).where(jobs.c.id == job_id)).scalar() == (
            "running" if is_over else "waiting"
        )


@both_ways
def test_a_ban_refuses_jobs_by_the_clock_of_the_database(
    database: ServiceDatabase, step_clock: Callable[[int], None], ahead_s: int
) -> None:
    ban(database, round((time.time() + ahead_s / 2) * 1000), refuses=True)
    step_clock(ahead_s)
    if ahead_s < 0:
        submit(database)
        return
    with pytest.raises(ApiProblem, match="refuses new jobs"):
        submit(database)


@both_ways
def test_a_start_is_recorded_by_the_clock_of_the_database(
    database: ServiceDatabase, step_clock: Callable[[int], None], tmp_path: Path, ahead_s: int
) -> None:
    now_s, job_id = time.time(), submit(database)
    step_clock(ahead_s)
    schedule_once(database, tmp_path)
    with database.read() as connection:
        granted = json.loads(connection.execute(select(jobs.c.granted).where(jobs.c.id == job_id)).scalar_one())
    assert abs(granted["at_unix_ms"] / 1000 - now_s) < HOUR_S / 2


@both_ways
def test_a_schedule_submits_by_the_clock_of_the_database(
    database: ServiceDatabase, step_clock: Callable[[int], None], ahead_s: int
) -> None:
    now_ms = round(time.time() * 1000)
    row = {"id": "s", "tenant": "default", "token": "admin", "cron": "* * * * *", "time_zone": "UTC"}
    row |= {"request": json.dumps(REQUEST), "owned": '["/b"]', "links": "[]", "overlap": "skip", "queued": "[]"}
    times = dict.fromkeys(("created_unix_ms", "last_unix_ms", "next_unix_ms"), now_ms + ahead_s * 500)
    with database.write() as connection:
        connection.execute(insert(schedules).values(**row, **times, submitted=0))
    step_clock(ahead_s)
    ScheduleRunner(database, JobQueue(database), Faults()).step(is_scheduling=True)
    with database.read() as connection:
        found = connection.execute(select(jobs.c.id)).scalars().all()
    assert len(found) == (1 if ahead_s < 0 else 0)


def test_a_schedule_continues_after_the_clock_of_the_database_was_ahead(database: ServiceDatabase) -> None:
    now_ms, ahead_ms = round(time.time() * 1000), 10**9
    row = {"id": "s", "tenant": "default", "token": "admin", "cron": "0 2 * * *", "time_zone": "UTC"}
    row |= {"request": json.dumps(REQUEST), "owned": '["/b"]', "links": "[]", "overlap": "skip", "queued": "[]"}
    times = {"created_unix_ms": now_ms, "last_unix_ms": now_ms + ahead_ms, "next_unix_ms": now_ms + 2 * ahead_ms}
    with database.write() as connection:
        connection.execute(insert(schedules).values(**row, **times, submitted=1))
    ScheduleRunner(database, JobQueue(database), Faults()).step(is_scheduling=True)
    with database.read() as connection:
        found = connection.execute(select(schedules)).mappings().one()
    assert now_ms <= found["last_unix_ms"] < now_ms + HOUR_S * 1000
    assert found["next_unix_ms"] <= now_ms + 25 * HOUR_S * 1000


#: Longer than any month.
MONTH_S = 40 * 24 * HOUR_S
months_off = pytest.mark.parametrize("ahead_s", [MONTH_S, -MONTH_S], ids=["ahead", "behind"])


def test_no_code_of_the_service_reads_a_servers_wall_clock() -> None:
    """Except the start value that the first reading replaces."""
    folder = Path(scheduling.__file__).parent
    uses = {
        (path.name, line.strip())
        for path in folder.rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"time\.time\(|time_ns\(|datetime\.now\(|utcnow\(|host_unix_s\(", line)
    }
    assert uses == {("clock.py", "self._ahead_s = host_unix_s() - elapsed_s()")}


@months_off
def test_a_jobs_times_and_id_are_by_the_clock_of_the_database(
    database: ServiceDatabase, step_clock: Callable[[int], None], tmp_path: Path, ahead_s: int
) -> None:
    first, now_s = submit(database), time.time()
    step_clock(ahead_s)
    schedule_once(database, tmp_path)
    queue = JobQueue(database)
    assert queue.move(first, ("running",), "waiting", by=SENDER)
    queue.set_waiting({first: "a reason"})
    note_down(database, AskedStore("s3://down", "s3://down/"))
    row, _ = queue.submit(SENDER, "second", "digest", REQUEST, ["/c"])
    assert first < row.id
    columns = (
        jobs.c.created_unix_ms,
        jobs.c.updated_unix_ms,
        job_events.c.at_unix_ms,
        audit.c.at_unix_ms,
        down_stores.c.since_unix_ms,
    )
    with database.read() as connection:
        times = [at for column in columns for at in connection.execute(select(column)).scalars()]
    assert len(times) >= 2 + 2 + 4 + 3 + 1
    assert all(abs(at / 1000 - now_s) < HOUR_S / 2 for at in times), times


@months_off
def test_a_quote_is_kept_by_the_clock_of_the_database(
    database: ServiceDatabase, step_clock: Callable[[int], None], tmp_path: Path, ahead_s: int
) -> None:
    """One server makes it, and another one accepts it."""
    (tmp_path / "a").write_bytes(b"a" * 1000)
    request, kept_s = Request(str(tmp_path / "a"), (str(tmp_path / "b"),)), 600

    def make() -> dict[str, Any]:
        document = {**REQUEST, "source": str(tmp_path / "a"), "destination": [str(tmp_path / "b")]}
        with Engine(state_dir=str(tmp_path / "engine")) as engine:
            return QuoteMaker(database, engine).make(("default", "admin"), request, document, ["/b"], [], kept_s)

    def accept(quote: dict[str, Any]) -> None:
        JobQueue(database).submit(SENDER, quote["id"], "digest", {**REQUEST, "quote": quote["id"]}, ["/b"])

    right, old = make(), make()
    with database.write() as connection:
        connection.execute(quotes.update().where(quotes.c.id == old["id"]).values(expires_unix_ms=1))
    step_clock(ahead_s)
    wrong = make()
    assert abs(wrong["made_unix_ms"] - right["made_unix_ms"]) < HOUR_S * 500
    for quote in (right, wrong):
        accept(quote)
    with pytest.raises(ApiProblem) as caught:
        accept(old)
    assert caught.value.status in (404, 410)


@months_off
def test_a_token_expires_by_the_clock_of_the_database(
    database: ServiceDatabase, step_clock: Callable[[int], None], ahead_s: int
) -> None:
    now_ms, secrets = round(time.time() * 1000), {}
    with database.write() as connection:
        for name, end_ms in (("valid", now_ms + HOUR_S * 1000), ("expired", now_ms - HOUR_S * 1000)):
            secrets[name] = new_token()
            row = {"id": name, "tenant": "default", "name": name, "role": "viewer", "scopes": '["jobs:read"]'}
            times = {"created_unix_ms": 0, "expires_unix_ms": end_ms}
            connection.execute(insert(tokens).values(**row, **times, digest=token_digest(secrets[name])))
    step_clock(ahead_s)
    assert sender_of(database, secrets["valid"]) is not None
    assert sender_of(database, secrets["expired"]) is None


@months_off
def test_a_charge_is_in_the_month_of_the_clock_of_the_database(
    database: ServiceDatabase, step_clock: Callable[[int], None], ahead_s: int
) -> None:
    month, job_id = month_of(time.time()), submit(database)
    step_clock(ahead_s)
    cost = {"lines": [], "metered_usd": 0.5}
    receipt = json.dumps({"progress": {"bytes_done": 10}, "runs": [], "cost": cost})
    assert JobQueue(database).move(job_id, ("waiting",), "failed", receipt=receipt)
    with database.read() as connection:
        assert [(one["month"], one["final"]) for one in invoice_months(connection, "default")] == [(month, False)]
        assert connection.execute(select(charges.c.usd_micros)).scalar_one() == 500_000


@months_off
def test_todays_costs_are_of_the_day_of_the_clock_of_the_database(
    database: ServiceDatabase, step_clock: Callable[[int], None], tmp_path: Path, ahead_s: int
) -> None:
    """A job ends on a server whose clock is wrong. The next scheduler still counts its cost."""
    job_id, now_s = submit(database), time.time()
    schedule_once(database, tmp_path)
    step_clock(ahead_s)
    receipt = {"progress": {"bytes_done": 10}, "runs": [], "cost": {"lines": [], "metered_usd": 0.7}}
    assert JobQueue(database).move(job_id, ("running",), "done", receipt=json.dumps(receipt))
    with database.read() as connection:
        assert [cost.usd for cost in costs_today(connection, now_s)] == [0.7]


@both_ways
def test_the_signature_of_an_event_has_the_time_of_the_database(
    database: ServiceDatabase, step_clock: Callable[[int], None], tmp_path: Path, ahead_s: int
) -> None:
    """Its receiver refuses an old one."""
    received: list[Received] = []

    def answer(request: Received) -> Answer:
        received.append(request)
        return Answer(200)

    receiver, sealer, now_s = LoopbackServer(answer), Sealer.of(ServiceSettings(state=tmp_path)), time.time()
    own = {"tenant": "default", "created_unix_ms": 0}
    with database.write() as connection:
        sealed = sealer.seal("secret", "default", "webhook w")
        webhook = {"id": "w", "url": receiver.url, "states": "[]", "sealed": sealed, "dropped": 0}
        connection.execute(insert(webhook_table).values(**own, **webhook))
        event = {"id": "d", "webhook": "w", "body": "{}", "state": "pending", "attempts": 0, "next_unix_ms": 0}
        connection.execute(insert(deliveries).values(**own, **event))
    step_clock(ahead_s)
    courier = Courier(database, sealer, ["127.0.0.0/8"], Faults())
    courier.start()
    try:
        eventually(lambda: received)
    finally:
        courier.close()
        receiver.close()
    at_s = int(received[0].headers["Tradewind-Signature"].split(",")[0].removeprefix("t="))
    assert abs(at_s - now_s) < HOUR_S / 2
