"""The rows of a job's ledger: one with its prices, one per machine, one per run."""

from __future__ import annotations

import json
import sqlite3

from tradewind.model.document import parse_json, to_document
from tradewind.model.ledger import JobPrices, Ledger, MachineUse, RunCount
from tradewind.model.requests import Requests
from tradewind.state.database import Database
from tradewind.state.values import checked

__all__ = ["read_ledger", "write_ledger"]


def read_ledger(database: Database, job_id: str) -> Ledger | None:
    """Return the ledger of a job; None if it has none. Raises ValueError, TypeError, KeyError if it is damaged."""
    with database.snapshot():
        head = database.row(
            "SELECT prices, predicted_usd, earlier_usd, heartbeat_unix_s, alive_s_max FROM ledgers WHERE job = ?",
            (job_id,),
        )
        machines = database.rows(
            "SELECT run, fleet, name, region, launched_unix_s, ended_unix_s, usd_per_s, source, billed_s_min,"
            " billed_unit_s"
            " FROM ledger_machines WHERE job = ? ORDER BY number",
            (job_id,),
        )
        runs = database.rows(
            "SELECT run, egress_usd, read, write, route_bytes, duplicate_bytes FROM ledger_runs WHERE job = ?"
            " ORDER BY run",
            (job_id,),
        )
    if head is None:
        return None
    prices, predicted_usd, earlier_usd, heartbeat_s, alive_s_max = checked(head, "tPppp")
    return Ledger(
        JobPrices.from_document(parse_json(prices)),
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
            json.dumps(to_document(ledger.prices), ensure_ascii=False),
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
                json.dumps(to_document(count.route_bytes), ensure_ascii=False),
                count.duplicate_bytes,
            )
            for count in ledger.runs
        ),
    )
