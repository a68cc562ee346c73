"""Why a job waits: a sentence for people, and causes for programs. Both come from the scheduler's own state."""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import datetime, timezone

from tradewind.model.records import dataclass
from tradewind.service.scheduler.jobs import Resource

__all__ = [
    "BANNED",
    "LIMITED",
    "NOT_YET",
    "NO_ROUTE",
    "OWNED",
    "PAUSED",
    "RETRYING",
    "STORE_IS_DOWN",
    "TURN",
    "WaitCause",
    "WaitReason",
    "sentence",
]

BANNED, LIMITED, NOT_YET, NO_ROUTE, OWNED = "banned", "limited", "not-yet", "no-route", "owned"
PAUSED, RETRYING, STORE_IS_DOWN, TURN = "paused", "retrying", "store-down", "turn"


@dataclass(frozen=True)
class WaitCause:
    """One cause. `kind` is a constant above.

    `subject` is the id of the ban or of the other job, the name of the store, or the limit that is reached; `until_s`
    is when it ends, if that is known. `where` says how a tenant reaches a store that does not answer.
    """

    kind: str
    resource: Resource | None = None
    subject: str = ""
    until_s: float | None = None
    where: str = ""

    @property
    def passes(self) -> bool:
        """True if it ends without people."""
        return self.kind in (LIMITED, TURN)


@dataclass(frozen=True)
class WaitReason:
    """Why a job waits. It has one cause for each possible binding, best first: the job starts when one of them ends."""

    sentence: str
    causes: tuple[WaitCause, ...]


def sentence(causes: Sequence[WaitCause], hidden: Container[str] = ()) -> str:
    """Return the first cause as a sentence, with the number of the others. Jobs in `hidden` are not named."""
    first = _clause(causes[0], "Another job" if causes[0].subject in hidden else f"Job {causes[0].subject}")
    others = len(set(causes)) - 1
    if not others:
        return f"{first}."
    return f"{first}; {others} other {'route is' if others == 1 else 'routes are'} blocked, too."


def _clause(cause: WaitCause, job: str) -> str:
    until = f" until {_time(cause.until_s)}" if cause.until_s is not None else ""
    clauses = {
        BANNED: f"Ban {cause.subject} closes {cause.resource}{until}",
        LIMITED: f"The limit of {cause.resource} is reached: {cause.subject}{until}",
        NOT_YET: f"The job does not start{until}",
        NO_ROUTE: "No route to the destination is available now",
        OWNED: f"{job} writes to the same place first",
        PAUSED: "The job is paused",
        RETRYING: f"The last run failed ({cause.subject}); the next one waits{until}",
        STORE_IS_DOWN: f"Store {cause.subject} does not answer{_hint(cause.where)}",
        TURN: f"{job} goes first" + (f" on {cause.resource}" if cause.resource else ""),
    }
    return clauses[cause.kind]


def _hint(where: str) -> str:
    """Return where a tenant's store was asked, and what to do if that is wrong."""
    return where and f" {where}, as its connection says; if that is wrong, cancel the job and make the connection anew"


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
