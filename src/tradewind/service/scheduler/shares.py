"""Weighted fair shares of one resource, by tenant and activity.

Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996, section 2): each flow has a tag, the virtual time at which
its next job starts. A job of `bytes` moves the tag by bytes/weight (equation 5), and the lowest tag goes first. The
resource's virtual time is the lowest tag of the flows that wait. A flow that had nothing to send starts at the virtual
time: its unused share went to others, and is not owed to it. Two levels: tenants, and activities within a tenant.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["FairShares", "Weights"]


class Weights:
    """Weights of tenants and of their activities; 1 unless set."""

    def __init__(self) -> None:
        self._tenants: dict[str, float] = {}
        self._activities: dict[tuple[str, str], float] = {}

    def set(self, tenant: str, activity: str | None, weight: float) -> None:
        """Set a weight, which must be above 0."""
        if activity is None:
            self._tenants[tenant] = weight
        else:
            self._activities[tenant, activity] = weight

    def tenant(self, tenant: str) -> float:
        """Return the weight of a tenant."""
        return self._tenants.get(tenant, 1.0)

    def activity(self, tenant: str, activity: str) -> float:
        """Return the weight of an activity among those of its tenant."""
        return self._activities.get((tenant, activity), 1.0)


class Flows:
    """Tags of flows, in bytes per weight, and how many queues of each flow wait."""

    __slots__ = ("backlog", "tags")

    def __init__(self) -> None:
        self.tags: dict[str, float] = {}
        self.backlog: dict[str, int] = {}

    def time(self) -> float:
        """Return the virtual time: the lowest tag of flows that wait, or the highest of all if none waits."""
        if self.backlog:
            return min(self.tags[flow] for flow in self.backlog)
        return max(self.tags.values(), default=0.0)

    def tag(self, flow: str) -> float:
        """Return the virtual time at which the flow's next job starts."""
        return self.tags[flow] if flow in self.backlog else max(self.tags.get(flow, 0.0), self.time())

    def join(self, flow: str) -> None:
        """Add a waiting queue. A flow that had none starts at the virtual time."""
        self.tags[flow] = self.tag(flow)
        self.backlog[flow] = self.backlog.get(flow, 0) + 1

    def leave(self, flow: str) -> None:
        """Remove a waiting queue."""
        self.backlog[flow] -= 1
        if not self.backlog[flow]:
            del self.backlog[flow]

    def charge(self, flow: str, amount: float) -> None:
        """Move a flow's tag."""
        self.tags[flow] = self.tag(flow) + amount


class FairShares:
    """Whose turn it is on one resource."""

    __slots__ = ("_activities", "_tenants", "_weights")

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._tenants = Flows()
        self._activities: dict[str, Flows] = {}

    def order(self, waiting: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return (tenant, activity) pairs, the next turn first."""
        return sorted(waiting, key=self._tags)

    def _tags(self, pair: tuple[str, str]) -> tuple[float, str, float, str]:
        tenant, activity = pair
        flows = self._activities.get(tenant)
        return self._tenants.tag(tenant), tenant, flows.tag(activity) if flows else 0.0, activity

    def lag(self, tenant: str, activity: str) -> tuple[float, float]:
        """Return how far the tenant and its activity are ahead of the virtual time, in bytes per weight."""
        flows = self._activities[tenant]
        return self._tenants.tag(tenant) - self._tenants.time(), flows.tag(activity) - flows.time()

    def join(self, tenant: str, activity: str) -> None:
        """Add a queue that waits and would use the resource."""
        self._tenants.join(tenant)
        self._activities.setdefault(tenant, Flows()).join(activity)

    def leave(self, tenant: str, activity: str) -> None:
        """Remove a queue that `join` added."""
        self._tenants.leave(tenant)
        self._activities[tenant].leave(activity)

    def charge(self, tenant: str, activity: str, size_bytes: float) -> bool:
        """Charge a job that starts, unless nobody waits: an idle resource is free. Return whether it was charged.

        A negative size gives back bytes that were charged and not sent.
        """
        if not self._tenants.backlog:
            return False
        self._tenants.charge(tenant, size_bytes / self._weights.tenant(tenant))
        flows = self._activities.setdefault(tenant, Flows())
        flows.charge(activity, size_bytes / self._weights.activity(tenant, activity))
        return True
