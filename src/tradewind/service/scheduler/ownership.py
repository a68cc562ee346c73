"""Ownership of destinations: jobs that may write to the same object run one after the other, as they were submitted.

So the last submission wins, as its tenant expects. Paths are compared as strings: the prefix `a/b` covers `a/bc`, too.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection

from tradewind.service.scheduler.jobs import OwnedPlace, ServiceJob

__all__ = ["Ownership"]


class StoreClaims:
    """The claims on one store: sorted by path, and the lengths of all prefixes."""

    def __init__(self) -> None:
        self.paths: list[tuple[str, str, bool]] = []
        self.prefixes: dict[str, set[str]] = {}
        self.lengths: Counter[int] = Counter()

    def overlapping(self, path: str, is_prefix: bool) -> set[str]:
        """Return the jobs whose claims overlap a path or prefix."""
        found: set[str] = set()
        for length in self.lengths:
            if length <= len(path):
                found |= self.prefixes.get(path[:length], set())
        at = bisect_left(self.paths, (path,))
        while at < len(self.paths) and self.paths[at][0].startswith(path):
            other, job_id, _ = self.paths[at]
            if not is_prefix and other != path:
                break
            found.add(job_id)
            at += 1
        return found

    def add(self, job_id: str, place: OwnedPlace) -> None:
        insort(self.paths, (place.path, job_id, place.is_prefix))
        if place.is_prefix:
            self.prefixes.setdefault(place.path, set()).add(job_id)
            self.lengths[len(place.path)] += 1

    def remove(self, job_id: str, place: OwnedPlace) -> None:
        del self.paths[bisect_left(self.paths, (place.path, job_id, place.is_prefix))]
        if place.is_prefix:
            owners = self.prefixes[place.path]
            owners.discard(job_id)
            if not owners:
                del self.prefixes[place.path]
            self.lengths[len(place.path)] -= 1
            if not self.lengths[len(place.path)]:
                del self.lengths[len(place.path)]


class Ownership:
    """Record of the jobs that each job waits for before it may write."""

    def __init__(self) -> None:
        self._stores: dict[str, StoreClaims] = {}
        self._earlier: dict[str, set[str]] = {}
        self._later: dict[str, set[str]] = {}

    def claim(self, job: ServiceJob, yields: Callable[[str], bool] = lambda _: False) -> bool:
        """Add a job after all earlier ones but those that yield to it. Return whether it may write now."""
        places = set(job.owned)
        earlier: set[str] = set()
        for place in places:
            claims = self._stores.setdefault(place.store, StoreClaims())
            earlier |= claims.overlapping(place.path, place.is_prefix)
        for place in places:
            self._stores[place.store].add(job.id, place)
        earlier = {other for other in earlier if not yields(other)}
        self._earlier[job.id] = earlier
        for other in earlier:
            self._later.setdefault(other, set()).add(job.id)
        return not earlier

    def release(self, job: ServiceJob) -> list[str]:
        """Remove a job. Return the jobs that may write now, in the order of their ids."""
        if job.id not in self._earlier:
            return []
        for place in set(job.owned):
            self._stores[place.store].remove(job.id, place)
        for other in self._earlier.pop(job.id):
            self._later[other].discard(job.id)
        freed = []
        for other in self._later.pop(job.id, ()):
            self._earlier[other].discard(job.id)
            if not self._earlier[other]:
                freed.append(other)
        return sorted(freed)

    def later(self, job_id: str) -> Collection[str]:
        """Return the jobs that wait for this one."""
        return self._later.get(job_id, ())

    def owners(self, job_id: str) -> set[str]:
        """Return the jobs that this one waits for."""
        return self._earlier.get(job_id, set())
