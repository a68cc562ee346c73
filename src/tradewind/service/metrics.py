"""Metrics for Prometheus: totals of the whole service, never of one tenant."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tradewind.service.faults import PARTS, Faults
from tradewind.service.jobs import JobQueue
from tradewind.service.tenant_places import TenantPlaces

__all__ = ["CountedRequests", "ServiceMetrics"]


class _Totals:
    """Collects the jobs in each state, the open streams, and the faults of each part, when they are read."""

    def __init__(self, queue: JobQueue, streams: TenantPlaces, faults: Faults) -> None:
        self._queue, self._streams, self._faults = queue, streams, faults

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges and counters."""
        counts = GaugeMetricFamily("tradewind_service_jobs", "Jobs by state", labels=["state"])
        for state, count in self._queue.count_by_state().items():
            counts.add_metric([state], count)
        yield counts
        yield GaugeMetricFamily("tradewind_service_streams", "Open event streams", value=self._streams.taken)
        faults = CounterMetricFamily("tradewind_service_faults", "Faults of the program by part", labels=["part"])
        failing = GaugeMetricFamily(
            "tradewind_service_failing", "1 if a part has not worked since its latest fault", labels=["part"]
        )
        now = {fault.part for fault in self._faults.failing()}
        for part, count in self._faults.counts().items():
            faults.add_metric([part], count)
        for part in PARTS:
            failing.add_metric([part], part in now)
        yield from (faults, failing)


class ServiceMetrics:
    """The metrics of one server."""

    def __init__(self, queue: JobQueue, streams: TenantPlaces, faults: Faults) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Totals(queue, streams, faults))
        labels = ("method", "route", "status")
        self._requests = Counter("tradewind_service_requests", "Answered requests", labels, registry=self.registry)
        self._seconds = Histogram(
            "tradewind_service_request_seconds",
            "Time to an answer's head [s]",
            ("method", "route"),
            registry=self.registry,
        )

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count an answered request by its route."""
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in ("GET", "POST", "DELETE") else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)


class CountedRequests:
    """ASGI middleware that counts requests. It passes bodies on as they are, so streams cost nothing more."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = time.perf_counter()

        async def count(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.count(scope, message["status"], time.perf_counter() - began_s)
            await send(message)

        await self._app(scope, receive, count)
