"""Metrics for Prometheus: totals of the whole service, never of one tenant."""

from __future__ import annotations

import time
from collections.abc import Iterator

from fastapi import Request
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from starlette.middleware.base import RequestResponseEndpoint
from starlette.responses import Response

from tradewind.service.events import StreamCount
from tradewind.service.jobs import JobQueue

__all__ = ["ServiceMetrics"]


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

    async def count(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Answer a request, and count it by its route."""
        began_s = time.perf_counter()
        response = await call_next(request)
        route = getattr(request.scope.get("route"), "path", "other")
        method = request.method if request.method in ("GET", "POST", "DELETE") else "other"
        self._requests.labels(method, route, str(response.status_code)).inc()
        self._seconds.labels(method, route).observe(time.perf_counter() - began_s)
        return response
