"""Ownership of destinations: jobs that may write to the same object run one after the other, as they were submitted.

So the last submission wins, as its tenant expects. Paths are compared as strings: the prefix `a/b` covers `a/bc`, too.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import product

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


def _overlap(one: OwnedPlace, two: OwnedPlace) -> bool:
    if one.store != two.store:
        return False
    is_below = one.is_prefix and two.path.startswith(one.path)
    return is_below or one.path == two.path or (two.is_prefix and one.path.startswith(two.path))


class Ownership:
    """Record of the jobs that each job waits for before it may write.

    Many jobs may write to one place. So a job that another one of them waits for is left out: with `n` jobs on a place
    there are about `n` pairs, and not `n` squared.
    """

    def __init__(self) -> None:
        self._stores: dict[str, StoreClaims] = {}
        self._places: dict[str, set[OwnedPlace]] = {}
        self._numbers: dict[str, int] = {}
        self._count = 0
        #: The jobs that a job waits for, without those that one of them waits for and overlaps; and the reverse.
        self._earlier: dict[str, set[str]] = {}
        self._later: dict[str, set[str]] = {}
        #: The job that was added last, with all that it waits for, and a first one that jobs wait for. Until a release.
        self._newest: tuple[str, set[str]] = ("", set())
        self._first: dict[str, str] = {}

    def claim(self, job: ServiceJob, yields: Callable[[str], bool] = lambda _: False) -> bool:
        """Add a job after all earlier ones but those that yield to it. Return whether it may write now."""
        places = set(job.owned)
        earlier = {other for other in self._overlapping(places) if not yields(other)}
        for place in places:
            self._stores.setdefault(place.store, StoreClaims()).add(job.id, place)
        self._count += 1
        self._places[job.id], self._numbers[job.id] = places, self._count
        self._earlier[job.id] = set()
        self._wait(job.id, earlier)
        self._newest = job.id, earlier
        return not earlier

    def release(self, job: ServiceJob) -> list[str]:
        """Remove a job. Return the jobs that may write now, in the order of their ids."""
        if job.id not in self._earlier:
            return []
        following = self._later.get(job.id, set())
        # Those after this job still wait for what it waited for.
        waited = {other: self.owners(other) - {job.id} for other in following} if self._earlier[job.id] else {}
        self._newest, self._first = ("", set()), {}
        for place in self._places.pop(job.id):
            self._stores[place.store].remove(job.id, place)
        del self._numbers[job.id]
        for other in self._earlier.pop(job.id):
            self._later[other].discard(job.id)
        freed = []
        for other in self._later.pop(job.id, ()):
            self._earlier[other].discard(job.id)
            self._wait(other, waited.get(other, set()))
            if not self._earlier[other]:
                freed.append(other)
        return sorted(freed)

    def later(self, job_id: str) -> Collection[str]:
        """Return the jobs that wait for this one."""
        return self._reached(job_id, self._later)

    def owners(self, job_id: str) -> set[str]:
        """Return the jobs that this one waits for."""
        name, found = self._newest
        return found if name == job_id else self._reached(job_id, self._earlier)

    def first_owner(self, job_id: str) -> str:
        """Return one of the oldest jobs that this one waits for. It must wait."""
        path = [job_id]
        while path[-1] not in self._first and self._earlier[path[-1]]:
            path.append(min(self._earlier[path[-1]], key=self._numbers.__getitem__))
        for waiting, owner in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
            first = self._first.get(owner, owner)
            pairs = product(self._places[waiting], self._places[first])
            self._first[waiting] = first if any(_overlap(one, two) for one, two in pairs) else owner
        return self._first[job_id]

    def pairs(self) -> int:
        """Return the number of pairs of jobs that are kept."""
        return sum(map(len, self._earlier.values()))

    def _overlapping(self, places: Collection[OwnedPlace]) -> set[str]:
        found: set[str] = set()
        for place in places:
            if place.store in self._stores:
                found |= self._stores[place.store].overlapping(place.path, place.is_prefix)
        return found

    def _reached(self, job_id: str, pairs: Mapping[str, set[str]]) -> set[str]:
        """Return the jobs that pairs lead to from one, over any number of others, and that overlap it."""
        if not pairs.get(job_id):
            return set()
        found: set[str] = set()
        left = [job_id]
        while left:
            new = pairs.get(left.pop(), set()) - found
            found |= new
            left.extend(new)
        return found & self._overlapping(self._places[job_id])

    def _wait(self, job_id: str, earlier: Collection[str]) -> None:
        """Let a job wait for earlier ones: for the latest of them, and those that these do not wait for."""
        left = set(earlier)
        for other in sorted(earlier, key=self._numbers.__getitem__, reverse=True):
            if other in left:
                left.discard(other)
                self._earlier[job_id].add(other)
                self._later.setdefault(other, set()).add(job_id)
                if left:
                    left -= self.owners(other)
