"""The money of jobs: reserved when they are submitted, charged after each run, released when they end.

`JobQueue` calls these functions in the transactions that submit a job or change its state. So a reservation and the
job that it is for never disagree, even after `kill -9`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from tradewind.errors import MarketError
from tradewind.service.budgets import has_budget, require_room
from tradewind.service.exact_sums import exact_sums, sum_parts
from tradewind.service.links import scheduled_links
from tradewind.service.money_tables import accounts, charges
from tradewind.service.prices import (
    TARIFF_LINE,
    Amount,
    TariffUse,
    ledger_amounts,
    price_time_ms,
    sent_part,
    tariff_amounts,
    tariffs_at,
    used_in_month,
)
from tradewind.service.problems import ApiProblem
from tradewind.service.quotes import AcceptedQuote, accept_quote
from tradewind.service.utilisation import price_utilisations

__all__ = ["charges_of", "job_moved", "job_submitted"]

#: States in which a job's account is closed. A failed job can be resumed; its account is then opened again.
CLOSED = ("done", "failed", "cancelled")
#: Largest volume of a job that is charged: a database can keep it. The runs of a guest may state more together.
VOLUME_BYTES_MAX = 1 << 62
#: Line of a job that has neither costs nor a tariff. It has the job's volume and time.
UNPRICED = "transfer without a price"


def job_submitted(
    connection: Connection,
    job: str,
    tenant: str,
    links: Sequence[Sequence[str]],
    request: Mapping[str, Any],
    now_ms: int,
) -> AcceptedQuote | None:
    """Open the account of a new job, and return its quote; None without one.

    Raises ApiProblem: 404, 409 or 410 for a quote that cannot be used, 409 if the tenant has a budget and the job no
    quote, 402 if the budget has too little left.
    """
    quote: str | None = request.get("quote")
    price, accepted = 0, None
    if quote is not None:
        accepted = accept_quote(connection, quote, tenant, job, now_ms)
        price, links = accepted.usd_micros, accepted.links
        loads: Sequence[float] = accepted.utilisations
        require_room(connection, tenant, f"job {job}", price, now_ms)
    else:
        _require_no_budget(connection, tenant)
        loads = price_utilisations(connection, scheduled_links(request))
    connection.execute(
        insert(accounts).values(
            job=job,
            tenant=tenant,
            quote=quote,
            quote_usd_micros=None if quote is None else price,
            links=json.dumps([list(link) for link in links]),
            utilisations=json.dumps(list(loads)),
            opened_unix_ms=price_time_ms(connection, now_ms),
            reserved_usd_micros=price,
            is_open=1,
        )
    )
    return accepted


def job_moved(connection: Connection, job: str, state: str, receipt: str | None, now_ms: int) -> None:
    """Charge a job what it costs by the receipt of its run, and close its account, or open that of a resumed one.

    A job that waits again or is paused is charged so far, too: it may stay so for ever.

    Raises ApiProblem: 402 if the budget has too little left, 409 if the tenant has a budget and the job no quote.
    """
    account = connection.execute(select(accounts).where(accounts.c.job == job)).mappings().first()
    if account is None or (receipt is None and account["is_open"] != (state in CLOSED)):
        return
    if receipt is not None:
        _charge(connection, account, state, json.loads(receipt), now_ms)
    if state in CLOSED:
        _set_account(connection, job, is_open=0, reserved_usd_micros=0)
        return
    left = _left_usd_micros(connection, account)
    if not account["is_open"]:
        _require_room(connection, account, left, now_ms)
    _set_account(connection, job, is_open=1, reserved_usd_micros=left)


def charges_of(connection: Connection, job: str) -> list[dict[str, Any]]:
    """Return what was charged for a job so far, with the same lines added up."""
    return [{"what": what, "usd_micros": micros} for what, micros in _charged(connection, job).items()]


def _require_no_budget(connection: Connection, tenant: str) -> None:
    """Return if a job may run without a quote. Raises ApiProblem 409."""
    if has_budget(connection, tenant):
        raise ApiProblem(
            409, "the tenant has a budget: a job needs a quote", hint='POST /v1/quotes, then submit {"quote": ID}'
        )


def _require_room(connection: Connection, account: Mapping[Any, Any], left_usd_micros: int, now_ms: int) -> None:
    """Return if the budget has room for the rest of a resumed job. Raises ApiProblem 402, 409."""
    if account["quote_usd_micros"] is None:
        _require_no_budget(connection, account["tenant"])
    else:
        require_room(connection, account["tenant"], f"job {account['job']}", left_usd_micros, now_ms)


def _set_account(connection: Connection, job: str, **fields: int) -> None:
    connection.execute(update(accounts).where(accounts.c.job == job).values(**fields))


def _left_usd_micros(connection: Connection, account: Mapping[Any, Any]) -> int:
    """Return what a job may still be charged by its quote; 0 without one."""
    return max(0, (account["quote_usd_micros"] or 0) - sum(_charged(connection, account["job"]).values()))


def _charged(connection: Connection, job: str) -> dict[str, int]:
    query = (
        select(charges.c.what, func.sum(charges.c.usd_micros))
        .where(charges.c.job == job)
        .group_by(charges.c.what)
        .order_by(func.min(charges.c.number))
    )
    return {what: int(micros) for what, micros in connection.execute(query)}


def _charge(
    connection: Connection, account: Mapping[Any, Any], state: str, receipt: Mapping[str, Any], now_ms: int
) -> None:
    """Append what a job costs beyond what was charged before. With a quote, the sum is at most its price.

    Tariffs price the bytes as they were sent: compression lowers the volume.

    A line of nothing is appended, too, if it has the volume or the time: the tiers of tariffs count those, also of jobs
    that cost nothing. The tariff prices only what is new: volume of an earlier month keeps its price, and a run that
    finds its source gone gives nothing back.
    """
    job, tenant = account["job"], account["tenant"]
    query = select(*sum_parts(charges.c.volume_bytes, charges.c.run_ms)).where(charges.c.job == job)
    counted_bytes, counted_ms = exact_sums(connection.execute(query).one())
    volume_bytes = max(round(_moved_bytes(state, receipt) * sent_part(receipt)), _unacknowledged_bytes(state, receipt))
    volume_bytes = min(volume_bytes, VOLUME_BYTES_MAX)
    more = TariffUse(
        max(0, volume_bytes - counted_bytes),
        max(0, _run_ms(receipt["runs"]) - counted_ms),
    )
    before, kept = _charged(connection, job), f"price kept by quote {account['quote']}"
    new: defaultdict[str, int] = defaultdict(int)
    for line in ledger_amounts(tenant, job, receipt["cost"]):
        new[line.what] += line.usd_micros
    for what, micros in before.items():
        if what != kept and not what.startswith(TARIFF_LINE):
            new[what] -= micros
    for line in _tariff_lines(connection, account, more, now_ms):
        new[line.what] += line.usd_micros
    if account["quote_usd_micros"] is not None:
        total = sum(before.values()) - before.get(kept, 0) + sum(new.values())
        new[kept] = min(0, account["quote_usd_micros"] - total) - before.get(kept, 0)
    quantity = {"volume_bytes": more.volume_bytes, "run_ms": more.run_ms}
    nothing = dict.fromkeys(quantity, 0)
    if not new:
        new[UNPRICED] = 0
    for what, micros in new.items():
        if micros or any(quantity.values()):
            connection.execute(
                insert(charges).values(
                    tenant=tenant, job=job, at_unix_ms=now_ms, what=what, usd_micros=micros, **quantity
                )
            )
            quantity = nothing


def _tariff_lines(connection: Connection, account: Mapping[Any, Any], use: TariffUse, now_ms: int) -> list[Amount]:
    """Return the tariff's lines by the price list in force when the job was submitted; none if a link has no tariff.

    The utilisations of the links are those of its quote, or when it was submitted.
    """
    opened_ms = account["opened_unix_ms"]
    used = used_in_month(connection, account["tenant"], now_ms)
    try:
        links, loads = json.loads(account["links"]), json.loads(account["utilisations"])
        return tariff_amounts(tariffs_at(connection, opened_ms), links, use, used, opened_ms, loads)
    except MarketError:
        return []


def _moved_bytes(state: str, receipt: Mapping[str, Any]) -> int:
    """Return what all runs of a job have moved. The counts of a resumed run lack what it did not come to see again.

    A job pays for each byte once. Its runs have moved some twice if the end of a journal was lost, so their sum counts
    up to what the journal has. A guest that sends keeps the journal, so there the sum counts until the job is done.
    """
    bytes_done, recorded = int(receipt["progress"]["bytes_done"]), receipt.get("recorded_bytes")
    if state == "done":
        return bytes_done
    by_run = sum(run.get("moved_bytes") or 0 for run in receipt["runs"])
    return max(bytes_done, by_run if recorded is None else min(by_run, recorded))


def _unacknowledged_bytes(state: str, receipt: Mapping[str, Any]) -> int:
    """Return what a guest that receives was sent, up to the size of the job; 0 if the job is done.

    It may keep bytes that it does not acknowledge.
    """
    sent_bytes = receipt.get("guest_sent_bytes")
    if state == "done" or sent_bytes is None:
        return 0
    return min(int(sent_bytes), int(receipt["progress"]["bytes_total"]))


def _run_ms(runs: Sequence[Mapping[str, Any]]) -> int:
    return sum(
        max(0, run["ended_unix_ms"] - run["started_unix_ms"])
        for run in runs
        if run["ended_unix_ms"] is not None and run["started_unix_ms"] is not None
    )
