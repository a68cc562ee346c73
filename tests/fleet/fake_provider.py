"""A provider whose machines are entries of a dictionary."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tradewind.errors import GatewayError
from tradewind.fleet.provider import Capabilities, Machine, MachineOrder
from tradewind.model.plan import GatewayAddress


class FakeProvider:
    """Machines in memory, which fail as the seed says. `control` gives the control address of each."""

    kind = "fake"

    def __init__(
        self, rng: random.Random, failing: float, control: Callable[[str], str] = "unix:/nowhere/{}".format
    ) -> None:
        self.rng, self.failing, self._control = rng, failing, control
        self.living: dict[tuple[str, str], MachineOrder] = {}
        self.started: list[str] = []
        self._lock = threading.Lock()

    def capabilities(self) -> Capabilities:
        return Capabilities()

    def document(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def machines(self, fleet_id: str) -> tuple[Machine, ...]:
        with self._lock:
            return tuple(self._machine(order) for (fleet, _), order in self.living.items() if fleet == fleet_id)

    def create(self, order: MachineOrder) -> Machine:
        with self._lock:
            there = self.living.get((order.fleet_id, order.name))
            if there is not None:
                assert there.token == order.token
                return self._machine(there)
            if self.rng.random() < self.failing:
                if self.rng.random() < 0.5:  # It was started, and only the answer is lost.
                    self.living[order.fleet_id, order.name] = order
                raise GatewayError(f"{order.name} could not be started")
            self.started.append(order.token)
            self.living[order.fleet_id, order.name] = order
            return self._machine(order)

    def wait_ready(self, machine: Machine, timeout_s: float) -> GatewayAddress:
        with self._lock:
            if self.rng.random() < self.failing:
                raise GatewayError(f"{machine.name} did not answer")
        return GatewayAddress(self._control(machine.name), "127.0.0.1:1")

    def delete(
        self,
        machines: Sequence[Machine],
        *,
        grace_s: float = 10.0,
        on_gone: Callable[[Machine], None] | None = None,
    ) -> None:
        with self._lock:
            for machine in machines:
                self.living.pop((machine.fleet_id, machine.name), None)
        for machine in machines:
            if on_gone is not None:
                on_gone(machine)

    def last_words(self, machine: Machine, timeout_s: float) -> str:
        return "it is gone"

    def die(self) -> None:
        with self._lock:
            if self.living:
                del self.living[self.rng.choice(sorted(self.living))]

    @staticmethod
    def _machine(order: MachineOrder) -> Machine:
        return Machine(order.fleet_id, order.name, order.region, f"{order.fleet_id}/{order.name}")
