"""Machines of a running transfer that the cloud takes back."""

from __future__ import annotations

from collections.abc import Iterable

from tradewind.engine.gateways import JobGateways
from tradewind.model.plan import Plan

__all__ = ["LEAVING_PAUSE_S", "LeavingMachines"]

#: Interval of looks for such machines.
LEAVING_PAUSE_S = 2.0


class LeavingMachines:
    """Looks for them from time to time, and reports each only once."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._reported: set[str] = set()

    def look(self, gateways: JobGateways, plan: Plan, now_s: float) -> dict[str, float]:
        """Return those on the plan's routes, each with the time for which it still works [s]."""
        if now_s < self._next_s:
            return {}
        self._next_s = now_s + LEAVING_PAUSE_S
        passed = {name for route in plan.routes for name in route.nodes} - self._reported
        return {name: left_s for name, left_s in gateways.leaving().items() if name in passed}

    def report(self, names: Iterable[str]) -> None:
        """Report these no more: another machine was ordered in place of each, or is once it has ended."""
        self._reported.update(names)
