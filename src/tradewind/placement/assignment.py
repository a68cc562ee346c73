"""Flows on proxy instances, within the capacity of each instance and the budget."""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.model.records import dataclass
from tradewind.placement.packing import FITS, STEPS_MAX, fewest
from tradewind.placement.paths import DIRECT, Paths

__all__ = ["Assignment", "Fit", "flows_by_region"]


@dataclass(frozen=True, slots=True)
class Fit:
    """How a path could be used: its instance in each of its regions, and what that adds."""

    instances: tuple[tuple[int, int], ...]
    """Region and instance of each proxy. An instance number that is not in use yet means a new instance."""
    new: int
    """Number of new instances."""
    cents: float
    """Marginal cost: egress, and setup of the new instances."""


class Assignment:
    """A path for each flow. It begins with all flows direct, and changes flow by flow.

    `available` is the number of instances that each region may have; it defaults to the problem's limits.
    """

    def __init__(self, paths: Paths, available: Sequence[int] | None = None) -> None:
        problem = paths.problem
        self.paths = paths
        self.available = [region.max_instances for region in problem.regions] if available is None else list(available)
        self.path_of = [DIRECT] * len(problem.flows)
        self.instances_of: list[tuple[tuple[int, int], ...]] = [()] * len(problem.flows)
        self.spent_cents = 0.0
        self._capacity = [region.capacity_mbps * FITS for region in problem.regions]
        self._setup = [region.setup_cents for region in problem.regions]
        self._budget = problem.budget_cents * FITS
        #: Load of each instance, by region, and the number of its flows. An instance without flows costs nothing.
        self._loads: list[list[float]] = [[] for _ in problem.regions]
        self._users: list[list[int]] = [[] for _ in problem.regions]

    def fit(self, flow: int, path: int) -> Fit | None:
        """Return how the flow could take a path; None if a region has no room for it.

        An instance in use is preferred, the first one with room.
        """
        rate_mbps = float(self.paths.rate_mbps[flow, path])
        cents, new = float(self.paths.egress_cents[flow, path]), 0
        chosen = []
        for region in self.paths.regions[path]:
            number = self._room(region, rate_mbps)
            if number is None:
                return None
            if number == len(self._users[region]) or not self._users[region][number]:
                new += 1
                cents += self._setup[region]
            chosen.append((region, number))
        return Fit(tuple(chosen), new, cents)

    def affords(self, cents: float) -> bool:
        """Return whether the budget has so much left."""
        return self.spent_cents + cents <= self._budget

    def missing_cents(self, cents: float) -> float:
        """Return how much of a price the rest of the budget cannot pay."""
        return max(0.0, self.spent_cents + cents - self._budget)

    def without_room(self, flow: int, path: int) -> list[int]:
        """Return the regions of a path that have no room for the flow."""
        rate_mbps = float(self.paths.rate_mbps[flow, path])
        return [region for region in self.paths.regions[path] if self._room(region, rate_mbps) is None]

    def new_regions(self, fit: Fit) -> list[int]:
        """Return the regions in which a fit starts a new instance."""
        return [region for region, number in fit.instances if not self._users_of(region, number)]

    def own_cents(self, flow: int) -> float:
        """Return what is saved if a flow becomes direct: its traffic, and the instances that only it uses."""
        cents = float(self.paths.egress_cents[flow, self.path_of[flow]])
        for region, number in self.instances_of[flow]:
            if self._users[region][number] == 1:
                cents += self._setup[region]
        return cents

    def makes_room(self, flow: int, region: int, rate_mbps: float) -> bool:
        """Return whether the flow's instance in a region has room for a rate if the flow leaves it."""
        for its_region, number in self.instances_of[flow]:
            if its_region == region:
                own_mbps = float(self.paths.rate_mbps[flow, self.path_of[flow]])
                return self._loads[region][number] - own_mbps + rate_mbps <= self._capacity[region]
        return False

    def place(self, flow: int, path: int, fit: Fit) -> None:
        """Let a flow that is direct take a path, as `fit` returned for it."""
        rate_mbps = float(self.paths.rate_mbps[flow, path])
        for region, number in fit.instances:
            while number >= len(self._loads[region]):
                self._loads[region].append(0.0)
                self._users[region].append(0)
            self._loads[region][number] += rate_mbps
            self._users[region][number] += 1
        self.path_of[flow], self.instances_of[flow] = path, fit.instances
        self.spent_cents += fit.cents

    @classmethod
    def packed(
        cls, paths: Paths, path_of: Sequence[int], available: Sequence[int], steps_max: int = STEPS_MAX
    ) -> Assignment | None:
        """Return the assignment in which each flow takes a given path; None if the flows of a region do not fit its
        instances, or if the budget does not suffice. Raises PackingUndecided.
        """
        made = cls(paths, available)
        instances: list[list[tuple[int, int]]] = [[] for _ in path_of]
        for region, flows in flows_by_region(paths, path_of).items():
            rates_mbps = [float(paths.rate_mbps[flow, path_of[flow]]) for flow in flows]
            capacity_mbps = paths.problem.regions[region].capacity_mbps
            places = fewest(rates_mbps, capacity_mbps, made.available[region], steps_max)
            if places is None:
                return None
            for flow, number in zip(flows, places, strict=True):
                instances[flow].append((region, number))
        started: set[tuple[int, int]] = set()
        for flow, path in enumerate(path_of):
            ordered = sorted(instances[flow], key=lambda one: paths.regions[path].index(one[0]))
            fresh = [one for one in ordered if one not in started]
            started.update(fresh)
            cents = float(paths.egress_cents[flow, path]) + sum(made._setup[region] for region, _ in fresh)
            made.place(flow, path, Fit(tuple(ordered), len(fresh), cents))
        return made if made.affords(0.0) else None

    def copy(self) -> Assignment:
        """Return an assignment that changes on its own."""
        other = Assignment.__new__(Assignment)
        other.paths, other.available, other.spent_cents = self.paths, list(self.available), self.spent_cents
        other.path_of, other.instances_of = list(self.path_of), list(self.instances_of)
        other._capacity, other._setup, other._budget = self._capacity, self._setup, self._budget
        other._loads = [list(loads) for loads in self._loads]
        other._users = [list(users) for users in self._users]
        return other

    def release(self, flow: int) -> tuple[int, Fit]:
        """Make a flow direct again. Returns what `place` needs to undo that, if nothing else changes meanwhile."""
        path, instances = self.path_of[flow], self.instances_of[flow]
        rate_mbps, cents = float(self.paths.rate_mbps[flow, path]), float(self.paths.egress_cents[flow, path])
        new = 0
        for region, number in instances:
            self._users[region][number] -= 1
            self._loads[region][number] -= rate_mbps
            if not self._users[region][number]:
                self._loads[region][number] = 0.0
                cents += self._setup[region]
                new += 1
        self.path_of[flow], self.instances_of[flow] = DIRECT, ()
        self.spent_cents -= cents
        return path, Fit(instances, new, cents)

    @property
    def total_fct_s(self) -> float:
        """Sum of the completion times of all flows."""
        fct_s = self.paths.fct_s
        return float(sum(fct_s[flow, path] for flow, path in enumerate(self.path_of)))

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of instances in use, by region."""
        return tuple(sum(users > 0 for users in of_region) for of_region in self._users)

    @property
    def loads_mbps(self) -> dict[tuple[int, int], float]:
        """Load of each instance in use, by region and instance."""
        return {
            (region, number): self._loads[region][number]
            for region, of_region in enumerate(self._users)
            for number, users in enumerate(of_region)
            if users
        }

    def _users_of(self, region: int, number: int) -> int:
        users = self._users[region]
        return users[number] if number < len(users) else 0

    def _room(self, region: int, rate_mbps: float) -> int | None:
        """Return the first instance in use with room, else a new one; None if there is neither."""
        if rate_mbps > self._capacity[region]:
            return None
        most = self._capacity[region] - rate_mbps
        loads, users = self._loads[region], self._users[region]
        unused = None
        for number, load in enumerate(loads):
            if not users[number]:
                unused = number if unused is None else unused
            elif load <= most:
                return number
        used = len(loads) if unused is None else sum(count > 0 for count in users)
        if used >= self.available[region]:
            return None
        return len(loads) if unused is None else unused


def flows_by_region(paths: Paths, path_of: Sequence[int]) -> dict[int, list[int]]:
    """Return the flows whose path has a proxy in each region, by region."""
    found: dict[int, list[int]] = {}
    for flow, path in enumerate(path_of):
        for region in paths.regions[path]:
            found.setdefault(region, []).append(flow)
    return found
