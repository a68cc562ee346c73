"""The faults of a misbehaving store (actions), the requests that they affect (rules), and their record (exchanges)."""

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
        """True if the request carries object bytes: a part, a block or a whole object."""
        return self.method == "PUT" and "x-amz-copy-source" not in self.headers and (self.is_part or not self.query)

    @property
    def is_read(self) -> bool:
        """True if the answer carries object bytes."""
        return self.method == "GET" and not self.query and self.path.strip("/").count("/") >= 1


@dataclass
class Exchange:
    """One request and its outcome."""

    request: Request
    request_bytes: int = 0
    """Body bytes passed to the store."""
    status: int | None = None
    """``None`` until there is an answer."""
    response_bytes: int = 0
    """Body bytes passed to the client."""
    fault: str | None = None
    """The action that affected it, if any."""


class Action:
    """Base class of all actions."""


@dataclass(frozen=True)
class Answer(Action):
    """Answers with an error in the store's format instead of forwarding the request."""

    status: int
    code: str
    message: str = "injected"


@dataclass(frozen=True)
class Truncate(Action):
    """Announces the whole body, sends ``after_bytes`` of it, and closes the connection."""

    after_bytes: int = 0


@dataclass(frozen=True)
class Hang(Action):
    """Hangs after ``after_bytes`` of the answer's body, or before its head if ``None``. Keeps the connection open."""

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
    """Forwards the request after a pause."""

    seconds: float


@dataclass(frozen=True)
class Call(Action):
    """Calls a function of the test before the request is forwarded, for example to change the object at this moment."""

    function: Callable[[], object]


@dataclass
class Rule:
    """Applies an action to matching requests. All given conditions must hold."""

    action: Action
    when: Callable[[Request], bool] = lambda _: True
    skip: int = 0
    """Number of matching requests to let pass first."""
    count: int | None = None
    """Maximum number of requests to affect."""
    seconds: float | None = None
    """Time after the first affected request during which the rule applies."""
    share: float = 1.0
    """Share of the matching requests to affect, chosen by a generator seeded with ``seed``."""
    seed: int = 1
    strikes: int = 0
    struck: threading.Event = field(default_factory=threading.Event)
    """Set when the first request is affected."""
    expired: threading.Event = field(default_factory=threading.Event)
    """Set when ``count`` is used up, or when a request was forwarded because ``seconds`` are over."""
    _matches: int = 0
    _first_strike_s: float = 0.0
    _generator: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._generator = random.Random(self.seed)

    def strikes_at(self, request: Request) -> bool:
        """Return whether the action applies to this request, and count it if so. The caller holds the proxy's lock."""
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
