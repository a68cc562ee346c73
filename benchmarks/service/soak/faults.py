"""The faults of the soak: planned from a seed, in two lanes that run at the same time.

One lane disturbs what the service needs: the database, the store, the disks and the receiver of webhooks. The other
disturbs the replicas and their clocks.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter

from benchmarks.service.soak.world import SoakWorld
from tradewind.model.records import dataclass

__all__ = ["CLOCK_STEPS_S", "Fault", "FaultRunner", "plan_faults"]

NEEDS = (
    "database restarted",
    "database killed",
    "store down",
    "store frozen",
    "destination full",
    "state disk full",
    "receiver down",
)
REPLICA = ("replica killed", "replica terminated", "replica frozen", "clock stepped")
CLOCK_STEPS_S = (-600, -90, -5, 5, 90, 600)
DOWN_S = (0.5, 4.0)
FROZEN_AFTER_LEASE_S = (1.0, 4.0)
"""A frozen replica sleeps for longer than its leases last."""


@dataclass(frozen=True)
class Fault:
    """One fault: `at_s` after the start, for `lasts_s`; `replica` and `step_s` are for those that need them."""

    at_s: float
    kind: str
    lasts_s: float
    replica: int = 0
    step_s: int = 0


def plan_faults(
    chance: random.Random, count: int, duration_s: float, lease_s: float, *, can_fill: bool
) -> list[list[Fault]]:
    """Return the faults of each lane by time. Each kind comes once before any comes again."""
    lanes = []
    for lane, kinds in enumerate((NEEDS, REPLICA)):
        usable = [kind for kind in kinds if can_fill or not kind.endswith("full")]
        number = count // 2 + (count % 2 if lane else 0)
        order: list[str] = []
        while len(order) < number:
            order += chance.sample(usable, len(usable))
        space_s = duration_s / (number + 1)
        found = []
        for place, kind in enumerate(order[:number]):
            is_frozen = kind == "replica frozen"
            lasts_s = lease_s + chance.uniform(*FROZEN_AFTER_LEASE_S) if is_frozen else chance.uniform(*DOWN_S)
            # The last replica is never ended, so that its memory is seen over the whole run.
            replica = chance.randrange(2 if kind in ("replica killed", "replica terminated") else 3)
            at_s = (place + chance.uniform(0.5, 1.0)) * space_s
            found.append(Fault(at_s, kind, lasts_s, replica, chance.choice(CLOCK_STEPS_S)))
        lanes.append(found)
    return lanes


class FaultRunner:
    """Carries out the plan in a thread for each lane."""

    def __init__(self, world: SoakWorld, lanes: list[list[Fault]]) -> None:
        self._world, self._is_over = world, threading.Event()
        self.done: Counter[str] = Counter()
        self.errors: list[str] = []
        self._idle = [threading.Event() for _ in lanes]
        pairs = zip(lanes, self._idle, strict=True)
        self._threads = [threading.Thread(target=self._run, args=pair, daemon=True) for pair in pairs]

    def start(self) -> None:
        """Begin now."""
        self._began_s = time.monotonic()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Begin no further fault, and end those that last."""
        self._is_over.set()
        for idle in self._idle:
            idle.wait()
        self._world.repair()

    def _run(self, lane: list[Fault], idle: threading.Event) -> None:
        try:
            self._carry_out(lane)
        finally:
            idle.set()
        # The kernel ends the servers that this thread has started when the thread ends, so it never does.
        threading.Event().wait()

    def _carry_out(self, lane: list[Fault]) -> None:
        for fault in lane:
            if self._is_over.wait(max(0.0, self._began_s + fault.at_s - time.monotonic())):
                return
            try:
                self._inject(fault)
            except Exception as error:  # noqa: BLE001 - a fault that cannot be made is reported; the soak continues.
                self.errors.append(f"{fault.kind}: {error}")
            else:
                self.done[fault.kind] += 1

    def _inject(self, fault: Fault) -> None:
        world, replica = self._world, self._world.replicas[fault.replica]
        if fault.kind == "database restarted" or fault.kind == "database killed":
            (world.postgres.stop if fault.kind == "database restarted" else world.postgres.kill)()
            self._is_over.wait(fault.lasts_s)
            world.start_database()
        elif fault.kind == "store down":
            world.store.kill()
            self._is_over.wait(fault.lasts_s * 2)
            world.store.start()
        elif fault.kind == "store frozen":
            assert world.store.process is not None
            os.killpg(world.store.process.pid, signal.SIGSTOP)
            self._is_over.wait(fault.lasts_s)
            os.killpg(world.store.process.pid, signal.SIGCONT)
        elif fault.kind == "destination full" or fault.kind == "state disk full":
            filler = world.fill(world.small if fault.kind == "destination full" else world.state)
            self._is_over.wait(fault.lasts_s)
            filler.unlink(missing_ok=True)
        elif fault.kind == "receiver down":
            world.receiver.is_down = True
            self._is_over.wait(fault.lasts_s)
            world.receiver.is_down = False
        elif fault.kind == "replica frozen":
            replica.signal(signal.SIGSTOP)
            self._is_over.wait(fault.lasts_s)
            replica.signal(signal.SIGCONT)
        elif fault.kind == "clock stepped":
            replica.set_clock(fault.step_s)
        else:
            replica.signal(signal.SIGKILL if fault.kind == "replica killed" else signal.SIGTERM)
