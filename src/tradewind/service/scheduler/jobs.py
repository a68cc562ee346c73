"""A job as the scheduler sees it, the resources that it uses, and its binding to a source and a route."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tradewind.model.records import dataclass

__all__ = [
    "LINK",
    "RATE_SHARE_MIN",
    "SITE",
    "STORE_IN",
    "STORE_OUT",
    "TENANT",
    "TENANT_STORE",
    "Binder",
    "Binding",
    "OwnedPlace",
    "Resource",
    "ServiceJob",
    "resources_of",
    "resources_of_store",
    "store_of_tenant",
]

STORE_IN, STORE_OUT, LINK, SITE, TENANT = "store-in", "store-out", "link", "site", "tenant"
RATE_SHARE_MIN = 0.25
TENANT_STORE = "tenant-store"
"""A store as one tenant reaches it, where jobs wait if it does not answer. It has no limits."""


class Resource(NamedTuple):
    """Something that limits and bans apply to. `kind` is one of the constants above."""

    kind: str
    name: str

    def __str__(self) -> str:
        kinds = {STORE_IN: "writes to store", STORE_OUT: "reads from store"}
        return f"{kinds.get(self.kind, self.kind)} {self.name}"


class OwnedPlace(NamedTuple):
    """A place that a job writes: an object of a store, or all objects whose names begin with `path`."""

    store: str
    path: str
    is_prefix: bool


@dataclass(frozen=True)
class ServiceJob:
    """A job that a tenant submitted.

    A higher `priority` goes first; one step is worth `AGEING_S` of waiting. `sources` are stores that each hold all of
    the data. `path` is the object in the destination store, or a prefix if `is_prefix`.

    A job with several destinations has the others in `also_to`, and the other places that it writes in `also_owns`. It
    needs at least `rate_gbps_min`, and uses at most `rate_gbps_max`. `usd` is its whole cost if that is known, and
    `usd_max` the most that its runs may cost together; without both, the binding's price counts.

    It does not start with less than `rate_share_min` of its binding's rate, or of a lower limit. It waits instead.

    `links` are those of all hops of its routes, with their whole rate `planned_gbps`, if the job was planned already.

    `is_proven` says that the tenant has written to the destinations before. Otherwise it may have no right to, so while
    the job waits, its claims do not hold up other tenants.
    """

    id: str
    tenant: str
    activity: str
    sources: tuple[str, ...]
    destination: str
    path: str
    size_bytes: int
    submitted_s: float
    is_prefix: bool = True
    priority: int = 0
    not_before_s: float = 0.0
    rate_gbps_min: float = 0.0
    rate_gbps_max: float = math.inf
    usd: float | None = None
    usd_max: float | None = None
    also_to: tuple[str, ...] = ()
    also_owns: tuple[OwnedPlace, ...] = ()
    is_proven: bool = True
    links: tuple[str, ...] = ()
    planned_gbps: float = 0.0
    rate_share_min: float = RATE_SHARE_MIN

    @property
    def destinations(self) -> tuple[str, ...]:
        """All stores that the job writes to."""
        return (self.destination, *self.also_to)

    @property
    def owned(self) -> tuple[OwnedPlace, ...]:
        """All places that the job writes."""
        return (OwnedPlace(self.destination, self.path, self.is_prefix), *self.also_owns)

    def cost_usd(self, left_bytes: int, usd_per_gb: float) -> float:
        """Return the cost of what is left of the job. It is corrected when a run has ended."""
        if self.usd is None:
            return left_bytes / 1e9 * usd_per_gb if self.usd_max is None else self.usd_max
        return self.usd * (left_bytes / self.size_bytes if self.size_bytes else 1.0)


@dataclass(frozen=True)
class Binding:
    """How a job can be carried out: its source, links, sites and machines, with their predicted rate and price.

    `links` are those of all hops of all routes. Each is counted once, with the whole rate: bytes take the routes that
    work, so any link may carry all of them.
    """

    source: str
    links: tuple[str, ...]
    sites: tuple[str, ...]
    machines: tuple[str, ...]
    rate_gbps: float
    usd_per_gb: float = 0.0


Binder = Callable[[ServiceJob], Sequence[Binding]]
"""Return the possible bindings of a job, best first. It is called when the job could start, with the latest figures.

At any time, it must return the same for all jobs of one tenant and activity with the same sources, destination, minimum
rate and planned links.
"""


def resources_of(job: ServiceJob, binding: Binding) -> tuple[Resource, ...]:
    """Return everything that the job uses with this binding."""
    return (
        Resource(STORE_OUT, binding.source),
        *(Resource(STORE_IN, name) for name in job.destinations),
        *(Resource(LINK, name) for name in dict.fromkeys(binding.links)),
        *(Resource(SITE, name) for name in dict.fromkeys(binding.sites)),
        Resource(TENANT, job.tenant),
    )


def resources_of_store(store: str) -> list[Resource]:
    """Return both resources of a store: out of it and into it."""
    return [Resource(STORE_OUT, store), Resource(STORE_IN, store)]


def store_of_tenant(store: str, tenant: str) -> Resource:
    """Return a store as a tenant reaches it. Neither of the names has a space."""
    return Resource(TENANT_STORE, f"{tenant} {store}")
