"""A job as the scheduler sees it, the resources that it uses, and its binding to a source and a route."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tradewind.model.records import dataclass

__all__ = [
    "LINK",
    "SITE",
    "STORE_IN",
    "STORE_OUT",
    "TENANT",
    "Binder",
    "Binding",
    "Resource",
    "ServiceJob",
    "resources_of",
]

STORE_IN, STORE_OUT, LINK, SITE, TENANT = "store-in", "store-out", "link", "site", "tenant"


class Resource(NamedTuple):
    """Something that limits and bans apply to. `kind` is one of the constants above."""

    kind: str
    name: str

    def __str__(self) -> str:
        kinds = {STORE_IN: "writes to store", STORE_OUT: "reads from store"}
        return f"{kinds.get(self.kind, self.kind)} {self.name}"


@dataclass(frozen=True)
class ServiceJob:
    """A job that a tenant submitted.

    A higher `priority` goes first; one step is worth `AGEING_S` of waiting. `sources` are stores that each hold all of
    the data. `path` is the object in the destination store, or a prefix if `is_prefix`.
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


@dataclass(frozen=True)
class Binding:
    """How a job can be carried out: its source, links, sites and machines, with their predicted rate and price."""

    source: str
    links: tuple[str, ...]
    sites: tuple[str, ...]
    machines: tuple[str, ...]
    rate_gbps: float
    usd_per_gb: float = 0.0


Binder = Callable[[ServiceJob], Sequence[Binding]]
"""Return the possible bindings of a job, best first. It is called when the job could start, with the latest figures.

At any time, it must return the same for all jobs of one tenant and activity with the same sources, destination and
minimum rate.
"""


def resources_of(job: ServiceJob, binding: Binding) -> tuple[Resource, ...]:
    """Return everything that the job uses with this binding."""
    return (
        Resource(STORE_OUT, binding.source),
        Resource(STORE_IN, job.destination),
        *(Resource(LINK, name) for name in binding.links),
        *(Resource(SITE, name) for name in binding.sites),
        Resource(TENANT, job.tenant),
    )
