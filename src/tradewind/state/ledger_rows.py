"""The rows of a job's ledger: one with its prices, one per machine, one per run."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from tradewind.model.document import parse_json, to_document
from tradewind.model.ledger import JobPrices, Ledger, MachineUse, RunCount
from tradewind.model.requests import Requests
from tradewind.state.database import Database
from tradewind.state.digest import with_digest, without_digest
from tradewind.state.values import checked

__all__ = ["read_ledger", "write_ledger"]

#: The row of a ledger, those of its machines, and those of its runs.
_QUERIES = (
    "SELECT prices, predicted_usd, earlier_usd, heartbeat_unix_s, alive_s_max FROM ledgers WHERE job = ?",
    "SELECT run, fleet, name, region, launched_unix_s, ended_unix_s, usd_per_s, source, billed_s_min, billed_unit_s"
    " FROM ledger_machines WHERE job = ? ORDER BY number",
    "SELECT run, egress_usd, read, write, route_bytes, duplicate_bytes FROM ledger_runs WHERE job = ? ORDER BY run",
)


def read_ledger(database: Database, job_id: str) -> Ledger | None:
    """Return the ledger of a job; None if it has none. Raises ValueError, TypeError, KeyError if it is damaged."""
    with database.snapshot():
        heads, machines, runs = (database.rows(query, (job_id,)) for query in _QUERIES)
    if not heads:
        return None
    prices, predicted_usd, earlier_usd, heartbeat_s, alive_s_max = checked(heads[0], "tPppp")
    found = without_digest(parse_json(prices), [job_id, *heads[0][1:], machines, runs])
    return Ledger(
        JobPrices.from_document(found),
        predicted_usd,
        tuple(MachineUse(*checked(use, "ptttsSptpp")) for use in machines),
        tuple(
            RunCount(
                run,
                usd,
                Requests(**_counts(read)),
                Requests(**_counts(write)),
                _counts(route_bytes),
                duplicate_bytes,
            )
            for run, usd, read, write, route_bytes, duplicate_bytes in (checked(count, "pptttp") for count in runs)
        ),
        earlier_usd,
        heartbeat_s,
        alive_s_max,
    )


def _counts(text: str) -> dict[str, int]:
    """Return numbers by name. Raises ValueError, TypeError if they are damaged: a cost below zero would be no limit."""
    found = dict(parse_json(text))
    checked([*found.values()], "p" * len(found))
    return found


def write_ledger(connection: sqlite3.Connection, job_id: str, ledger: Ledger) -> None:
    """Write a ledger in the present transaction, replacing the previous one."""
    connection.execute(
        "INSERT OR REPLACE INTO ledgers VALUES (?, ?, ?, ?, ?, ?)",
        (
            job_id,
            "{}",  # With its digest, below.
            ledger.predicted_usd,
            ledger.earlier_usd,
            ledger.heartbeat_s,
            ledger.alive_s_max,
        ),
    )
    # A machine that was ordered but refused is no longer in the ledger.
    connection.execute("DELETE FROM ledger_machines WHERE job = ? AND number >= ?", (job_id, len(ledger.machines)))
    connection.executemany(
        "INSERT OR REPLACE INTO ledger_machines VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                job_id,
                number,
                use.run,
                use.fleet,
                use.name,
                use.region,
                use.launched_s,
                use.ended_s,
                use.usd_per_s,
                use.source,
                use.billed_s_min,
                use.billed_unit_s,
            )
            for number, use in enumerate(ledger.machines)
        ),
    )
    connection.executemany(
        "INSERT OR REPLACE INTO ledger_runs VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (
                job_id,
                count.run,
                count.egress_usd,
                json.dumps(to_document(count.read)),
                json.dumps(to_document(count.write)),
                _text(count.route_bytes),
                count.duplicate_bytes,
            )
            for count in ledger.runs
        ),
    )
    # The digest is of the values as SQLite returns them.
    (head,), machines, runs = (connection.execute(query, (job_id,)).fetchall() for query in _QUERIES)
    document = with_digest(to_document(ledger.prices), [job_id, *head[1:], machines, runs])
    connection.execute("UPDATE ledgers SET prices = ? WHERE job = ?", (_text(document), job_id))


def _text(value: Any) -> str:
    return json.dumps(to_document(value), ensure_ascii=False)
