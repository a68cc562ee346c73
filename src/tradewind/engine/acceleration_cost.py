"""The cost of an acceleration: its machines, from launch to end, and the bytes that its proxies send."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from tradewind.acceleration.restarting_counts import RestartingCounts
from tradewind.engine.ledger import JobLedger
from tradewind.fleet.settings import LEASE_S
from tradewind.model.ledger import EdgePrice, JobPrices, Ledger, MachinePrice, RunCount
from tradewind.model.records import replace
from tradewind.model.units import BYTES_PER_GB

__all__ = ["AccelerationMeter"]

#: Interval at which the supervisor records the ledger, at most.
SAVE_S = 5.0
#: Least time between two looks for a rate: over a shorter one, it would be that of a burst.
PACE_S = 0.5


class _Pace:
    """The bytes that one proxy sends per second, by its last two looks that are not too close to each other."""

    def __init__(self, seen_s: float, sent_bytes: int) -> None:
        self._seen_s = self._rated_s = seen_s
        self._rated_bytes = sent_bytes
        self.bytes_per_s = 0.0

    def seen(self, sent_bytes: int, now_s: float) -> None:
        """Take in a look."""
        self._seen_s, elapsed_s = now_s, now_s - self._rated_s
        if elapsed_s >= PACE_S:
            self.bytes_per_s = max(0, sent_bytes - self._rated_bytes) / elapsed_s
            self._rated_s, self._rated_bytes = now_s, sent_bytes

    def unseen(self, now_s: float, lease_s: float) -> tuple[float, float]:
        """Return the present bytes per second, and the bytes since the last look, if it has kept its rate until the end
        of its lease.
        """
        unseen_s = max(0.0, now_s - self._seen_s)
        return self.bytes_per_s if unseen_s < lease_s else 0.0, self.bytes_per_s * min(unseen_s, lease_s)


class AccelerationMeter:
    """Keeps the ledger of an acceleration: machines as their fleet's meter, and the bytes of each proxy.

    Any thread may call it. All bytes that a proxy sends, in both directions, cost its region's highest price of egress
    to any region or destination. Headers and retransmissions, which clouds bill too, are not counted. `clock` counts
    seconds.
    """

    def __init__(
        self,
        machines: Mapping[str, MachinePrice],
        egress_usd_per_gb: Mapping[str, float],
        usd_max: float | None,
        clock: Callable[[], float] = time.monotonic,
        lease_s: float = LEASE_S,
        former: Ledger | None = None,
    ) -> None:
        """`machines` and `egress_usd_per_gb` are prices by region. Unrenewed machines live for `lease_s`.

        `former` is the ledger of a former supervisor, whose machines have ended: its cost counts against the ceiling.
        """
        prices, counted = JobPrices(dict(machines)), former or Ledger()
        # Egress is counted here, not in the book.
        book = replace(counted, prices=prices.joined(counted.prices), runs=())
        self._book = JobLedger(book, None, clock=clock)
        self._egress, self.usd_max, self._clock, self._lease_s = dict(egress_usd_per_gb), usd_max, clock, lease_s
        self._edges = {name: edges[0] for name, edges in counted.prices.routes.items()}
        #: Bytes that each proxy has sent.
        self._sent = {
            name: RestartingCounts.since(sent) for run in counted.runs for name, sent in run.route_bytes.items()
        }
        self._began_s = clock()
        self._paces = {name: _Pace(self._began_s, sum(sent.totals)) for name, sent in self._sent.items()}
        self._lock = threading.Lock()

    def add_prices(self, machines: Mapping[str, MachinePrice], egress_usd_per_gb: Mapping[str, float]) -> None:
        """Add the prices of another plan's regions; those of known regions stay."""
        self._book.add_prices(JobPrices(dict(machines)))
        with self._lock:
            self._egress = {**egress_usd_per_gb, **self._egress}

    def launched(self, fleet: str, name: str, region: str) -> None:
        """Start charging a machine; see `fleet.Meter`."""
        self._book.launched(fleet, name, region)

    def reported(self, fleet: str, name: str, began_unix_s: float | None, price: MachinePrice | None) -> None:
        """Record when the billing of a machine began, and its price if it is not the planned one."""
        self._book.reported(fleet, name, began_unix_s, price)

    def refused(self, fleet: str, names: Collection[str]) -> None:
        """Cancel the charges of machines that were not launched."""
        self._book.refused(fleet, names)

    def ended(
        self,
        fleet: str,
        names: Collection[str] | None = None,
        ago_s: float = 0.0,
    ) -> None:
        """Stop charging machines; see `fleet.Meter`."""
        self._book.ended(fleet, names, ago_s)

    def sent(self, name: str, region: str, count_bytes: int) -> float:
        """Count all bytes that the present machine of a proxy has sent. Return the proxy's egress so far [USD]."""
        with self._lock:
            usd_per_gb = self._egress.get(region, 0.0)
            # A former supervisor may have had another price.
            if name not in self._edges or self._edges[name].usd_per_gb < usd_per_gb:
                source = f"highest price of egress of {region}"
                self._edges[name] = EdgePrice(f"{name} in {region}", usd_per_gb, source)
            self._sent[name] = self._sent.get(name, RestartingCounts.since(0)).seen((count_bytes,))
            self._paces.setdefault(name, _Pace(self._began_s, 0)).seen(sum(self._sent[name].totals), self._clock())
            return self._usd_of(name)

    def renewed(self, name: str) -> None:
        """Record that a proxy has a new machine, which counts from zero, perhaps past the last count."""
        with self._lock:
            if name in self._sent:
                self._sent[name] = self._sent[name].renewed()
                self._paces[name] = _Pace(self._clock(), sum(self._sent[name].totals))

    def proxy_usd(self, name: str) -> float:
        """Return the egress of a proxy so far [USD]."""
        with self._lock:
            return self._usd_of(name) if name in self._sent else 0.0

    def bytes_per_s(self, name: str) -> float:
        """Return the rate at which a proxy sends, by its last looks."""
        with self._lock:
            return self._paces[name].bytes_per_s if name in self._paces else 0.0

    @property
    def ledger(self) -> Ledger:
        """The present counts. Its only run has a route for each proxy."""
        ledger = self._book.ledger
        with self._lock:
            routes = {name: (edge,) for name, edge in self._edges.items()}
            sent_bytes = {name: sum(sent.totals) for name, sent in self._sent.items()}
            run = RunCount(1, self._egress_usd(), route_bytes=sent_bytes)
        return replace(
            ledger, prices=replace(ledger.prices, routes=routes), runs=(run,), alive_s_max=self._lease_s + SAVE_S
        )

    @property
    def machines_usd(self) -> float:
        """Cost of the machines so far."""
        return self._book.spent_usd()

    @property
    def egress_usd(self) -> float:
        """Cost of egress so far."""
        with self._lock:
            return self._egress_usd()

    def can_pay(self, usd: float) -> bool:
        """Return whether the ceiling leaves this much besides what is spent; always without a ceiling."""
        return self.usd_max is None or self.machines_usd + self.egress_usd + usd <= self.usd_max

    def without_machine(self, regions: Mapping[str, str]) -> dict[str, str]:
        """Return those of these proxies that have no living machine, with their regions."""
        living = {use.name for use in self._book.ledger.machines if use.ended_s is None}
        return {name: region for name, region in regions.items() if name not in living}

    def left_s(self, most_s: float, more: Sequence[MachinePrice] = ()) -> float:
        """Return how long machines may run at the present rate of egress within the ceiling, up to `most_s`.

        A proxy that does not answer may still carry its flows. Until its machine or its lease has ended, it is assumed
        to send at its last rate. `more` are the prices of machines that are not started yet.
        """
        if self.usd_max is None:
            return most_s
        living = [use for use in self._book.ledger.machines if use.ended_s is None]
        usd_per_s = sum(use.usd_per_s for use in living) + sum(price.usd_per_s for price in more)
        left_usd = self.usd_max - self.machines_usd - self.egress_usd
        with self._lock:
            for name in {use.name for use in living} & self._paces.keys():
                bytes_per_s, unseen_bytes = self._paces[name].unseen(self._clock(), self._lease_s)
                usd_per_byte = self._edges[name].usd_per_gb / BYTES_PER_GB
                usd_per_s += bytes_per_s * usd_per_byte
                left_usd -= unseen_bytes * usd_per_byte
        # Until it has run for its minimum time, a machine costs no less.
        least_usd = sum(price.usd(0.0) for price in more)
        if left_usd <= least_usd:
            return 0.0
        return min(most_s, left_usd / usd_per_s) if usd_per_s > 0 else most_s

    def _egress_usd(self) -> float:
        return math.fsum(self._usd_of(name) for name in self._sent)

    def _usd_of(self, name: str) -> float:
        return sum(self._sent[name].totals) / BYTES_PER_GB * self._edges[name].usd_per_gb
