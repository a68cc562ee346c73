"""The application: the API on a database, an engine, and a runner of jobs."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware.base import BaseHTTPMiddleware

from tradewind._version import __version__
from tradewind.service.api import bans, grid, health, jobs, limits, market, money, quotes, receipts, schedules, tenants
from tradewind.service.bounded import BoundedBodies
from tradewind.service.claims import ClaimTable
from tradewind.service.database import ServiceDatabase
from tradewind.service.events import StreamCount
from tradewind.service.grid import GridReader
from tradewind.service.jobs import JobQueue
from tradewind.service.limits import REFUSED_BURST, REFUSED_PER_S, REQUESTS_BURST, REQUESTS_PER_S
from tradewind.service.metrics import ServiceMetrics
from tradewind.service.problems import add_handlers
from tradewind.service.quotes import QuoteMaker
from tradewind.service.rates import Rates
from tradewind.service.receipt_key import ReceiptKey
from tradewind.service.runner import JobRunner
from tradewind.service.settings import ServiceSettings

__all__ = ["Service", "create_app"]


class Service:
    """What the requests of one server share."""

    def __init__(self, settings: ServiceSettings, database: ServiceDatabase) -> None:
        self.settings, self.database = settings, database
        self.queue = JobQueue(database)
        claims = ClaimTable(database, _replica_id(), settings.jobs_max, settings.lease_s * 1000)
        self.grid = GridReader(settings.engine_state)
        self.runner = JobRunner(database, self.queue, claims, settings, self.grid)
        self.quotes = QuoteMaker(database, self.runner.engine)
        self.receipt_key = ReceiptKey(settings.state)
        self.streams = StreamCount()
        self.metrics = ServiceMetrics(self.queue, self.streams)
        self.rates = Rates(REQUESTS_PER_S, REQUESTS_BURST)
        self.refused = Rates(REFUSED_PER_S, REFUSED_BURST)
        #: Set when the server stops: event streams then end.
        self.is_closing = False


def _replica_id() -> str:
    """Return an id that no other server has, nor an earlier one."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def create_app(service: Service) -> FastAPI:
    """Return the application. Its jobs run from its start to its end."""

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        service.runner.start()
        yield
        service.is_closing = True
        service.runner.close()

    problem = {"description": "A problem document.", "content": {"application/problem+json": {}}}
    app = FastAPI(
        title="Tradewind transfer service",
        version=__version__,
        lifespan=running,
        docs_url=None,
        redoc_url=None,
        responses={"default": problem, 422: problem},
    )
    app.state.service = service
    add_handlers(app)
    for part in (health, jobs, schedules, receipts, quotes, money, grid, market, limits, bans, tenants):
        app.include_router(part.router)
    app.add_middleware(BoundedBodies)
    app.add_middleware(BaseHTTPMiddleware, dispatch=service.metrics.count)
    return app
