"""What a tenant sees of a job's receipt: no path of the server, no provider, no id of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tradewind.service.jobs import JobRow

__all__ = ["figures", "public_receipt"]

#: Fields of the engine's receipt that a tenant gets unchanged.
FIELDS = ("receipt", "verb", "source", "destinations", "progress", "summary", "runs", "cost", "ceiling", "prediction")


def public_receipt(row: JobRow, state: str, receipt: Mapping[str, Any]) -> dict[str, Any]:
    """Return the receipt of a job for its tenant. `state` is that of the service."""
    return {
        **{name: receipt[name] for name in FIELDS},
        "job_id": row.id,
        "state": state,
        "complete": state == "done",
        "created_unix_ms": row.created_unix_ms,
    }


def figures(receipt: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return counts, proofs and ledger of a public receipt; all null without one."""
    if receipt is None:
        return {"counts": None, "proofs": None, "ledger": None}
    summary = receipt["summary"] or {}
    return {"counts": receipt["progress"], "proofs": summary.get("proofs", {}), "ledger": receipt["cost"]}
