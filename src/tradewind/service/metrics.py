"""Metrics for Prometheus: totals of the whole service, never of one tenant."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tradewind.service.events import StreamCount
from tradewind.service.jobs import JobQueue

__all__ = ["CountedRequests", "ServiceMetrics"]


class _Totals:
    """Collects the number of jobs in each state, and of open streams, when they are read."""

    def __init__(self, queue: JobQueue, streams: StreamCount) -> None:
        self._queue, self._streams = queue, streams

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges."""
        counts = GaugeMetricFamily("tradewind_service_jobs", "Jobs by state", labels=["state"])
        for state, count in self._queue.count_by_state().items():
            counts.add_metric([state], count)
        yield counts
        yield GaugeMetricFamily("tradewind_service_streams", "Open event streams", value=self._streams.total)


class ServiceMetrics:
    """The metrics of one server."""

    def __init__(self, queue: JobQueue, streams: StreamCount) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Totals(queue, streams))
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
