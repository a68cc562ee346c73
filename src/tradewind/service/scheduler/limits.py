"""Limits of resources, and what runs under them: active jobs, rate, and USD per day (UTC)."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable

from tradewind.errors import UsageError
from tradewind.model.records import dataclass
from tradewind.service.scheduler.jobs import RATE_SHARE_MIN, Resource
from tradewind.service.scheduler.sold import SoldBandwidth

__all__ = ["ACTIVE", "DAY_S", "RATE", "ROUNDING", "SOLD", "TUNED", "USD", "Admission", "Limits", "ResourceLimit"]

DAY_S = 86_400
ROUNDING = 1e-9
"""Share of a limit that sums of rates may exceed."""
ACTIVE, RATE, USD = "active jobs", "rate", "cost per day"
SOLD = "rate, because a part of it is sold"
TUNED = "active jobs, as its goodput and errors allow"


@dataclass(frozen=True)
class ResourceLimit:
    """The most that may run on a resource at once, and its cost per day. A limit of 0 closes the resource.

    A job may cost more than the limit of a whole day. It starts on a day without other costs, and the excess counts
    against the days after it.
    """

    active: int | None = None
    rate_gbps: float = math.inf
    usd_per_day: float = math.inf

    def __post_init__(self) -> None:
        if min(self.active or 0, self.rate_gbps, self.usd_per_day) < 0 or math.isnan(self.rate_gbps + self.usd_per_day):
            raise UsageError("a limit is negative or not a number", hint="leave it out to remove the limit")

    @property
    def is_closed(self) -> bool:
        """Return whether it closes the resource."""
        return 0 in (self.active, self.rate_gbps, self.usd_per_day)


@dataclass
class Usage:
    """The use of a resource now, and the cost that counts for today."""

    active: int = 0
    rate_gbps: float = 0.0
    usd: float = 0.0


@dataclass(frozen=True)
class Admission:
    """The answer to a job that wants to start: at `rate_gbps`, unless `resource` has too little of `dimension`."""

    rate_gbps: float = 0.0
    resource: Resource | None = None
    dimension: str = ""


NO_LIMIT = ResourceLimit()


class Limits:
    """The limits of all resources, and their use. All limits of a job's resources apply together."""

    def __init__(self) -> None:
        self._limits: dict[Resource, ResourceLimit] = {}
        self._usage: dict[Resource, Usage] = {}
        self._closed: set[Resource] = set()
        #: Jobs that may run on links at once, as the tuner has decided.
        self._tuned: dict[Resource, int] = {}
        self.sold = SoldBandwidth()
        self._day = 0
        self.has_costs = False

    def set(self, resource: Resource, limit: ResourceLimit) -> None:
        """Set the limit of a resource. Running jobs keep what they have."""
        self._limits[resource] = limit
        if limit.is_closed:
            self._closed.add(resource)
        else:
            self._closed.discard(resource)
        self.has_costs = self.has_costs or limit.usd_per_day < math.inf

    def tune(self, resource: Resource, jobs_max: int) -> None:
        """Set how many jobs may run on a link at once, besides its limit. Running jobs keep what they have."""
        self._tuned[resource] = jobs_max

    def is_full(self, resource: Resource) -> bool:
        """Return whether a link runs as many jobs as it may, by the tuner's decision."""
        return resource in self._tuned and self.usage(resource).active >= self._tuned[resource]

    @property
    def has_closed(self) -> bool:
        """Return whether a limit of 0 closes a resource."""
        return bool(self._closed)

    def closes(self, resource: Resource, rate_gbps_min: float, usd: float) -> bool:
        """Return whether a limit keeps such a job from ever starting, whatever runs."""
        limit = self._limits.get(resource, NO_LIMIT)
        has_no_rate = limit.rate_gbps <= 0 or limit.rate_gbps < rate_gbps_min * (1 - ROUNDING)
        return limit.active == 0 or has_no_rate or (limit.usd_per_day == 0 and usd > 0)

    def has_limit(self, resource: Resource) -> bool:
        """Return whether a limit was set for a resource, or it is a link that is full."""
        return resource in self._limits or self.is_full(resource)

    def has_rate_limit(self, resources: Iterable[Resource]) -> bool:
        """Return whether the rate of one of the resources is limited."""
        return any(self.limit(resource).rate_gbps < math.inf for resource in resources)

    def limit(self, resource: Resource) -> ResourceLimit:
        """Return the limit of a resource."""
        return self._limits.get(resource, NO_LIMIT)

    def usage(self, resource: Resource) -> Usage:
        """Return the use of a resource."""
        if resource not in self._usage:
            self._usage[resource] = Usage()
        return self._usage[resource]

    def admit(
        self,
        resources: Iterable[Resource],
        rate_gbps: float,
        rate_gbps_min: float,
        usd: float,
        tenant: str,
        rate_share_min: float = RATE_SHARE_MIN,
    ) -> Admission:
        """Return the rate at which a job may start, or the first resource that has no room for it.

        It needs `rate_share_min` of `rate_gbps`, or of a lower limit. What its tenant has bought of a resource is
        enough, also if it is a small share of the route's rate.
        """
        resources = tuple(resources)
        # A limit below the route's rate makes the job slower; it does not keep it waiting for ever.
        rate_gbps = min([rate_gbps, *(self.limit(one).rate_gbps or math.inf for one in resources)])
        least = max(rate_gbps_min, rate_gbps * rate_share_min)
        for resource in resources:
            # Bandwidth that was bought is due also on a link that is full.
            if self.is_full(resource) and self.sold.left_gbps(resource, tenant) <= 0:
                return Admission(resource=resource, dimension=TUNED)
            limit = self._limits.get(resource)
            if limit is None:
                continue
            used = self.usage(resource)
            if limit.active is not None and used.active >= limit.active:
                return Admission(resource=resource, dimension=ACTIVE)
            free_gbps, kept_gbps = limit.rate_gbps - used.rate_gbps, self.sold.kept_gbps(resource, tenant)
            bought_gbps = self.sold.left_gbps(resource, tenant)
            enough = max(rate_gbps_min, min(least, bought_gbps)) if bought_gbps > 0 else least
            if not _is_enough(free_gbps - kept_gbps, enough):
                return Admission(resource=resource, dimension=SOLD if _is_enough(free_gbps, enough) else RATE)
            free_gbps -= kept_gbps
            if not self.has_money(resource, usd):
                return Admission(resource=resource, dimension=USD)
            rate_gbps = min(rate_gbps, free_gbps)
        return Admission(rate_gbps=rate_gbps)

    def has_money(self, resource: Resource, usd: float) -> bool:
        """Return whether the day's limit of a resource allows a further cost. One beyond it is the first of its day."""
        used_usd, limit_usd = self.usage(resource).usd, self.limit(resource).usd_per_day
        return used_usd + usd <= limit_usd or (used_usd == 0 and limit_usd > 0)

    def utilisation(self, kinds: Container[str]) -> dict[Resource, float]:
        """Return the used share of each resource of some kinds that runs jobs.

        It is the highest of its jobs and its rate over their limits, and of its jobs over the tuner's decision. It may
        exceed 1 after a limit was lowered.
        """
        found = {}
        for resource, used in self._usage.items():
            if used.active and resource.kind in kinds:
                limit = self.limit(resource)
                pairs = [(used.active, limit.active), (used.active, self._tuned.get(resource))]
                shares = [count / most if most else 1.0 for count, most in pairs if most is not None]
                if limit.rate_gbps < math.inf:
                    shares.append(used.rate_gbps / limit.rate_gbps if limit.rate_gbps else 1.0)
                found[resource] = max(shares, default=0.0)
        return found

    def take(self, resources: Iterable[Resource], rate_gbps: float, usd: float) -> None:
        """Count a job that starts."""
        for resource in resources:
            used = self.usage(resource)
            used.active += 1
            used.rate_gbps += rate_gbps
            used.usd += usd

    def release(self, resources: Iterable[Resource], rate_gbps: float, usd_unspent: float) -> None:
        """Count a job that ended, and give back the part of its cost that was not spent."""
        for resource in resources:
            used = self.usage(resource)
            used.active -= 1
            used.rate_gbps = used.rate_gbps - rate_gbps if used.active else 0.0
            used.usd = max(0.0, used.usd - usd_unspent)

    def spend(self, resources: Iterable[Resource], usd: float) -> None:
        """Count a cost of today that no running job has."""
        for resource in resources:
            self.usage(resource).usd += usd

    def begin_day(self, now_s: float) -> list[Resource]:
        """Start the day of `now_s` if it is a new one. Return the resources that have more to spend than before."""
        days = int(now_s // DAY_S) - self._day
        self._day += max(days, 0)
        freed = []
        for resource, limit in self._limits.items() if days > 0 else ():
            used = self._usage.get(resource)
            if used and used.usd > 0:
                # Without a limit, a day's cost ends with the day.
                spent = limit.usd_per_day * days if limit.usd_per_day else 0.0
                used.usd = max(0.0, used.usd - spent)
                freed.append(resource)
        return freed


def _is_enough(free_gbps: float, least_gbps: float) -> bool:
    return free_gbps > 0 and free_gbps >= least_gbps - ROUNDING * least_gbps
