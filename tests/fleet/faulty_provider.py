"""The local provider with the faults of a cloud's API and the limits of an account, over real machines."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tradewind.fleet.provider import (
    CallRefused,
    Ended,
    Home,
    Host,
    LaunchOrder,
    LaunchResult,
    Leftover,
    Machine,
    Offer,
    Provider,
    Quota,
    Refusal,
)

__all__ = ["FaultyProvider"]


class FaultyProvider:
    """Adds faults to the calls of another provider. Tests set the attributes."""

    def __init__(self, inner: Provider) -> None:
        self.inner = inner
        self.kind = inner.kind
        #: Delay until launches and ends of machines appear in listings.
        self.settles_s = 0.0
        #: Next refusals: of orders by machine name, one for each attempt; of whole calls by the call's name.
        self.refusals: dict[str, deque[Refusal]] = defaultdict(deque)
        self.calls_refused: dict[str, deque[Refusal]] = defaultdict(deque)
        #: Number of calls whose answer will be lost, by name. They are carried out.
        self.answers_lost: Counter[str] = Counter()
        #: Zones without capacity, as (type, zone). None means every zone.
        self.full: set[tuple[str | None, str | None]] = set()
        #: Refusals of the ends of machines, by machine name, one for each attempt.
        self.ends_refused: dict[str, deque[Refusal]] = defaultdict(deque)
        self.delays_s: dict[str, float] = {}
        self.offered: tuple[Offer, ...] = ()
        self.quotas: dict[str, Quota] = {}
        #: Every call, and the orders of each launch.
        self.calls: list[str] = []
        self.ordered: list[LaunchOrder] = []
        self._seen_s: dict[str, float] = {}
        self._ended: dict[str, tuple[float, Machine]] = {}
        self._lock = threading.Lock()

    def document(self) -> dict[str, Any]:
        return self.inner.document()

    def home(self, region: str) -> Home:
        return self.inner.home(region)

    def offers(self, regions: Collection[str]) -> tuple[Offer, ...]:
        self._begin("offers")
        return self.offered or self.inner.offers(regions)

    def quota(self, region: str) -> Quota | None:
        self._begin("quota")
        return self.quotas.get(region)

    def launch(self, orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
        self._begin("launch")
        self.ordered += orders
        refused = {order.name: refusal for order in orders if (refusal := self._refusal(order)) is not None}
        begun = iter(self.inner.launch([order for order in orders if order.name not in refused]))
        results = [
            LaunchResult(order, refusal=refused[order.name]) if order.name in refused else next(begun)
            for order in orders
        ]
        now_s = time.monotonic()
        for result in results:
            if result.machine is not None:
                self._seen_s.setdefault(result.machine.id, now_s)
        self._finish("launch")
        return results

    def machines(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        self._begin("machines")
        now_s = time.monotonic()
        listed = [
            machine
            for machine in self.inner.machines(tags)
            if now_s - self._seen_s.get(machine.id, 0.0) >= self.settles_s
        ]
        known = {machine.id for machine in listed}
        late = [
            machine
            for ended_s, machine in self._ended.values()
            if now_s - ended_s < self.settles_s and machine.id not in known and tags.items() <= machine.tags.items()
        ]
        return (*listed, *late)

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        self._begin("terminate")
        there = {machine.id: machine for machine in self.inner.machines({}) if machine.id in ids}
        refused = {
            one.id: Ended(one.id, refusal=self.ends_refused[one.name].popleft())
            for one in there.values()
            if self.ends_refused[one.name]
        }
        before = {machine_id: machine for machine_id, machine in there.items() if machine_id not in refused}
        ended = self.inner.terminate([one for one in ids if one not in refused], grace_s=grace_s)
        answers = [*refused.values(), *ended]
        for machine_id, machine in before.items():
            self._ended[machine_id] = time.monotonic(), replace(machine, ended=True, ended_unix_s=time.time())
        self._finish("terminate")
        return answers

    def leftovers(self) -> tuple[Leftover, ...]:
        return self.inner.leftovers()

    def host(self, machine: Machine) -> Host | None:
        return self.inner.host(machine)

    def _refusal(self, order: LaunchOrder) -> Refusal | None:
        if self.refusals[order.name]:
            return self.refusals[order.name].popleft()
        if (order.type, order.zone) in self.full or (order.type, None) in self.full:
            return Refusal("capacity", f"no {order.type} in {order.zone or order.region}")
        return None

    def _begin(self, call: str) -> None:
        with self._lock:
            self.calls.append(call)
            refusal = self.calls_refused[call].popleft() if self.calls_refused[call] else None
        time.sleep(self.delays_s.get(call, 0.0))
        if refusal is not None:
            raise CallRefused(refusal)

    def _finish(self, call: str) -> None:
        with self._lock:
            lost = self.answers_lost[call] > 0
            self.answers_lost[call] -= lost
        if lost:
            raise CallRefused(Refusal("transient", "the connection was closed"))
