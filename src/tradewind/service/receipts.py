"""The receipt of a job as its tenant sees it: no path of the server, no provider, no id of the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from tradewind.engine.receipt import carried_of
from tradewind.model.codec import OFF
from tradewind.service.jobs import JobRow
from tradewind.service.limits import OBJECT_LINE_BYTES_MAX
from tradewind.service.tables import ENDED
from tradewind.service.told import told_document, told_line

__all__ = ["figures", "object_list_blocks", "public_receipt"]

#: Fields of the engine's receipt that a tenant gets unchanged.
FIELDS = ("receipt", "verb", "source", "destinations", "progress", "summary", "runs", "cost", "ceiling", "prediction")
#: Field of a run with what is left of its fleets: ids of fleets and of resources in the accounts of the operator.
LEFT = "left"
BLOCK_BYTES = 1 << 20


def public_receipt(row: JobRow, state: str, receipt: Mapping[str, Any], *, hides_words: bool) -> dict[str, Any]:
    """Return the receipt of a job for its tenant. `state` is that of the service.

    With `hides_words` it has no words of the stores, nor has the list of objects whose digest it names.
    """
    plan, told = receipt["plan"], told_document if hides_words else dict
    summary = None if receipt["summary"] is None else told(receipt["summary"])
    return {
        **{name: receipt[name] for name in FIELDS},
        "summary": _summary(row.request, summary),
        "runs": [{name: each for name, each in told(run).items() if name != LEFT} for run in receipt["runs"]],
        "routes": None if plan is None else len(plan["routes"]),
        **_savings(row.request, receipt),
        "job_id": row.id,
        "state": state,
        "complete": state == "done",
        "objects": _objects(receipt["objects"], hides_words) if state in ENDED else None,
        "created_unix_ms": row.created_unix_ms,
    }


def _summary(request: Mapping[str, Any], summary: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a summary with the destination that the tenant has named. The lead of a job with a guest cannot see it."""
    if summary is None or request.get("guest") is None:
        return summary
    ends = zip(summary["destinations"], request["destination"], strict=False)
    return {**summary, "destinations": [{**end, "url": url} for end, url in ends]}


def _savings(request: Mapping[str, Any], receipt: Mapping[str, Any]) -> dict[str, Any]:
    """Return what deduplication and compression have saved, over all runs that are known; None for one that is off.

    Compression gets the bytes that deduplication leaves.
    """
    codec, deduplicates = request.get("compression", OFF), request.get("deduplication", False)
    if codec == OFF and not deduplicates:
        return {"compression": None, "deduplication": None}
    carried = [run["carried"] for run in receipt["runs"] if run["carried"] is not None]
    if receipt["runs"] and receipt["runs"][-1]["ended_unix_ms"] is None:
        carried.append(carried_of(receipt["progress"]))
    names = "carried_bytes", "deduplicated_bytes", "sent_bytes"
    carried_bytes, deduplicated_bytes, sent_bytes = (sum(each.get(name, 0) for each in carried) for name in names)
    left_bytes = carried_bytes - deduplicated_bytes
    return {
        "compression": None if codec == OFF else {"codec": codec, **_ratio(left_bytes, sent_bytes)},
        "deduplication": _ratio(carried_bytes, left_bytes) if deduplicates else None,
    }


def _ratio(carried_bytes: int, sent_bytes: int) -> dict[str, Any]:
    ratio = sent_bytes / carried_bytes if carried_bytes else None
    return {"carried_bytes": carried_bytes, "sent_bytes": sent_bytes, "ratio": ratio}


def _objects(file: Mapping[str, Any] | None, hides_words: bool) -> dict[str, Any] | None:
    """Return length and SHA-256 of the list of objects, which has their checksums; None if it was removed."""
    if file is None:
        return None
    try:
        digest, size = sha256(), 0
        for block in object_list_blocks(file["file"], hides_words=hides_words):
            digest.update(block)
            size += len(block)
    except OSError:
        return None
    return {"list_bytes": size, "list_sha256": digest.hexdigest()}


def object_list_blocks(path: str, *, hides_words: bool) -> Iterator[bytes]:
    """Yield the list of objects of a job as its tenant gets it. Raises OSError."""
    with open(path, "rb") as content:
        while block := content.read(BLOCK_BYTES):
            if not hides_words:
                yield block
                continue
            yield b"".join(map(told_line, (block + content.readline(OBJECT_LINE_BYTES_MAX)).splitlines(keepends=True)))


def figures(receipt: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return counts, proofs, ledger, routes, savings and deadline of a public receipt; all null without one."""
    if receipt is None:
        return dict.fromkeys(("counts", "proofs", "ledger", "routes", "compression", "deduplication", "deadline"))
    summary = receipt["summary"] or {}
    return {
        "counts": receipt["progress"],
        "proofs": summary.get("proofs", {}),
        "ledger": receipt["cost"],
        # A job that ended before an update has a receipt without them.
        "routes": receipt.get("routes"),
        "compression": receipt.get("compression"),
        "deduplication": receipt.get("deduplication"),
        "deadline": receipt.get("deadline"),
    }
