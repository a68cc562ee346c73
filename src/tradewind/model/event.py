"""Events that a lead reports while it works. Mirrors `crates/contract/src/event.rs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from tradewind.model.document import Document
from tradewind.model.records import dataclass, field

Outcome = Literal[
    "done",
    "failed",
    "refused",
    "source_not_found",
    "some_failed",
    "unavailable",
    "mismatch",
    "unauthorised",
    "ceiling",
    "interrupted",
]
EARLIER_RUN = "earlier run"
"""Proof of objects that an earlier run of a job moved."""
JobState = Literal["running", "done", "failed", "interrupted", "cancelled"]


@dataclass(frozen=True)
class HopActivity:
    """Activity of one route: `name` as `a → b → c`, acknowledged bytes, and whether it works now.

    A `retired` route gets no more work, because the routes were changed. `saved_bytes` are those of `bytes` that
    deduplication and compression saved, and `deduplicated_bytes` those of them that deduplication did.
    """

    name: str
    bytes: int = 0
    up: bool = True
    id: int = 0
    retired: bool = False
    requests_in_flight: int = 0
    saved_bytes: int = 0
    deduplicated_bytes: int = 0


Stage = Literal["read", "network", "write"]
LimitReason = Literal["waiting", "no_gain", "slow_down", "errors"]


@dataclass(frozen=True)
class StageLimit:
    """A limit on concurrent requests: its value `now`, and the highest one that is allowed."""

    now: int
    max: int


@dataclass(frozen=True)
class SlowHop:
    """A hop that limits the rate: from `gateway` to `peer`. `by_relay`: only the statement of a relay says so."""

    gateway: str
    peer: str
    by_relay: bool = False


@dataclass(frozen=True)
class HopLimit:
    """The limit of the hop from the relay `gateway` to `peer`: connections that may send at the same time."""

    gateway: str
    peer: str
    now: int
    max: int


@dataclass(frozen=True)
class StageLimits:
    """The limits on concurrent requests, each summed over the gateways that work at that stage.

    `read`: requests to the source; `network`: connections that send from the sources at the same time, None without
    hops; `write`: requests to the destinations. `slowest` is the stage that limits the rate now, and `slowest_hop` the
    hop if that is known. `relay_hops` are those that relays report to have used lately.
    """

    read: StageLimit | None = None
    network: StageLimit | None = None
    write: StageLimit | None = None
    slowest: Stage | None = None
    slowest_hop: SlowHop | None = None
    relay_hops: tuple[HopLimit, ...] = ()


@dataclass(frozen=True)
class Progress(Document):
    """Progress of a job. Counts are of objects × destinations; the totals grow until `listed`.

    `objects_earlier` and `bytes_earlier` are the parts of `objects_done` and `bytes_done` that earlier runs moved;
    `bytes_per_s` excludes them. `duplicate_bytes` were sent a second time over another route in this run. `cost_usd`
    covers all runs: a lead counts egress only, a running job reports the sum of its ledger, including machines and
    requests. `limits` are known while the job runs.
    """

    TAG: ClassVar[tuple[str, str]] = ("event", "progress")
    listed: bool = False
    objects_total: int = 0
    bytes_total: int = 0
    objects_done: int = 0
    objects_earlier: int = 0
    bytes_done: int = 0
    bytes_earlier: int = 0
    objects_skipped: int = 0
    objects_failed: int = 0
    retries: int = 0
    duplicate_bytes: int = 0
    bytes_per_s: float = 0.0
    elapsed_s: float = 0.0
    cost_usd: float = 0.0
    hops: tuple[HopActivity, ...] = ()
    limits: StageLimits | None = None


@dataclass(frozen=True)
class ObjectFailed(Document):
    """One object could not be moved. `kind` is the reason, e.g. `forbidden`, `changed`, `mismatch`, `no_space`."""

    TAG: ClassVar[tuple[str, str]] = ("event", "object_failed")
    source: str
    destination: str
    kind: str
    message: str
    hint: str | None = None


@dataclass(frozen=True)
class Notice(Document):
    """A message to the user, sent once."""

    TAG: ClassVar[tuple[str, str]] = ("event", "notice")
    message: str


@dataclass(frozen=True)
class LimitChanged(Document):
    """A gateway changed how many requests it has in flight to a store, or to the next gateway (`peer`).

    `reason`: `waiting` (requests waited, so more are tried), `no_gain` (more requests did not raise the rate),
    `slow_down` (the store asked for fewer), `errors` (most requests failed or timed out). `by_relay`: only the
    statement of a relay says so.
    """

    TAG: ClassVar[tuple[str, str]] = ("event", "limit_changed")
    gateway: str
    stage: Stage
    peer: str
    before: int
    now: int
    reason: LimitReason
    by_relay: bool = False


@dataclass(frozen=True)
class WouldCopy(Document):
    """`dry_run`: one object that would be copied, with its source URL and destination URL."""

    TAG: ClassVar[tuple[str, str]] = ("event", "would_copy")
    source: str
    destination: str
    size_bytes: int


@dataclass(frozen=True)
class WouldDelete(Document):
    """`dry_run` with deletion: one object that would be deleted."""

    TAG: ClassVar[tuple[str, str]] = ("event", "would_delete")
    destination: str


@dataclass(frozen=True)
class DestinationSummary:
    """Counts of one destination."""

    url: str
    objects: int = 0
    bytes: int = 0
    failed: int = 0


@dataclass(frozen=True)
class ToDelete:
    """Objects and bytes that `--delete` would delete at all destinations together."""

    objects: int
    bytes: int


@dataclass(frozen=True)
class Summary(Document):
    """Summary of an ended job. `proofs` counts objects by how they were proven (docs/concepts/integrity.md).

    `tags_dropped`: objects that the last run wrote without the tags of their sources. `attributes_ignored`: files that
    it wrote without a mode, owner or time that the metadata of their sources states in a form that cannot be read.
    """

    TAG: ClassVar[tuple[str, str]] = ("event", "done")
    outcome: Outcome
    progress: Progress = field(default_factory=Progress)
    message: str | None = None
    hint: str | None = None
    objects_deleted: int = 0
    objects_not_deleted: int = 0
    to_delete: ToDelete | None = None
    tags_dropped: int = 0
    attributes_ignored: int = 0
    proofs: Mapping[str, int] = field(default_factory=dict)
    destinations: tuple[DestinationSummary, ...] = ()


Event = Progress | ObjectFailed | Notice | LimitChanged | WouldCopy | WouldDelete | Summary


def is_copied_by_store(proof: str) -> bool:
    """Return whether the store itself copied the objects with this proof of a summary: no byte passed a gateway."""
    return " → " not in proof and proof != EARLIER_RUN


def event_from_document(document: Mapping[str, Any]) -> Event | None:
    """Return the event of one line of the stream; None if this version does not know it."""
    for kind in (Progress, ObjectFailed, Notice, LimitChanged, WouldCopy, WouldDelete, Summary):
        if document["event"] == kind.TAG[1]:
            return kind.from_document(document)
    return None


@dataclass(frozen=True)
class JobStatus(Document):
    """`status.json` in a job's folder, as the lead last wrote it."""

    state: JobState
    progress: Progress
    summary: Summary | None
    updated_unix_ms: int
