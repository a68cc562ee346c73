"""Weighted fair shares of one resource, by tenant and activity.

Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996, section 2): each flow has a tag, the virtual time at which
its next job starts. A job of `bytes` moves the tag by bytes/weight (equation 5), and the lowest tag goes first. The
resource's virtual time is the start tag of the job served last. A flow that had nothing to send starts at the virtual
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
    """Tags of flows, and the virtual time that they share. Units are bytes per weight."""

    __slots__ = ("tags", "time")

    def __init__(self) -> None:
        self.tags: dict[str, float] = {}
        self.time = 0.0

    def tag(self, flow: str) -> float:
        """Return the virtual time at which the flow's next job starts."""
        return max(self.tags.get(flow, 0.0), self.time)

    def charge(self, flow: str, amount: float, is_turn: bool) -> None:
        """Move a flow's tag. A job that got its turn here moves the virtual time, too."""
        start = self.tag(flow)
        if is_turn:
            self.time = start
        self.tags[flow] = start + amount

    def refund(self, flow: str, amount: float) -> None:
        """Move a flow's tag back by bytes that were charged and not sent."""
        if flow in self.tags:
            self.tags[flow] -= amount


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

    def charge(self, tenant: str, activity: str, size_bytes: float, is_turn: bool) -> None:
        """Charge a job that starts. `is_turn` says that this resource chose it."""
        self._tenants.charge(tenant, size_bytes / self._weights.tenant(tenant), is_turn)
        flows = self._activities.get(tenant)
        if flows is None:
            flows = self._activities[tenant] = Flows()
        flows.charge(activity, size_bytes / self._weights.activity(tenant, activity), is_turn)

    def refund(self, tenant: str, activity: str, unsent_bytes: float) -> None:
        """Give back the bytes that a stopped or failed job was charged for and did not send."""
        self._tenants.refund(tenant, unsent_bytes / self._weights.tenant(tenant))
        if tenant in self._activities:
            self._activities[tenant].refund(activity, unsent_bytes / self._weights.activity(tenant, activity))
