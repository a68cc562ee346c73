"""Sends queued events to webhooks: signed, at least once, with pauses that double.

A delivery is claimed by moving its next attempt behind a lease. If the server is killed, it is tried again after the
lease. A tenant has few deliveries in flight. The next one is of the tenant with the fewest, and among these of the one
that waits the longest, so tenants whose receivers are slow leave turns to the others.
"""

from __future__ import annotations

import hmac
import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

from sqlalchemy import Row, delete, select, update

from tradewind.errors import StateError
from tradewind.service.database import ServiceDatabase, database_unix_ms
from tradewind.service.faults import Faults
from tradewind.service.limits import (
    DELIVERIES_AT_ONCE,
    DELIVERIES_AT_ONCE_PER_TENANT,
    DELIVERY_ATTEMPTS_MAX,
    DELIVERY_KEPT_S,
    DELIVERY_LEASE_S,
    DELIVERY_LOOK_S,
    DELIVERY_PAUSE_S,
    DELIVERY_PAUSE_S_MAX,
)
from tradewind.service.receivers import ReceiverError, post
from tradewind.service.sealing import Sealer
from tradewind.service.tables import deliveries, webhooks

__all__ = ["Courier", "signature"]

_LOG = logging.getLogger("tradewind.service")
#: Interval between removals of old deliveries.
CLEAN_EVERY_S = 3_600.0


def signature(secret: str, at_s: int, body: bytes) -> str:
    """Return the header `Tradewind-Signature`: the time, and the HMAC-SHA256 of `TIME.BODY` in hexadecimal."""
    digest = hmac.new(secret.encode(), f"{at_s}.".encode() + body, sha256).hexdigest()
    return f"t={at_s},v1={digest}"


class Courier:
    """Delivers until it is closed."""

    def __init__(self, database: ServiceDatabase, sealer: Sealer, networks: Sequence[str], faults: Faults) -> None:
        self._database, self._sealer, self._networks, self._faults = database, sealer, networks, faults
        self._closing, self._lock = threading.Event(), threading.Lock()
        self._flying: Counter[str] = Counter()
        #: When the latest delivery of a tenant began, by the monotonic clock.
        self._begun_s: dict[str, float] = {}
        self._pool = ThreadPoolExecutor(DELIVERIES_AT_ONCE, thread_name_prefix="webhook")
        self._thread = threading.Thread(target=self._look, name="courier", daemon=True)
        self._cleaned_s = float("-inf")

    def start(self) -> None:
        """Begin to deliver."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Return whether deliveries are looked for."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Stop. Deliveries in flight end; the next server sends the others."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._pool.shutdown(cancel_futures=True)

    def _look(self) -> None:
        while not self._closing.wait(max(DELIVERY_LOOK_S, self._faults.pause_s("webhooks"))):
            try:
                with self._faults.caught("webhooks"):
                    self._clean()
                    for row in self._due():
                        self._send_soon(row)
            except StateError as error:
                _LOG.error("webhooks: %s", error)

    def _due(self) -> list[Row[Any]]:
        """Return due deliveries, as many as each tenant and the server may begin now."""
        is_due = (deliveries.c.state == "pending") & (deliveries.c.next_unix_ms <= self._database.clock_ms)
        with self._lock:
            flying = Counter(self._flying)
        free = DELIVERIES_AT_ONCE - sum(flying.values())
        found: list[Row[Any]] = []
        with self._database.read() as connection:
            tenants = connection.execute(select(deliveries.c.tenant).where(is_due).distinct()).scalars().all()
            for tenant in sorted(tenants, key=lambda one: (flying[one], self._begun_s.get(one, 0.0))):
                own = min(DELIVERIES_AT_ONCE_PER_TENANT - flying[tenant], free - len(found))
                if own > 0:
                    query = select(deliveries).where(is_due, deliveries.c.tenant == tenant)
                    found += connection.execute(query.order_by(deliveries.c.next_unix_ms).limit(own)).all()
        return found

    def _send_soon(self, row: Row[Any]) -> None:
        with self._database.write() as connection:
            claimed = connection.execute(
                update(deliveries)
                .where(
                    deliveries.c.id == row.id,
                    deliveries.c.state == "pending",
                    deliveries.c.next_unix_ms == row.next_unix_ms,
                )
                .values(next_unix_ms=self._database.clock_ms + round(DELIVERY_LEASE_S * 1000))
            )
        if claimed.rowcount == 1:
            self._begun_s[row.tenant] = time.monotonic()
            with self._lock:
                self._flying[row.tenant] += 1
            self._pool.submit(self._send, row)

    def _send(self, row: Row[Any]) -> None:
        try:
            with self._faults.caught("deliveries", recovers=False, pause_s_max=0.0):
                failed = None
                with self._faults.caught("deliveries", recovers=False, pause_s_max=0.0) as step:
                    failed = self._sent(row)
                self._record(row, step.error or failed)  # A fault of the program is a failed attempt, too.
                if step.fault is None:
                    self._faults.recovered("deliveries")
        except StateError as error:
            _LOG.error("webhook %s: %s", row.webhook, error)
        finally:
            with self._lock:
                self._flying[row.tenant] -= 1

    def _sent(self, row: Row[Any]) -> str | None:
        """Send a delivery; return why it failed, or None. Raises StateError."""
        with self._database.read() as connection:
            webhook = connection.execute(select(webhooks).where(webhooks.c.id == row.webhook)).first()
            now_s = database_unix_ms(connection) // 1000
        if webhook is None:
            return "the webhook was removed"
        secret = self._sealer.open(webhook.sealed, row.tenant, f"webhook {row.webhook}")
        body = row.body.encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "tradewind",
            "Tradewind-Delivery": row.id,
            "Tradewind-Signature": signature(secret, now_s, body),
        }
        try:
            post(webhook.url, body, headers, self._networks)
        except ReceiverError as error:
            return str(error)
        return None

    def _record(self, row: Row[Any], error: str | None) -> None:
        attempts, state = row.attempts + 1, "delivered"
        if error is not None:
            state = "pending" if attempts < DELIVERY_ATTEMPTS_MAX else "failed"
        pause_s = min(DELIVERY_PAUSE_S * 2 ** (attempts - 1), DELIVERY_PAUSE_S_MAX)
        values = {"state": state, "attempts": attempts, "error": error}
        with self._database.write() as connection:
            connection.execute(
                update(deliveries)
                .where(deliveries.c.id == row.id)
                .values(**values, next_unix_ms=self._database.clock_ms + round(pause_s * 1000))
            )

    def _clean(self) -> None:
        """Remove old deliveries that have ended."""
        if time.monotonic() - self._cleaned_s < CLEAN_EVERY_S:
            return
        self._cleaned_s = time.monotonic()
        before_ms = self._database.clock_ms - round(DELIVERY_KEPT_S * 1000)
        is_old = (deliveries.c.state != "pending") & (deliveries.c.next_unix_ms < before_ms)
        with self._database.write() as connection:
            connection.execute(delete(deliveries).where(is_old))
