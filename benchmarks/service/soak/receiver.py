"""A receiver of webhooks that checks each signature by itself, refuses some events, and can be down."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading

from testbed.loopback import Answer, LoopbackServer, Received

__all__ = ["Receiver"]

REFUSE_EVERY = 25
"""Each so many requests are answered 503, so that their events are sent again."""


class Receiver:
    """Listens on loopback. `secrets` has the secret of each tenant, by the path that its webhook posts to."""

    def __init__(self) -> None:
        self.secrets: dict[str, str] = {}
        self.events: dict[tuple[str, int, str], int] = {}
        """Return how often the event with this job, number and state was accepted."""
        self.unverified: list[str] = []
        self.requests = self.refused = 0
        self.is_down = False
        self._lock = threading.Lock()
        self._server = LoopbackServer(self._answer)
        self.url = self._server.url

    def close(self) -> None:
        """Stop listening."""
        self._server.close()

    def _answer(self, received: Received) -> Answer:
        return Answer(self._receive(received.path, received.headers.get("Tradewind-Signature", ""), received.body))

    def _receive(self, path: str, signed: str, body: bytes) -> int:
        with self._lock:
            self.requests += 1
            if self.is_down or self.requests % REFUSE_EVERY == 0:
                self.refused += 1
                return 503
            at, _, found = signed.removeprefix("t=").partition(",v1=")
            right = hmac.new(self.secrets.get(path, "").encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
            if not hmac.compare_digest(right, found):
                self.unverified.append(f"{path}: {body[:200]!r}")
                return 400
            event = json.loads(body)
            key = (event["job_id"], event["number"], event["state"])
            self.events[key] = self.events.get(key, 0) + 1
            return 200
