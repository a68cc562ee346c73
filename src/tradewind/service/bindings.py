"""Jobs of the service as the scheduler sees them: their stores, links and sites, and the rates that they may get."""

from __future__ import annotations

import json
import math
from collections.abc import Container, Mapping, Sequence
from typing import Any

from tradewind.service.connections import destination_names
from tradewind.service.grid import GridReader
from tradewind.service.job_routes import JobRoutes
from tradewind.service.jobs import JobRow
from tradewind.service.links import link_end, sites_on
from tradewind.service.machines import HERE_ONLY, MachineRules
from tradewind.service.scheduler.events import StartJob
from tradewind.service.scheduler.jobs import RATE_SHARE_MIN, Binding, OwnedPlace, ServiceJob
from tradewind.service.stores import store_and_path, stores_of

__all__ = ["ServiceBinder", "binding_of", "grant_document", "rebound_document", "service_job"]

#: Rate of a link that nothing is known about [Gbit/s].
RATE_GBPS_UNKNOWN = 1.0
#: Size of a job that nothing is known about [bytes].
SIZE_BYTES_UNKNOWN = 1_000_000_000


def service_job(row: JobRow, proven: Container[tuple[str, str]] = (), rules: MachineRules = HERE_ONLY) -> ServiceJob:
    """Return a job as the scheduler sees it. `proven` has the connections that have written, as tenant and name.

    Without a quote, a job that may rent machines counts with its ceiling by the operator's `rules` while it runs.
    """
    source, ends = stores_of(row.request)
    owned = [one for text in row.owned for one in _owned(text)]
    first = next((one for one in owned if one.store == ends[0]), _unlisted(row.request, ends[0]))
    limit, routes = row.request.get("limit_bytes_per_s"), JobRoutes.of_text(row.routes)
    return ServiceJob(
        id=row.id,
        tenant=row.tenant,
        activity=row.request.get("activity", "default"),
        sources=(source,),
        destination=ends[0],
        path=first.path,
        is_prefix=first.is_prefix,
        size_bytes=SIZE_BYTES_UNKNOWN if row.size_bytes is None else row.size_bytes,
        submitted_s=row.created_unix_ms / 1000,
        priority=row.request.get("priority", 0),
        rate_gbps_max=math.inf if limit is None else limit * 8e-9,
        usd=None if row.price_usd_micros is None else row.price_usd_micros / 1e6,
        usd_max=rules.machines_usd_of(row.request),
        also_to=ends[1:],
        also_owns=tuple(one for one in owned if one != first),
        is_proven=all(name is None or (row.tenant, name) in proven for name in destination_names(row.request)),
        links=() if routes is None else routes.links,
        planned_gbps=0.0 if routes is None else routes.rate_gbps,
        # The price of a quote is that of its machines for the time at its rate.
        rate_share_min=RATE_SHARE_MIN if routes is None or row.request.get("quote") is None else 1.0,
    )


def _unlisted(request: Mapping[str, Any], store: str) -> OwnedPlace:
    """Return what a job writes in a store of which its row names no place. Each guest is a host of its own."""
    guest = request.get("guest")
    return OwnedPlace(store, "", True) if guest is None else OwnedPlace(store, guest["guest"], False)


def _owned(text: str) -> list[OwnedPlace]:
    """Return the object or file of a place, and all below it."""
    store, path = store_and_path(text)
    if not path:
        return [OwnedPlace(store, "", True)]
    return [OwnedPlace(store, path, False), OwnedPlace(store, path + "/", True)]


class ServiceBinder:
    """Binds a job to the links of its planned routes, or else to the direct links at the rate of the grid."""

    def __init__(self, grid: GridReader) -> None:
        self._grid = grid

    def __call__(self, job: ServiceJob) -> Sequence[Binding]:
        """Return the only binding of a job."""
        starts, ends = [link_end(name) for name in job.sources], [link_end(name) for name in job.destinations]
        links = job.links or tuple(dict.fromkeys(f"{start}>{end}" for start in starts for end in ends))
        sites = sites_on([*starts, *ends], job.links)
        rate_gbps = job.planned_gbps or min(self._rate_gbps(start, end) for start in starts for end in ends)
        return [Binding(job.sources[0], links, sites, (), rate_gbps)]

    @property
    def version(self) -> int:
        """A number that changes when the bindings may. Raises ConfigError."""
        return self._grid.version()

    def known_gbps(self, start: str, end: str) -> float | None:
        """Return the rate of a link for one pair of machines [Gbit/s]; None if it is not known. Raises ConfigError."""
        return self._grid.rate_gbps(start, end)

    def _rate_gbps(self, start: str, end: str) -> float:
        return self._grid.rate_gbps(start, end) or RATE_GBPS_UNKNOWN


def grant_document(start: StartJob, spent_usd_micros: int, now_ms: int) -> str:
    """Return what a job was started with, and what it was charged for earlier runs, as the database keeps it."""
    one = start.binding
    return json.dumps(
        {
            "source": one.source,
            "links": one.links,
            "sites": one.sites,
            "machines": one.machines,
            "binding_gbps": one.rate_gbps,
            "usd_per_gb": one.usd_per_gb,
            "rate_gbps": start.rate_gbps,
            "is_limited": start.is_limited,
            "requests": None if start.requests is None else start.requests._asdict(),
            "spent_usd_micros": spent_usd_micros,
            "at_unix_ms": now_ms,
        }
    )


def rebound_document(granted: Mapping[str, Any], binding: Binding) -> str:
    """Return what a running job was started with, with the binding that it has now."""
    now = {"links": binding.links, "sites": binding.sites, "binding_gbps": binding.rate_gbps}
    return json.dumps({**granted, **now})


def binding_of(granted: Mapping[str, Any]) -> Binding:
    """Return the binding of a grant."""
    links, sites, machines = (tuple(granted[name]) for name in ("links", "sites", "machines"))
    return Binding(granted["source"], links, sites, machines, granted["binding_gbps"], granted["usd_per_gb"])
