"""The cost of an acceleration: its machines, from launch to end, and the bytes that its proxies send."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping

from tradewind.model.ledger import MachinePrice
from tradewind.model.records import dataclass, replace

__all__ = ["AccelerationMeter"]

_FREE = MachinePrice(0.0)
BYTES_PER_GB = 1e9


@dataclass(frozen=True, slots=True)
class _Use:
    name: str
    price: MachinePrice
    began_s: float
    ended_s: float | None = None

    def usd(self, now_s: float) -> float:
        return self.price.usd(max(0.0, (now_s if self.ended_s is None else self.ended_s) - self.began_s))


class AccelerationMeter:
    """Counts machines as their fleet's meter, and the bytes of each proxy. Any thread may call it.

    All bytes that a proxy sends, in both directions, cost its region's highest price of egress to any region or
    destination: the cost is never understated. `clock` counts seconds.
    """

    def __init__(
        self,
        machines: Mapping[str, MachinePrice],
        egress_usd_per_gb: Mapping[str, float],
        usd_max: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`machines` and `egress_usd_per_gb` are prices by region."""
        self._machines, self._egress, self.usd_max, self._clock = (
            dict(machines),
            dict(egress_usd_per_gb),
            usd_max,
            clock,
        )
        self._uses: list[_Use] = []
        #: Cost of egress by proxy: of former machines, and of the present one.
        self._before_usd: dict[str, float] = {}
        self._now_usd: dict[str, float] = {}
        self._usd_per_s = 0.0
        self._counted_s, self._counted_usd = clock(), 0.0
        self._lock = threading.Lock()

    def add_prices(self, machines: Mapping[str, MachinePrice], egress_usd_per_gb: Mapping[str, float]) -> None:
        """Take in the prices of another plan's regions."""
        with self._lock:
            self._machines.update(machines)
            self._egress.update(egress_usd_per_gb)

    def launched(self, fleet: str, name: str, region: str) -> None:
        """Start charging a machine; see `fleet.Meter`."""
        with self._lock:
            if not any(use.name == name and use.ended_s is None for use in self._uses):
                self._uses.append(_Use(name, self._machines.get(region, _FREE), self._clock()))

    def reported(self, fleet: str, name: str, began_unix_s: float | None, price: MachinePrice | None) -> None:
        """Take in the price of a machine, if it is not the planned one. It is charged from its order."""
        if price is not None:
            self._change(lambda use: replace(use, price=price), {name})

    def refused(self, fleet: str, names: Collection[str]) -> None:
        """Cancel the charges of machines that were not launched."""
        with self._lock:
            self._uses = [use for use in self._uses if use.name not in names or use.ended_s is not None]

    def ended(
        self,
        fleet: str,
        names: Collection[str] | None = None,
        ago_s: float = 0.0,
        ended_unix_s: float | None = None,
    ) -> None:
        """Stop charging machines; see `fleet.Meter`."""
        past_s = ago_s if ended_unix_s is None else max(ago_s, time.time() - ended_unix_s)
        now_s = self._clock()
        self._change(lambda use: replace(use, ended_s=max(use.began_s, now_s - past_s)), names)

    def sent(self, name: str, region: str, count_bytes: int) -> float:
        """Count all bytes that the present machine of a proxy has sent. Return the proxy's egress so far [USD]."""
        usd = count_bytes / BYTES_PER_GB * self._egress.get(region, 0.0)
        with self._lock:
            if usd < self._now_usd.get(name, 0.0):  # A new machine counts from zero.
                self._before_usd[name] = self._before_usd.get(name, 0.0) + self._now_usd[name]
            self._now_usd[name] = usd
            return self._before_usd.get(name, 0.0) + usd

    def tick(self) -> None:
        """Note at which rate egress costs since the last call."""
        with self._lock:
            now_s, usd = self._clock(), self._egress_usd()
            self._usd_per_s = max(0.0, usd - self._counted_usd) / max(1e-3, now_s - self._counted_s)
            self._counted_usd, self._counted_s = usd, now_s

    @property
    def machines_usd(self) -> float:
        """Cost of the machines so far."""
        with self._lock:
            return self._machines_usd()

    @property
    def egress_usd(self) -> float:
        """Cost of egress so far."""
        with self._lock:
            return self._egress_usd()

    def left_s(self, most_s: float) -> float:
        """Return how long machines may run at the present rate of egress within the ceiling, up to `most_s`."""
        if self.usd_max is None:
            return most_s
        with self._lock:
            left_usd = self.usd_max - self._machines_usd() - self._egress_usd()
            usd_per_s = self._usd_per_s + sum(use.price.usd_per_s for use in self._uses if use.ended_s is None)
        if left_usd <= 0:
            return 0.0
        return min(most_s, left_usd / usd_per_s) if usd_per_s > 0 else most_s

    def _machines_usd(self) -> float:
        now_s = self._clock()
        return sum(use.usd(now_s) for use in self._uses)

    def _egress_usd(self) -> float:
        return sum(self._before_usd.values()) + sum(self._now_usd.values())

    def _change(self, change: Callable[[_Use], _Use], names: Collection[str] | None) -> None:
        with self._lock:
            self._uses = [
                change(use) if use.ended_s is None and (names is None or use.name in names) else use
                for use in self._uses
            ]
