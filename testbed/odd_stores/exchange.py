"""A request to an odd store and its answer, without the details of HTTP."""

from __future__ import annotations

import datetime
import email.utils
from collections.abc import Callable
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from testbed.faults.rules import Action, Request
from testbed.odd_stores.habits import Habits
from testbed.odd_stores.objects import Missing, Object


@dataclass(frozen=True)
class Asking(Request):
    """A request with its meaning in the store's dialect."""

    operation: str = ""
    """``list``, ``head``, ``get``, ``put``, ``open upload``, ``put part``, ``complete upload``, ``abort upload``,
    ``list uploads``, ``copy``, ``copy part``, ``rewrite``, ``get resource``, ``delete``,
    ``delete many``, ``create bucket``, or empty: unknown."""
    bucket: str = ""
    key: str = ""
    body: bytes = b""


@dataclass
class Reply:
    """An answer."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Refused(Exception):
    """An error answer."""

    def __init__(self, status: int, code: str, message: str = "odd store") -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message

    @classmethod
    def missing(cls, missing: Missing) -> Refused:
        """Return the answer for a name that does not exist."""
        return cls(404, missing.code)

    def reply(self) -> Reply:
        """Return the error in the format that S3, GCS and Azure share."""
        body = f"<Error><Code>{self.code}</Code><Message>{escape(self.message)}</Message></Error>"
        return Reply(self.status, {"content-type": "application/xml", "x-ms-error-code": self.code}, body.encode())


@dataclass(frozen=True)
class Edit(Action):
    """Changes the answer after the request was carried out: false headers, another body, a redirect."""

    function: Callable[[Reply], Reply | None]
    """A function of the reply that edits it in place or returns another one."""


@dataclass(frozen=True)
class Instead(Action):
    """Answers in place of the store, which does not carry out the request: the page of a proxy, for example."""

    function: Callable[[Asking], Reply]


@dataclass(frozen=True)
class Wait(Action):
    """Carries out the request, then holds the answer back until ``open`` returns (``threading.Event.wait``)."""

    open: Callable[[], object]
    keep_alive: bool = False
    """Sends the head of a 200 at once, and a space every 0.1 s until the answer is due (as S3 completes uploads)."""


@dataclass(frozen=True)
class Later(Action):
    """Reads the request and drops the connection. Carries out the request when ``due`` returns: a late write."""

    due: Callable[[], object]
    done: Callable[[], object] = lambda: None
    """Called after the request was carried out (``threading.Event.set``)."""


@dataclass(frozen=True)
class Drip(Action):
    """Sends the body one byte at a time, with this pause between two bytes."""

    pause_s: float


@dataclass(frozen=True)
class Endless(Action):
    """Announces no length and sends ``piece`` again and again until the client closes the connection."""

    piece: bytes


def during(operation: str, key: str | None = None) -> Callable[[Request], bool]:
    """Return a condition that matches an operation, on one key if given: ``Rule(Delay(5), when=during("copy"))``."""
    return lambda request: isinstance(request, Asking) and request.operation == operation and key in (None, request.key)


def etag_matches(condition: str, found: Object | None) -> bool:
    """Return whether a list of ETags in a header names the object's."""
    names = [name.strip().strip('"') for name in condition.split(",")]
    return found is not None and ("*" in names or found.etag in names)


def check_write(asking: Asking, found: Object | None, habits: Habits, generation: str | None = None) -> None:
    """Refuse a write if its condition on the replaced object does not hold. ``generation``: ``0`` means no object."""
    conditions = [asking.headers.get(name) for name in ("if-match", "if-none-match", "x-ms-if-tags")]
    if habits.refuses_conditions and (any(conditions) or generation is not None):
        raise Refused(501, "NotImplemented")
    if habits.ignores_write_conditions:
        return
    if_match, if_none_match, _ = conditions
    if if_match and found is None and asking.operation != "delete":
        raise Refused(404, "NoSuchKey")
    wrong = (if_match and not etag_matches(if_match, found)) or (if_none_match and etag_matches(if_none_match, found))
    if wrong or (generation is not None and generation != (found.version if found else "0")):
        raise Refused(412, "PreconditionFailed")


def http_date(found: Object, habits: Habits) -> str:
    """Return an object's time as in a header, in whole seconds."""
    return email.utils.formatdate(found.modified_s + habits.clock_ahead_s, usegmt=True)


def iso_date(seconds: float, habits: Habits) -> str:
    """Return a time as in a listing."""
    time = datetime.datetime.fromtimestamp(seconds + habits.clock_ahead_s, datetime.timezone.utc)
    return time.strftime("%Y-%m-%dT%H:%M:%S") + ("Z" if habits.whole_seconds else f".{time.microsecond // 1000:03}Z")


def ranged(body: bytes, header: str | None, habits: Habits) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and bytes of a read."""
    if not header or habits.ignores_range:
        return 200, {}, body
    first, _, last = header.removeprefix("bytes=").partition("-")
    start, end = int(first), min(int(last) + 1 if last else len(body), len(body))
    if start >= len(body):
        raise Refused(416, "InvalidRange")
    return 206, {"content-range": f"bytes {start}-{end - 1}/{len(body)}"}, body[start:end]
