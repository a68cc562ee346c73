"""The application: the API on a database, an engine, and a runner of jobs."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from urllib.parse import quote

from fastapi import FastAPI, Request

from tradewind._version import __version__
from tradewind.errors import StateError
from tradewind.fleet.guests import leave_guests
from tradewind.service.api import (
    bans,
    bids,
    connections,
    fleets,
    grid,
    guests,
    health,
    job_objects,
    job_plans,
    jobs,
    limits,
    links,
    market,
    members,
    money,
    own_console,
    plans,
    quotes,
    receipts,
    rotation,
    schedules,
    sites,
    tenants,
    webhooks,
)
from tradewind.service.auth import Sender
from tradewind.service.bounded import BoundedBodies
from tradewind.service.claims import ClaimTable
from tradewind.service.connections import ConnectionBook
from tradewind.service.console import ConsoleFiles
from tradewind.service.console import router as console
from tradewind.service.courier import Courier
from tradewind.service.database import ServiceDatabase, record_change
from tradewind.service.faults import Faults
from tradewind.service.grid import GridReader
from tradewind.service.job_traces import JobTraces
from tradewind.service.jobs import JobQueue
from tradewind.service.limits import (
    AUDITED_REFUSALS_BURST,
    AUDITED_REFUSALS_PER_S,
    PEER_REQUESTS_AT_ONCE,
    REFUSED_BURST,
    REFUSED_PER_S,
    REQUESTS_BURST,
    REQUESTS_PER_S,
    STREAMS_MAX,
    STREAMS_PER_TENANT_MAX,
    TENANT_REQUESTS_BURST,
    TENANT_REQUESTS_PER_S,
)
from tradewind.service.members import Members
from tradewind.service.metrics import CountedRequests, ServiceMetrics
from tradewind.service.own_console import OwnConsole
from tradewind.service.own_pages import OwnPagesOnly
from tradewind.service.peer_server import PeerServer
from tradewind.service.peers import Peer
from tradewind.service.planning import Planning
from tradewind.service.problems import add_handlers
from tradewind.service.quotes import QuoteMaker
from tradewind.service.rates import Rates
from tradewind.service.receipt_key import ReceiptKey
from tradewind.service.runner import JobRunner
from tradewind.service.sealing import Sealer
from tradewind.service.settings import ServiceSettings
from tradewind.service.stream_watch import StreamWatch
from tradewind.service.tenant_places import TenantPlaces
from tradewind.service.traced_requests import TracedRequests
from tradewind.service.traces import Traces

__all__ = ["Service", "create_app"]

_LOG = logging.getLogger("tradewind.service")
#: Maximum length of a refused request's path in the audit log.
TARGET_LENGTH_MAX = 200


class Service:
    """The objects that all requests of one server share."""

    def __init__(self, settings: ServiceSettings, database: ServiceDatabase, own: OwnConsole | None = None) -> None:
        self.settings, self.database = settings, database
        #: Set for a user's own console.
        self.own = own
        self.traces = None if settings.traces is None else Traces(settings.traces)
        job_traces = None if self.traces is None else JobTraces(database, self.traces)
        self.queue = JobQueue(database, None if job_traces is None else job_traces.moved)
        self.sealer = Sealer.of(settings)
        #: Where other servers pass requests of guests on to this one. `passing` has the threads in which this one does.
        self.peers: PeerServer | None = None
        if settings.is_replica and settings.guest_address is not None:
            self.peers = PeerServer(settings.guest_address, self.sealer)
        self.passing = ThreadPoolExecutor(PEER_REQUESTS_AT_ONCE, thread_name_prefix="passing")
        peer = None if self.peers is None else self.peers.peer.document()
        self.replica_id = _replica_id()
        self._claims = ClaimTable(database, self.replica_id, settings.jobs_max, settings.lease_s * 1000, peer)
        self.grid = GridReader(settings.engine_state)
        self.faults = Faults()
        self.connections = ConnectionBook(database, self.sealer, settings)
        self.runner = JobRunner(
            database, self.queue, self._claims, settings, self.grid, self.connections, self.faults, job_traces
        )
        self.planning = Planning(settings.engine_state)
        self.quotes = QuoteMaker(database, self.runner.engine)
        self.receipt_key = ReceiptKey(settings.state)
        self.streams = TenantPlaces(STREAMS_MAX, STREAMS_PER_TENANT_MAX, "too many open event streams", 5)
        self.watch = StreamWatch(self.queue, self.runner.engine, self.faults)
        self.metrics = ServiceMetrics(self.queue, self.streams, self.faults)
        self.console = ConsoleFiles.load() if own is None else ConsoleFiles.load().marked_own()
        self.rates = Rates(REQUESTS_PER_S, REQUESTS_BURST)
        self.tenant_rates = Rates(TENANT_REQUESTS_PER_S, TENANT_REQUESTS_BURST)
        self.audited = Rates(AUDITED_REFUSALS_PER_S, AUDITED_REFUSALS_BURST)
        self.refused = Rates(REFUSED_PER_S, REFUSED_BURST)
        self.members = None if settings.oidc is None else Members(database, settings.oidc)
        self.courier = Courier(database, self.sealer, settings.webhook_networks, self.faults)
        #: Set when the server stops: event streams then end.
        self.is_closing = False

    def start(self) -> None:
        """Run jobs and send events from now on. Raises StateError."""
        if self.peers is not None:
            self.peers.start(_peer_app(self))
        self.runner.start()
        self.courier.start()

    @property
    def is_alive(self) -> bool:
        """Return whether all long-lived threads of the server live."""
        is_reached = self.peers is None or self.peers.is_alive
        return self.runner.is_alive and self.courier.is_alive and is_reached

    @property
    def jobs_max(self) -> int:
        """Jobs that all running servers may run together. Raises StateError."""
        return self._claims.capacity().jobs_max or self.settings.jobs_max

    def peer_of(self, owner: str | None) -> Peer | None:
        """Return the other server that has a job's lease; None if it is this one, gone, or has no guests."""
        found = None if owner is None else self._claims.peer_of(owner)
        return None if found is None else Peer.from_document(found)

    def close(self) -> None:
        """Drain the running jobs, and end the threads that `start` has begun."""
        self.is_closing = True
        leave_guests()
        if self.peers is not None:
            self.peers.close()
        self.passing.shutdown(wait=False, cancel_futures=True)
        self.planning.close()
        self.runner.close()
        self.courier.close()
        if self.traces is not None:
            self.traces.close()

    def record_refusal(self, request: Request, detail: str) -> None:
        """Record in the sender's audit log that a request was refused, up to a rate."""
        sender: Sender | None = getattr(request.state, "sender", None)
        if sender is None or self.audited.wait_s(sender.token, time.monotonic()) > 0:
            return
        target = f"{request.method} {quote(request.scope['path'])}"[:TARGET_LENGTH_MAX]
        try:
            with self.database.write() as connection:
                record_change(connection, sender.tenant, sender.token, "refused", target, {"reason": detail})
        except StateError as error:
            _LOG.error("audit: %s", error)


def _replica_id() -> str:
    """Return an id that no other server has, nor an earlier one."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def _peer_app(service: Service) -> FastAPI:
    """Return the application for requests of guests that other servers pass on. It passes nothing on."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.service, app.state.passes_on = service, False
    add_handlers(app)
    app.include_router(guests.router)
    app.add_middleware(BoundedBodies)
    return app


def create_app(service: Service) -> FastAPI:
    """Return the application of a service, which the caller starts and closes."""

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.is_closing = True
        await service.watch.close()

    problem = {"description": "A problem document.", "content": {"application/problem+json": {}}}
    app = FastAPI(
        title="Tradewind transfer service",
        version=__version__,
        lifespan=running,
        docs_url=None,
        redoc_url=None,
        # It would lead to http:// behind a proxy with TLS, and clients might send their tokens there.
        redirect_slashes=False,
        responses={"default": problem, 422: problem},
    )
    app.state.service, app.state.passes_on = service, True
    add_handlers(app)
    for part in (
        *(health, jobs, guests, job_objects, job_plans, schedules, receipts, quotes, plans, money, grid, market, bids),
        *(limits, bans, links, fleets, sites, tenants, rotation, members, connections, webhooks),
    ):
        app.include_router(part.router)
    app.include_router(console)
    if service.own is not None:
        app.include_router(own_console.router)
    app.add_middleware(BoundedBodies)
    app.add_middleware(CountedRequests, metrics=service.metrics)
    if service.traces is not None:
        app.add_middleware(TracedRequests, traces=service.traces)
    if service.own is not None:
        app.add_middleware(OwnPagesOnly, address=service.own.address)
    return app
