"""Compares the rate of each route with its planned rate, from the lead's progress. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from tradewind.model.plan import Plan, PlannedRoute
from tradewind.model.records import dataclass

__all__ = ["GRACE_S", "REMAINING_S_MIN", "SPAN_S", "TOTAL_PART", "UNDER_PART", "UNDER_S", "RateMonitor", "SlowRoutes"]

#: Rates are averages over this time, and over at least this many chunks of the slowest route.
SPAN_S = 4.0
SPAN_CHUNKS = 8
#: A route below this share of its planned rate is clearly too slow …
UNDER_PART = 0.6
#: … if it stays so for this time while all routes together are below TOTAL_PART of their planned rate: a slow route
#: whose work others have taken over harms nobody.
UNDER_S = 3.0
TOTAL_PART = 0.9
#: Grace period before the routes of a plan are judged: connections open, windows grow.
GRACE_S = 6.0
#: A transfer that ends within this time is not reported as slow, and does not leave closed links.
REMAINING_S_MIN = 10.0


@dataclass(frozen=True, slots=True)
class SlowRoutes:
    """A plan whose routes are too slow. Rates in Gbit/s of data, over some seconds; routes by their gateways."""

    carried_gbps: Mapping[tuple[str, ...], float]
    planned_gbps: Mapping[tuple[str, ...], float]
    under: tuple[tuple[str, ...], ...]
    """Routes clearly below their planned rate, the slowest first."""
    down: frozenset[tuple[str, ...]]
    """Routes among them that do not work at all."""

    @property
    def total_gbps(self) -> float:
        """Total rate of all routes."""
        return sum(self.carried_gbps.values())


class RateMonitor:
    """Monitors the routes of one plan. `ids` are the numbers of its routes in the job."""

    def __init__(
        self,
        plan: Plan,
        ids: Mapping[tuple[str, ...], int],
        *,
        limit_bytes_per_s: int | None,
        chunk_bytes: int,
        since_s: float = 0.0,
    ) -> None:
        planned_gbps = plan.prediction.throughput_gbps if plan.prediction else 0.0
        if limit_bytes_per_s is not None:
            planned_gbps = min(planned_gbps, limit_bytes_per_s * 8e-9)
        shares = sum(route.share for route in plan.routes)
        self._routes = {ids[route.nodes]: route for route in plan.routes}
        self._planned = {route.nodes: planned_gbps * route.share / shares for route in plan.routes}
        slowest_gbps = min(self._planned.values())
        chunks_s = SPAN_CHUNKS * chunk_bytes * 8e-9 / slowest_gbps if slowest_gbps > 0 else 0.0
        self._span_s = max(SPAN_S, chunks_s)
        self._since_s = since_s
        self._seen: deque[tuple[float, dict[int, int]]] = deque()
        self._under_since_s: dict[tuple[str, ...], float] = {}

    def see(self, progress: Mapping[str, Any]) -> SlowRoutes | None:
        """Return the slow routes after one progress document; None if there are none."""
        now_s = float(progress["elapsed_s"])
        hops = {hop["id"]: hop for hop in progress["hops"]}
        self._seen.append((now_s, {number: hops[number]["bytes"] for number in self._routes if number in hops}))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - self._span_s:
            self._seen.popleft()
        if not progress.get("listed") or now_s < self._since_s + GRACE_S + self._span_s:
            return None
        carried = self._rates()
        if carried is None:
            return None
        under = [route for route, gbps in carried.items() if gbps < UNDER_PART * self._planned[route]]
        for route in carried:
            if route in under:
                self._under_since_s.setdefault(route, now_s)
            else:
                self._under_since_s.pop(route, None)
        total_gbps = sum(carried.values())
        if total_gbps == 0 and len(carried) > 1:
            return None  # All routes at once: the cause is one of the ends, which no plan can avoid.
        left_gb = (progress["bytes_total"] - progress["bytes_done"]) * 8e-9
        if total_gbps >= TOTAL_PART * sum(self._planned.values()) or left_gb < REMAINING_S_MIN * total_gbps:
            return None
        clear = [route for route in under if now_s - self._under_since_s[route] >= UNDER_S]
        if not clear:
            return None
        clear.sort(key=lambda route: carried[route] / self._planned[route])
        up = {route.nodes: hops[number]["up"] for number, route in self._routes.items() if number in hops}
        # A route that the lead does not know yet is not down.
        down = frozenset(route for route in clear if not up.get(route, True))
        return SlowRoutes(carried, dict(self._planned), tuple(clear), down)

    def ends_soon(self, progress: Mapping[str, Any]) -> bool:
        """Return whether the rest of what is listed is moved within REMAINING_S_MIN, at the rate seen last."""
        carried = self._rates() if self._seen else None
        left_gb = (progress["bytes_total"] - progress["bytes_done"]) * 8e-9
        return bool(progress.get("listed")) and left_gb <= REMAINING_S_MIN * sum((carried or {}).values())

    def _rates(self) -> dict[tuple[str, ...], float] | None:
        """Return the observed rates; None until the period is long enough."""
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        if last_s - first_s < self._span_s * 0.9:
            return None

        def gbps(number: int, route: PlannedRoute) -> float:
            return (last.get(number, 0) - first.get(number, 0)) * 8e-9 / (last_s - first_s)

        return {route.nodes: gbps(number, route) for number, route in self._routes.items()}
