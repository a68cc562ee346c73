"""Bandwidth that tenants have bought: it is kept for their jobs, beyond their fair shares.

A right is a rate on a resource for some time. The tenant's jobs that start in this time use it first; others get what
is left of the resource's limit. A job that runs when the time ends keeps its rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tradewind.model.records import dataclass, field
from tradewind.service.scheduler.jobs import Resource

__all__ = ["Right", "SoldBandwidth"]


@dataclass
class Right:
    """A rate that a tenant has bought, and the rates of the jobs that started since and use it, by their ids."""

    rate_gbps: float
    since_s: float
    until_s: float
    used: dict[str, float] = field(default_factory=dict)

    @property
    def left_gbps(self) -> float:
        """Bandwidth that further jobs may use."""
        return max(0.0, self.rate_gbps - sum(self.used.values()))


class SoldBandwidth:
    """The rights on all resources, by tenant. A tenant has at most one right on a resource."""

    def __init__(self) -> None:
        self._rights: dict[Resource, dict[str, Right]] = {}

    def add(self, resource: Resource, tenant: str, right: Right) -> None:
        """Add a right; it replaces an earlier one."""
        self._rights.setdefault(resource, {})[tenant] = right

    def end(self, now_s: float) -> list[Resource]:
        """Remove the rights that are over. Return their resources."""
        ended = []
        for resource, tenants in list(self._rights.items()):
            left = {tenant: right for tenant, right in tenants.items() if right.until_s > now_s}
            if len(left) < len(tenants):
                ended.append(resource)
                self._rights[resource] = left
            if not left:
                del self._rights[resource]
        return ended

    def left_gbps(self, resource: Resource, tenant: str) -> float:
        """Return the rate that jobs of a tenant may still use by its right; 0 without one."""
        right = self._rights.get(resource, {}).get(tenant)
        return 0.0 if right is None else right.left_gbps

    def kept_gbps(self, resource: Resource, tenant: str) -> float:
        """Return the rate that is kept for all others than a tenant."""
        others = self._rights.get(resource)
        return sum(right.left_gbps for name, right in others.items() if name != tenant) if others else 0.0

    def until_s(self, resource: Resource) -> float | None:
        """Return when the rights on a resource are over; None without any."""
        rights = self._rights.get(resource)
        return max(right.until_s for right in rights.values()) if rights else None

    def tenants(self, resource: Resource) -> Iterable[str]:
        """Return the tenants that have a right on a resource."""
        return self._rights.get(resource, {})

    def in_force(self, now_s: float) -> Iterator[tuple[Resource, str, Right]]:
        """Yield the rights at a time, with their resources and tenants."""
        for resource, tenants in self._rights.items():
            for tenant, right in tenants.items():
                if right.since_s <= now_s < right.until_s:
                    yield resource, tenant, right

    def start(self, job_id: str, tenant: str, resources: Iterable[Resource], rate_gbps: float, at_s: float) -> None:
        """Count a job that started at `at_s`."""
        for right in self._of(resources, tenant):
            if right.since_s <= at_s < right.until_s:
                right.used[job_id] = rate_gbps

    def stop(self, job_id: str, tenant: str, resources: Iterable[Resource]) -> None:
        """Count a job that ended."""
        for right in self._of(resources, tenant):
            right.used.pop(job_id, None)

    def _of(self, resources: Iterable[Resource], tenant: str) -> list[Right]:
        found = (self._rights[one].get(tenant) for one in resources if one in self._rights)
        return [right for right in found if right is not None]
