"""Branch and bound over machine counts, with HiGHS for the linear programs below.

The relaxation is nearly integral. Fractions remain only for the few machines that are not fully used, and where a
region mixes several types. One relaxation takes about ten milliseconds; the next one below it, from the same basis,
takes one. HiGHS's own branch and bound spends time on presolve, cuts and heuristics that these models do not need:
rounding machines up gives answers at once. If the work limit of a question (`linear.WorkBudget`) is reached, the
answer reports a gap.
"""

from __future__ import annotations

import heapq
from typing import Any

import highspy
import numpy as np

from tradewind.model.records import dataclass, field
from tradewind.planner.allocation import MachineAllocator
from tradewind.planner.formulation import Formulation, Subproblem
from tradewind.planner.linear import SolverSettings, new_highs, objective_of, pass_model, scaled
from tradewind.planner.network import FloatArray, IntArray

__all__ = ["Search", "search_machines"]

ITERATIONS_MAX = 3000
"""Maximum simplex iterations of one relaxation, against cycling. The first takes hundreds, later ones a few."""
WHOLE = 1e-7
"""Machines nearer than this to a whole number are that number."""
REDUCED_COST_MIN = 1e-9
SMALLER = 0.7
"""Share of remaining links below which the model is rebuilt without the regions that cannot matter."""
DECIDED = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kInfeasible)
GAP_MIN = 1e-7
"""Absolute, in the units of the model (milli-USD/s or Gbit/s)."""
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """Result of a search, in the units of the model, which is minimised."""

    machines: IntArray | None
    """The best machines; ``None`` if none are better than the cutoff."""
    objective: float
    bound: float
    complete: bool
    """True if the bound is within the gap of the best answer or of the cutoff."""


@dataclass(frozen=True, slots=True, eq=False, order=False)
class _Node:
    """A subset of the choices, and its relaxation."""

    bound: float
    number: int
    lower: FloatArray
    upper: FloatArray
    flows: FloatArray
    machines: FloatArray
    reduced_cost: FloatArray
    basis: Any

    def __lt__(self, other: _Node) -> bool:
        return (self.bound, self.number) < (other.bound, other.number)


def search_machines(
    formulation: Formulation, subproblem: Subproblem, settings: SolverSettings, *, cutoff: float
) -> Search:
    """Find the machines of the least objective below ``cutoff`` (in the units of the model)."""
    return _Tree(formulation, subproblem, settings, cutoff).search()


@dataclass(slots=True, eq=False)
class _Tree:
    formulation: Formulation
    subproblem: Subproblem
    settings: SolverSettings
    best: float
    """Objective that an answer must be below."""
    machines: IntArray | None = None
    relaxations: int = 0
    _unresolved: float = np.inf
    """Bound of the parts that could not be searched."""
    _highs: Any = None
    _allocator: Any = None
    _choices: tuple[IntArray, ...] = ()
    _open: list[_Node] = field(default_factory=list)

    def search(self) -> Search:
        """Search best bound first; relax both sides of a branch at once."""
        none = np.zeros(self.formulation.option_count)
        self._begin()
        self._add(none, self.formulation.machine_max, None)
        if self._open:
            upper = self._tightened(self._open[0])
            small, _ = self.formulation.with_machines_only_at(upper.astype(np.int64))
            if small.link_count < SMALLER * self.formulation.link_count:
                self._open.clear()
                self.formulation = small
                self._begin()
                self._add(none, upper, None)
        while self._open and self._open[0].bound < self._worth() and not self._is_exhausted():
            node = heapq.heappop(self._open)
            upper = self._tightened(node)
            parts = self._parted(node, upper)
            if not parts:
                self._unresolved = min(self._unresolved, node.bound)
            for lower, limits in parts:
                self._add(lower, limits, node)
        bound = min([self.best, self._unresolved, *(node.bound for node in self._open[:1])])
        return Search(self.machines, self.best, bound, bound >= self._worth())

    def _begin(self) -> None:
        self._highs = new_highs(self.settings)
        self._highs.setOptionValue("presolve", "off")
        self._highs.setOptionValue("simplex_iteration_limit", ITERATIONS_MAX)
        pass_model(self._highs, self.formulation, self.subproblem, relax=True)
        self._allocator = MachineAllocator(self.formulation)
        self._choices = self.formulation.choices

    def _is_exhausted(self) -> bool:
        return self.relaxations >= self.settings.relaxations_max or self.settings.budget.spent

    def _worth(self) -> float:
        """Return the objective below which a node is worth exploring."""
        if not np.isfinite(self.best):
            return np.inf
        return self.best - max(self.settings.relative_gap * abs(self.best), GAP_MIN)

    def _add(self, lower: FloatArray, upper: FloatArray, parent: _Node | None) -> None:
        """Relax a part, round its machines up, and keep it if it may contain a better answer."""
        relaxed = self._relax(lower, upper, parent)
        if relaxed is None or relaxed.bound >= self._worth():
            return
        self._round_up(relaxed)
        if relaxed.bound < self._worth():
            heapq.heappush(self._open, relaxed)

    def _relax(self, lower: FloatArray, upper: FloatArray, parent: _Node | None) -> _Node | None:
        highs, first = self._highs, self.formulation.link_count
        count = self.formulation.option_count
        highs.changeColsBounds(count, np.arange(first, first + count, dtype=np.int32), lower, upper)
        if parent is not None:
            highs.setBasis(parent.basis)
        self._run()
        if highs.getModelStatus() not in DECIDED:
            # Numerically unstable from that basis: start again with presolve, which may scale the model better.
            highs.clearSolver()
            highs.setOptionValue("presolve", "on")
            self._run()
            highs.setOptionValue("presolve", "off")
        status = highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            if status != highspy.HighsModelStatus.kInfeasible:  # Only the parent's bound is known for this part.
                self._unresolved = min(self._unresolved, -np.inf if parent is None else parent.bound)
            return None
        solution = highs.getSolution()
        values = np.array(solution.col_value)
        reduced = np.array(solution.col_dual)[first : first + count]
        bound = float(highs.getObjectiveValue())
        machines, flows = values[first : first + count], values[:first]
        return _Node(bound, self.relaxations, lower, upper, flows, machines, reduced, highs.getBasis())

    def _run(self) -> None:
        self._highs.run()
        self.relaxations += 1
        iterations = max(0, int(self._highs.getInfo().simplex_iteration_count))
        self.settings.budget.count(iterations, self.formulation.link_count)

    def _round_up(self, node: _Node) -> None:
        """Try whole machines that carry the same flows; a cost ceiling needs another solve."""
        machines = self._allocator.cheapest_for(node.flows, node.machines)
        if machines is None:
            return
        if self.subproblem.ceiling_usd_per_gbit is None:
            objective = scaled(objective_of(self.formulation, self.subproblem, node.flows, machines), self.subproblem)
        else:
            whole = self._relax(machines, machines, node)
            if whole is None:
                return
            objective = whole.bound
        if np.isfinite(objective) and objective < self.best:
            self.best, self.machines = objective, machines.astype(np.int64)

    def _tightened(self, node: _Node) -> FloatArray:
        """Return upper limits without the machines whose reduced cost alone would make an answer too expensive."""
        room = self._worth() - node.bound
        if not np.isfinite(room):
            return node.upper
        dear = (node.reduced_cost > REDUCED_COST_MIN) & (node.machines <= node.lower + WHOLE)
        more = np.full(len(dear), np.inf)
        more[dear] = np.maximum(0.0, np.floor(room / node.reduced_cost[dear] + ROUNDING))
        limits: FloatArray = np.minimum(node.upper, node.lower + more)
        return limits

    def _parted(self, node: _Node, upper: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """Return the bounds of two parts: this machine type or another if a region's type is open; else fewer or more.

        Splits at the largest cost. Returns nothing if all machines are whole and each region has one type.
        """
        prices = np.maximum(self.formulation.machine_usd_per_s, REDUCED_COST_MIN)
        used = np.where(node.machines > WHOLE, node.machines, 0.0)
        fraction = np.abs(used - np.rint(used))
        fraction[fraction < WHOLE] = 0.0
        worth = fraction * prices
        option = int(np.argmax(worth))
        rivals = max(self._rivals(used * prices), key=lambda of: float(of[1]), default=None)
        if rivals is not None and rivals[1] >= worth[option]:
            chosen = rivals[0]
            without = upper.copy()
            without[chosen] = 0.0
            return [(node.lower, self._alone(chosen, upper)), (node.lower, without)]
        if worth[option] <= 0.0:
            return []
        raised, lowered = node.lower.copy(), upper.copy()
        raised[option] = np.ceil(node.machines[option])
        lowered[option] = np.floor(node.machines[option])
        return [(raised, self._alone(option, upper)), (node.lower, lowered)]

    def _rivals(self, usd_per_s: FloatArray) -> list[tuple[int, float]]:
        """Return where a relaxation mixes types: the type with the highest cost, and the cost of the region."""
        found = []
        for options in self._choices:
            here = usd_per_s[options]
            if np.count_nonzero(here) > 1:
                found.append((int(options[np.argmax(here)]), float(here.sum())))
        return found

    def _alone(self, option: int, upper: FloatArray) -> FloatArray:
        """Return these limits without other types in the region of ``option``."""
        limits: FloatArray = upper.copy()
        for options in self._choices:
            if option in options:
                limits[options[options != option]] = 0.0
        return limits
