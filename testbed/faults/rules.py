"""What a misbehaving store does (actions), to which requests (rules), and the record of it (exchanges)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    """The head of one request as a rule sees it."""

    method: str
    path: str
    """Percent-decoded."""
    query: dict[str, str]
    headers: dict[str, str]
    """Names in lower case."""

    @property
    def is_part(self) -> bool:
        """True if this uploads a part of a multipart upload (S3, GCS) or a block (Azure)."""
        return self.method == "PUT" and ("partNumber" in self.query or self.query.get("comp") == "block")

    @property
    def is_write(self) -> bool:
        """True if object bytes travel to the store: a part, a block or a whole object."""
        return self.method == "PUT" and "x-amz-copy-source" not in self.headers and (self.is_part or not self.query)

    @property
    def is_read(self) -> bool:
        """True if object bytes travel from the store."""
        return self.method == "GET" and not self.query and self.path.strip("/").count("/") >= 1


@dataclass
class Exchange:
    """One request and what became of it."""

    request: Request
    request_bytes: int = 0
    """Body bytes passed to the store."""
    status: int | None = None
    """``None`` while there is no answer, and for good if there never was one."""
    response_bytes: int = 0
    """Body bytes passed to the client."""
    fault: str | None = None
    """The action that struck, if one did."""


class Action:
    """Base of everything a rule may do."""


@dataclass(frozen=True)
class Answer(Action):
    """Answers with an error of the store's kind instead of asking the store."""

    status: int
    code: str
    message: str = "injected"


@dataclass(frozen=True)
class Truncate(Action):
    """Announces the whole body, sends ``after_bytes`` of it, and closes the connection."""

    after_bytes: int = 0


@dataclass(frozen=True)
class Hang(Action):
    """Falls silent after ``after_bytes`` of the answer's body, or before its head if ``None``; keeps the connection."""

    after_bytes: int | None = None


@dataclass(frozen=True)
class FlipResponse(Action):
    """Inverts the lowest bit of one byte of the answer's body."""

    at_byte: int = 0


@dataclass(frozen=True)
class FlipRequest(Action):
    """Inverts the lowest bit of one byte of the request's body."""

    at_byte: int = 0


@dataclass(frozen=True)
class Cut(Action):
    """Resets the connection when the request's head has arrived."""


@dataclass(frozen=True)
class Delay(Action):
    """Passes the request on after a pause."""

    seconds: float


@dataclass(frozen=True)
class Call(Action):
    """Runs a function of the test before the request is passed on: something happens to the object just then."""

    function: Callable[[], object]


@dataclass
class Rule:
    """Which requests meet which action. All given conditions must hold."""

    action: Action
    when: Callable[[Request], bool] = lambda _: True
    skip: int = 0
    """Lets so many matching requests pass first."""
    count: int | None = None
    """Strikes so many times, then never again."""
    seconds: float | None = None
    """Strikes for so long after the first strike."""
    share: float = 1.0
    """Strikes this share of the matching requests, chosen by a generator seeded with ``seed``."""
    seed: int = 1
    strikes: int = 0
    struck: threading.Event = field(default_factory=threading.Event)
    """Set at the first strike."""
    expired: threading.Event = field(default_factory=threading.Event)
    """Set when ``seconds`` are over and a request has passed because of it, or when ``count`` is used up."""
    _matches: int = 0
    _first_strike_s: float = 0.0
    _generator: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._generator = random.Random(self.seed)

    def strikes_at(self, request: Request) -> bool:
        """Return whether the action is due for this request; counts it if so. The caller holds the proxy's lock."""
        if self.expired.is_set() or not self.when(request):
            return False
        self._matches += 1
        if self._matches <= self.skip or self._generator.random() >= self.share:
            return False
        now = time.monotonic()
        if self.strikes == 0:
            self._first_strike_s = now
        if self.seconds is not None and now - self._first_strike_s > self.seconds:
            self.expired.set()
            return False
        self.strikes += 1
        self.struck.set()
        if self.count is not None and self.strikes >= self.count:
            self.expired.set()
        return True
