"""The receipt of a job: moved objects and their proofs, its runs, its cost, and its plan and versions.

It is made from the job's record each time it is requested, so it always agrees with the record.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from tradewind.engine.deadline import JobDeadline
from tradewind.engine.event_store import read_events, read_progress, time_taken_s
from tradewind.engine.job_control import JobControl
from tradewind.engine.report import job_cost
from tradewind.model.document import to_document
from tradewind.model.event import Notice, Progress, Summary
from tradewind.model.records import dataclass
from tradewind.state.database import Database

__all__ = ["RECEIPT_VERSION", "RunReport", "carried_of", "latest_report", "receipt_of"]

#: Events that say something about a run.
RUN_EVENTS = ("run_started", "run_ended", Summary.TAG[1], Notice.TAG[1])
#: Version of the format: it grows when a field is removed or changes its meaning. New fields may be added at any time.
RECEIPT_VERSION = 1


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run: its times, its outcome, and its latest recorded progress. A killed run has neither end nor outcome."""

    started_unix_ms: int
    ended_unix_ms: int | None
    outcome: str | None
    progress: Progress


def receipt_of(control: JobControl, job_id: str) -> dict[str, Any]:
    """Return the receipt of a job as a JSON document, even while it runs; `complete` says whether it is done.

    Times are Unix times in ms, sizes in bytes, costs in USD. Raises JobNotFound, JobUnreadable.
    """
    database = control.store.database
    with database.snapshot():
        record = control.job(job_id)
        plan, ledger, runs = control.plan_of(record), control.ledger(record), _runs(database, job_id)
    deadline_s = record.document.get("deadline_s")
    spec, topology = record.document["spec"], record.document["topology"]
    cost = job_cost(ledger, plan, record.progress, spec.get("ceiling_usd_per_gb"), control.store.unix_s())
    return {
        "receipt": RECEIPT_VERSION,
        "job_id": record.id,
        "verb": record.verb,
        "source": record.source,
        "destinations": list(record.destinations),
        "state": record.state,
        "complete": record.state == "done",
        "created_unix_ms": record.created_unix_ms,
        "progress": to_document(record.progress),
        "summary": None if record.summary is None else to_document(record.summary),
        "runs": runs,
        "cost": cost.document(),
        "ceiling": record.document.get("ceiling"),
        "deadline": None if deadline_s is None else JobDeadline(deadline_s, time_taken_s(database, job_id)).document(),
        "plan": topology,
        "objects": _objects(spec.get("report_file")),
        "prediction": None if plan.prediction is None else to_document(plan.prediction),
        "provider": record.document.get("provider"),
        "spec": spec,
    }


def latest_report(database: Database, job_id: str) -> RunReport | None:
    """Return the latest run of a job; None without one. Raises StateError."""
    runs, line = _runs(database, job_id), read_progress(database, job_id)
    if not runs:
        return None
    last = runs[-1]
    progress = Progress() if line is None else Progress.from_document(json.loads(line))
    return RunReport(last["started_unix_ms"] or 0, last["ended_unix_ms"], last["outcome"], progress)


def _objects(path: str | None) -> dict[str, Any] | None:
    """Return the file with a JSON line per object, its verdict and its proof; None if it was removed."""
    try:
        return None if path is None else {"file": path, "bytes": os.stat(path).st_size}
    except OSError:
        return None


def carried_of(progress: Mapping[str, Any]) -> dict[str, int]:
    """Return the bytes of data that the hops of a run carried, how many of them they did not send because of
    deduplication, and how many they sent after compression.

    All are sums over all hops, so data that passes a relay counts once for each hop.
    """
    hops = progress.get("hops", ())
    carried_bytes = sum(hop["bytes"] for hop in hops)
    return {
        "carried_bytes": carried_bytes,
        "deduplicated_bytes": sum(hop.get("deduplicated_bytes", 0) for hop in hops),
        "sent_bytes": carried_bytes - sum(hop.get("saved_bytes", 0) for hop in hops),
    }


def _runs(database: Database, job_id: str) -> list[dict[str, Any]]:
    """Return each run with its version, its times, its outcome, its notices, and the bytes that it has moved and that
    its routes carried.

    Of a killed run, those moved are known until its last recorded progress.
    """
    runs: list[dict[str, Any]] = []
    for _, document, _ in read_events(database, job_id, kinds=RUN_EVENTS):
        if document["event"] == "run_started":
            if runs and runs[-1]["moved_bytes"] is None:
                runs[-1]["moved_bytes"] = _moved_by_killed(runs[-1], document)
            started = {"version": document.get("version"), "started_unix_ms": document.get("at_unix_ms")}
            unknown = dict.fromkeys(("ended_unix_ms", "outcome", "message", "moved_bytes", "carried", "left"))
            runs.append({**started, **unknown, "notices": []})
        elif not runs:
            continue
        elif document["event"] == "run_ended":
            runs[-1]["ended_unix_ms"] = document.get("at_unix_ms")
            runs[-1] |= {name: document.get(name) for name in ("outcome", "message", "left")}
        elif document["event"] == Summary.TAG[1]:
            runs[-1]["moved_bytes"] = _moved_bytes(document.get("progress"))
            runs[-1]["carried"] = carried_of(document["progress"])
        elif document["event"] == Notice.TAG[1]:
            runs[-1]["notices"].append(document.get("message"))
    return runs


def _moved_by_killed(run: dict[str, Any], following: dict[str, Any]) -> int | None:
    """Return what a killed run has moved, as the start of the run after it states.

    The status is that of an earlier run if the lead of this one wrote none.
    """
    found = [_moved_bytes(following.get("progress_before"))]
    status = following.get("status_before")
    if status is not None and status["at_unix_ms"] >= (run["started_unix_ms"] or 0):
        found.append(_moved_bytes(status["progress"]))
    return max((moved for moved in found if moved is not None), default=None)


def _moved_bytes(progress: Any) -> int | None:
    """Return what a run has moved, without what earlier runs had; None if that is not known."""
    try:
        return max(0, int(progress["bytes_done"]) - int(progress["bytes_earlier"]))
    except (KeyError, TypeError, ValueError):
        return None
