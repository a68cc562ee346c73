"""A provider whose machines are entries of a dictionary."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tradewind.fleet.provider import (
    FLEET_TAG,
    CallRefused,
    Ended,
    Home,
    Host,
    LaunchOrder,
    LaunchResult,
    Leftover,
    Machine,
    Offer,
    Quota,
    Refusal,
)


class FakeProvider:
    """Machines in memory, which fail according to the seed. `control` returns the control address of each."""

    kind = "fake"
    settles_s = 0.0

    def __init__(
        self, rng: random.Random, failing: float, control: Callable[[str], str] = "unix:/nowhere/{}".format
    ) -> None:
        self.rng, self._control = rng, control
        self.failing = failing
        self.living: dict[tuple[str, str], LaunchOrder] = {}
        self.started: list[str] = []
        self._lock = threading.RLock()

    @property
    def failing(self) -> float:
        """Fraction of the launches that fail: half of them are refused, half of the calls lose their answer."""
        return 2 * self.refusing

    @failing.setter
    def failing(self, part: float) -> None:
        self.refusing = self.losing = part / 2

    def document(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def home(self, region: str) -> Home:
        return Home()

    def offers(self, regions: Collection[str]) -> tuple[Offer, ...]:
        return ()

    def quota(self, region: str) -> Quota | None:
        return None

    def machines(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        with self._lock:
            orders = [order for order in self.living.values() if tags.items() <= order.tags.items()]
            return tuple(self._machine(order) for order in orders)

    def launch(self, orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
        results = [self.create(order) for order in orders]
        with self._lock:
            lost = self.rng.random() < self.losing
        if lost:  # The machines were started; only the answer is lost.
            raise CallRefused(Refusal("transient", "the connection was closed"))
        return results

    def create(self, order: LaunchOrder) -> LaunchResult:
        with self._lock:
            there = self.living.get((order.fleet_id, order.name))
            if there is not None:
                assert there.key == order.key
                return LaunchResult(order, self._machine(there))
            if self.rng.random() < self.refusing:
                return LaunchResult(order, refusal=Refusal("permission", f"{order.name} may not be started"))
            self.started.append(order.name)
            self.living[order.fleet_id, order.name] = order
            return LaunchResult(order, self._machine(order))

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        with self._lock:
            for machine_id in ids:
                fleet_id, _, name = machine_id.partition("/")
                self.living.pop((fleet_id, name), None)
        return [Ended(machine_id) for machine_id in ids]

    def leftovers(self) -> tuple[Leftover, ...]:
        return tuple(Leftover(machine.id, "machine", machine.region, machine.tags) for machine in self.machines({}))

    def host(self, machine: Machine) -> Host | None:
        return None

    def die(self) -> None:
        with self._lock:
            if self.living:
                del self.living[self.rng.choice(sorted(self.living))]

    def names(self, fleet_id: str) -> set[str]:
        return {machine.name for machine in self.machines({FLEET_TAG: fleet_id})}

    def _machine(self, order: LaunchOrder) -> Machine:
        return Machine(
            f"{order.fleet_id}/{order.name}",
            order.name,
            order.region,
            control=self._control(order.name),
            lease=order.lease,
            tags=order.tags,
        )
