"""The budget's transaction, with threads and processes on one database; charges of ledgers; the canonical form."""

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import func, insert, select, update

from tradewind.model.canonical import canonical_json
from tradewind.service.budgets import budget_view
from tradewind.service.database import ServiceDatabase, database_unix_ms
from tradewind.service.invoices import invoice_of
from tradewind.service.money import charges_of, job_moved, job_submitted
from tradewind.service.money_tables import accounts, budgets, charges, quotes, tariffs
from tradewind.service.problems import ApiProblem
from tradewind.service.tables import jobs, tenants

LIMIT, PRICE, JOBS = 10_000, 700, 40

#: Submits the jobs of one process, and prints how many were accepted.
SUBMITS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tests.service.test_budget_processes import submit_quoted
from tradewind.service.database import ServiceDatabase
database, first, count = ServiceDatabase(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
with ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(lambda number: submit_quoted(database, number), range(first, first + count))))
database.close()
"""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ServiceDatabase]:
    database = ServiceDatabase(tmp_path)
    database.require_current()
    with database.write() as connection:
        connection.execute(insert(tenants).values(name="lab", created_unix_ms=1))
        connection.execute(
            insert(budgets).values(tenant="lab", period="month", limit_usd_micros=LIMIT, updated_unix_ms=1)
        )
    yield database
    database.close()


def submit_quoted(database: ServiceDatabase, number: int, price: int = PRICE) -> bool:
    """Make a quote and a job with it; return whether the budget allows it."""
    try:
        with database.write() as connection:
            now = database_unix_ms(connection)
            connection.execute(
                insert(quotes).values(
                    id=f"q{number}",
                    tenant="lab",
                    request="{}",
                    owned="[]",
                    links='[["site:local", "site:local"]]',
                    proposal=f"p{number}",
                    view="{}",
                    usd_micros=price,
                    made_unix_ms=now,
                    expires_unix_ms=now + 1000,
                )
            )
            add_job(connection, number)
            quoted = job_submitted(connection, f"j{number}", "lab", (), {"quote": f"q{number}"}, now)
            assert quoted is not None and quoted.proposal == f"p{number}"
    except ApiProblem as problem:
        assert problem.status == 402
        return False
    return True


def add_job(connection: Any, number: int) -> None:
    row = {"request_digest": "", "request": "{}", "owned": "[]", "state": "waiting", "attempts": 0}
    times = dict.fromkeys(("created_unix_ms", "updated_unix_ms", "not_before_unix_ms"), 1)
    connection.execute(insert(jobs).values(id=f"j{number}", tenant="lab", idempotency_key=f"{number}", **row, **times))


def receipt(
    bytes_done: int, *lines: dict[str, Any], moved_bytes: tuple[int, ...] = (), recorded_bytes: int | None = None
) -> str:
    runs = [{"started_unix_ms": 0, "ended_unix_ms": 1000, "moved_bytes": moved} for moved in moved_bytes or (None,)]
    document = {"progress": {"bytes_done": bytes_done}, "runs": runs, "recorded_bytes": recorded_bytes}
    return json.dumps({**document, "cost": {"lines": lines}})


def line(run: int, quantity: float) -> dict[str, Any]:
    kind = {"run": run, "kind": "egress", "what": "aws:us-east-1 → gcp:us-east1", "unit": "GB"}
    return {**kind, "quantity": quantity, "unit_usd": 0.09, "source": "list", "usd": quantity * 0.09}


def test_two_processes_never_exceed_a_budget(database: ServiceDatabase, tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SUBMITS, str(tmp_path), str(first), str(JOBS // 2)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for first in (0, JOBS // 2)
    ]
    accepted = sum(int(process.communicate()[0]) for process in processes)
    assert accepted == LIMIT // PRICE
    with database.read() as connection:
        assert connection.execute(select(func.count()).select_from(accounts)).scalar_one() == accepted
        view = budget_view(connection, "lab", database_unix_ms(connection))
    assert view is not None
    assert (view["reserved_usd_micros"], view["left_usd_micros"]) == (accepted * PRICE, LIMIT - accepted * PRICE)


@pytest.mark.parametrize(
    ("state", "recorded_bytes", "volume_bytes"),
    [("done", None, 1_000), ("failed", 1_000, 1_000), ("paused", 1_100, 1_100), ("failed", None, 1_300)],
)
def test_a_job_pays_for_each_byte_once(
    database: ServiceDatabase, state: str, recorded_bytes: int | None, volume_bytes: int
) -> None:
    """The first run lost a part of its journal, so the second one has moved some bytes again.

    The journal may also have more than the second run came to see. A guest that sends keeps it.
    """
    assert submit_quoted(database, 1)
    with database.write() as connection:
        now = database_unix_ms(connection)
        job_moved(connection, "j1", "waiting", receipt(900, moved_bytes=(900,)), now)
        last = receipt(1_000, moved_bytes=(900, 400), recorded_bytes=recorded_bytes)
        job_moved(connection, "j1", state, last, now)
        found = connection.execute(select(func.sum(charges.c.volume_bytes)).where(charges.c.job == "j1")).scalar_one()
    assert found == volume_bytes


def test_a_resumed_job_is_charged_the_rest_within_its_quote(database: ServiceDatabase) -> None:
    assert submit_quoted(database, 1, 9_000)
    with database.write() as connection:
        job_moved(connection, "j1", "failed", receipt(0, line(1, 0.05)), database_unix_ms(connection))
        assert charges_of(connection, "j1") == [{"what": "egress: aws:us-east-1 → gcp:us-east1", "usd_micros": 4_500}]
    assert submit_quoted(database, 2, 1_500)
    with database.write() as connection, pytest.raises(ApiProblem) as refused:
        job_moved(connection, "j1", "waiting", None, database_unix_ms(connection))
    assert refused.value.status == 402
    with database.write() as connection:
        job_moved(connection, "j2", "cancelled", None, database_unix_ms(connection))
        job_moved(connection, "j1", "waiting", None, database_unix_ms(connection))
        job_moved(connection, "j1", "running", None, database_unix_ms(connection))
        job_moved(connection, "j1", "done", receipt(0, line(1, 0.05), line(2, 0.1)), database_unix_ms(connection))
        assert sum(each["usd_micros"] for each in charges_of(connection, "j1")) == 9_000
        view = budget_view(connection, "lab", database_unix_ms(connection))
    assert view is not None
    assert (view["spent_usd_micros"], view["left_usd_micros"]) == (9_000, 1_000)


def test_tiers_count_the_volume_of_the_month(database: ServiceDatabase) -> None:
    tiers = [{"from_quantity": 0, "usd_micros_per_unit": 1000}, {"from_quantity": 3, "usd_micros_per_unit": 100}]
    with database.write() as connection:
        connection.execute(update(budgets).values(limit_usd_micros=10**9))
        document = json.dumps([{"name": "t", "unit": "GB", "tiers": tiers}])
        connection.execute(insert(tariffs).values(set_unix_ms=1, document=document))
    totals = []
    for number in range(3):
        assert submit_quoted(database, number, 10**6)
        with database.write() as connection:
            job_moved(connection, f"j{number}", "done", receipt(2 * 10**9), database_unix_ms(connection))
            totals.append(sum(each["usd_micros"] for each in charges_of(connection, f"j{number}")))
    assert totals == [2_000, 1_100, 200]
    with database.read() as connection:
        invoice = invoice_of(connection, "lab", month())
    assert invoice is not None
    assert sum(each["usd_micros"] for each in invoice["lines"]) == sum(totals)


def test_volume_that_was_moved_is_charged_although_the_last_run_saw_none_of_it(database: ServiceDatabase) -> None:
    price = {"name": "t", "unit": "GB", "tiers": [{"from_quantity": 0, "usd_micros_per_unit": 1000}]}
    gb = 10**9
    with database.write() as connection:
        connection.execute(insert(tariffs).values(set_unix_ms=1, document=json.dumps([price])))
    assert submit_quoted(database, 1, 9_000)
    totals = []
    for last in (receipt(2 * gb), receipt(0), receipt(gb, moved_bytes=(2 * gb, 0, 3 * gb))):
        with database.write() as connection:
            job_moved(connection, "j1", "failed", last, database_unix_ms(connection))
            totals.append(sum(each["usd_micros"] for each in charges_of(connection, "j1")))
            job_moved(connection, "j1", "waiting", None, database_unix_ms(connection))
    assert totals == [2_000, 2_000, 5_000]


def test_a_job_that_is_resumed_in_another_month_is_not_priced_again(database: ServiceDatabase) -> None:
    tiers = [{"from_quantity": 0, "usd_micros_per_unit": 1000}, {"from_quantity": 3, "usd_micros_per_unit": 100}]
    gb, now_ms = 10**9, database.now_unix_ms()
    next_month_ms = now_ms + 40 * 86_400_000
    with database.write() as connection:
        connection.execute(update(budgets).values(limit_usd_micros=10**9))
        document = json.dumps([{"name": "t", "unit": "GB", "tiers": tiers}])
        connection.execute(insert(tariffs).values(set_unix_ms=1, document=document))
    for number in range(2):
        assert submit_quoted(database, number, 10**6)
    with database.write() as connection:
        job_moved(connection, "j0", "done", receipt(4 * gb), now_ms)
        job_moved(connection, "j1", "failed", receipt(2 * gb), now_ms)
        assert sum(each["usd_micros"] for each in charges_of(connection, "j1")) == 200
        job_moved(connection, "j1", "waiting", None, next_month_ms)
        job_moved(connection, "j1", "done", receipt(3 * gb), next_month_ms)
        assert sum(each["usd_micros"] for each in charges_of(connection, "j1")) == 200 + 1000


def test_each_run_is_charged_and_the_rest_stays_reserved(database: ServiceDatabase) -> None:
    """A job waits after a temporary failure, is paused then, and is resumed."""
    with database.write() as connection:
        price = {"name": "t", "unit": "GB", "tiers": [{"from_quantity": 0, "usd_micros_per_unit": 1000}]}
        connection.execute(insert(tariffs).values(set_unix_ms=1, document=json.dumps([price])))
    assert submit_quoted(database, 1, 3_000)
    figures = []
    for state, done in (("waiting", 1), ("paused", 0), ("waiting", 0), ("paused", 2), ("waiting", 0), ("done", 5)):
        with database.write() as connection:
            job_moved(connection, "j1", state, receipt(done * 10**9) if done else None, database_unix_ms(connection))
            view = budget_view(connection, "lab", database_unix_ms(connection))
        assert view is not None
        figures.append((view["spent_usd_micros"], view["reserved_usd_micros"]))
    assert figures == [(1_000, 2_000)] * 3 + [(2_000, 1_000)] * 2 + [(3_000, 0)]


def month() -> str:
    from tradewind.market.invoice import month_of

    return month_of(time.time())


@pytest.mark.parametrize(
    ("number", "text"),
    [  # RFC 8785, appendix B.
        (0.0, "0"),
        (-0.0, "0"),
        (5e-324, "5e-324"),
        (-1.7976931348623157e308, "-1.7976931348623157e+308"),
        (9007199254740992.0, "9007199254740992"),
        (295147905179352830000.0, "295147905179352830000"),
        (9.999999999999997e22, "9.999999999999997e+22"),
        (1e23, "1e+23"),
        (1e21, "1e+21"),
        (999999999999999900000.0, "999999999999999900000"),
        (9.999999999999997e-7, "9.999999999999997e-7"),
        (0.000001, "0.000001"),
        (333333333.33333329, "333333333.3333333"),
        (-0.0000033333333333333333, "-0.0000033333333333333333"),
        (1424953923781206.2, "1424953923781206.2"),
    ],
)
def test_canonical_numbers(number: float, text: str) -> None:
    assert canonical_json(number).decode() == text


def test_canonical_members_are_sorted_by_utf_16() -> None:
    assert canonical_json({"\ufb33": 1, "\U0001f600": [True, None], "a\n": "é"}).decode() == (
        '{"a\\n":"é","\U0001f600":[true,null],"\ufb33":1}'
    )
    with pytest.raises(ValueError, match="not a JSON number"):
        canonical_json(math.inf)


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=50)
@given(
    st.recursive(
        st.booleans() | NUMBERS | TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=5
    )
)
def test_canonical_json_survives_any_other_form_of_json(document: Any) -> None:
    once = canonical_json(document)
    assert canonical_json(json.loads(json.dumps(document, indent=1))) == once
    assert canonical_json(json.loads(once)) == once
