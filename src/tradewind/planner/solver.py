"""One solve of the model, and the clean-up of its answer.

A solve returns the best flows and machines with the rate T inside a window, for one of two objectives. The goals
(`goals.py`) are sequences of solves. `branch.py` searches machines for one destination; for several, HiGHS's branch
and bound finds them. Then the flows are solved again with whole machines fixed, so that no tolerance of either search
reaches a plan.
"""

from __future__ import annotations

import highspy
import numpy as np

from tradewind.errors import SolverLimitReached
from tradewind.model.records import dataclass, replace
from tradewind.planner.branch import search_machines
from tradewind.planner.formulation import Formulation, RelaxedTrees, SharedFlows, Subproblem
from tradewind.planner.linear import (
    COST_SCALE,
    SolverSettings,
    build_model,
    chosen_options,
    new_highs,
    objective_of,
    pass_model,
    scaled,
    unscaled,
)
from tradewind.planner.milp import CHILD_COLUMNS_MIN, MilpLimits, MilpStatus, solve_in_child, solve_milp
from tradewind.planner.network import FloatArray, IntArray
from tradewind.planner.steiner import Tree

__all__ = [
    "CutoffResult",
    "Solution",
    "SolverSettings",
    "Subproblem",
    "least_relaxed",
    "solve_flows",
    "solve_machines",
    "solve_with_cutoff",
]

FEASIBILITY_TOLERANCE = 1e-9
INTEGRALITY_SLACK = 1e-5
TREE_RATE_SLACK = 1e-7
"""Relative; trees that miss the promised rate by less count as reaching it."""
TINY = 1e-9
WINDOW_SLACK = 1e-8
"""Relative; tolerance for a known answer at the ends of a window of rates."""
WINDOW_SLACK_MAX = 1e-6
"""The same if the search's tolerance accepted more flow than its machines can carry."""
WHOLE_COLUMNS_MAX = 20_000
"""Maximum flow columns of a model with several destinations that is solved whole. On 71 regions with one machine type,
two to three destinations take seconds and are proven optimal; beyond, regions are chosen first and a gap remains."""
FULL_TRY_S = 5.0
"""Time limit for a larger model if the chosen regions have no answer. It seldom finds one in an acceptable time."""
REGIONS_OF_INTEREST_MAX = 14
LATE_ROUNDS_MAX = 12
"""Maximum solves that may each add late rows; then the best answer is returned with its gap."""


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """Flows and whole machines. All figures are of this point, after clean-up."""

    flow_gbps: FloatArray
    """Flow per link column."""
    machines: IntArray
    """Machines per option column."""
    objective: float
    bound: float
    """Bound: no point is better (USD/s, or Gbit/s when the rate was maximised)."""
    optimal: bool
    duals: FloatArray | None = None
    """Dual per row of the flow model with fixed machines; the last two are of rate window and ceiling."""
    trees: tuple[tuple[Tree, float], ...] = ()
    """With several destinations: distribution trees with their rates [Gbit/s], which make up the flows."""


@dataclass(frozen=True, slots=True, eq=False)
class CutoffResult:
    """Result of a search below a cutoff."""

    solution: Solution | None
    """``None`` if nothing better was found."""
    bound: float
    """Bound on all answers. If no better answer exists, the cutoff itself (proven)."""


def solve_machines(
    formulation: Formulation,
    subproblem: Subproblem,
    settings: SolverSettings,
    *,
    start: Solution | None = None,
    cutoff: float | None = None,
) -> Solution | None:
    """Return the best flows and machines for ``subproblem``; ``None`` if none exist (proven).

    Args:
        formulation: what can be used.
        subproblem: the question.
        settings: limits of the solve.
        start: a known answer, returned if no other is better.
        cutoff: objective that an answer must beat (one destination); ``None`` is then also returned if none does.

    Raises:
        SolverLimitReached: if time ran out before anything was found.
    """
    if subproblem.rate_min_gbps > subproblem.rate_max_gbps:
        return None
    if formulation.shared is None:
        return _search(formulation, subproblem, settings, start, cutoff)
    return _solve_with_trees(formulation, formulation.shared, subproblem, settings, start)


def solve_with_cutoff(
    formulation: Formulation, subproblem: Subproblem, settings: SolverSettings, cutoff: float
) -> CutoffResult:
    """Look for an answer that is better than ``cutoff`` (one destination)."""
    found = search_machines(formulation, subproblem, settings, cutoff=scaled(cutoff, subproblem))
    bound = unscaled(found.bound, subproblem)
    if found.machines is None:
        return CutoffResult(None, bound)
    clean = _clean_flows(formulation, subproblem, found.machines, settings)
    return CutoffResult(replace(clean, bound=bound, optimal=found.complete), bound)


def least_relaxed(formulation: Formulation, subproblem: Subproblem, settings: SolverSettings) -> float | None:
    """Return the objective with fractional machines, a bound for all plans; ``None`` if no plan exists."""
    highs = new_highs(settings)
    highs.setOptionValue("presolve", "off")
    pass_model(highs, formulation, subproblem, relax=True)
    highs.run()
    settings.budget.count(max(0, int(highs.getInfo().simplex_iteration_count)), formulation.link_count)
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return unscaled(float(highs.getObjectiveValue()), subproblem)


def _search(
    formulation: Formulation,
    subproblem: Subproblem,
    settings: SolverSettings,
    start: Solution | None,
    cutoff: float | None,
) -> Solution | None:
    """Solve for one destination."""
    known = None if start is None else _reevaluated(formulation, subproblem, start)
    cutoffs = [] if cutoff is None else [cutoff]
    cutoffs += [] if known is None else [known.objective]
    least = min((scaled(objective, subproblem) for objective in cutoffs), default=np.inf)
    found = search_machines(formulation, subproblem, settings, cutoff=least)
    bound = unscaled(found.bound, subproblem)
    if found.machines is not None:
        clean = _clean_flows(formulation, subproblem, found.machines, settings)
        return replace(clean, bound=bound, optimal=found.complete)
    if known is not None and (cutoff is None or _is_better(known, cutoff, subproblem)):
        return replace(known, bound=bound, optimal=found.complete)
    if not found.complete:
        raise SolverLimitReached(
            f"no plan found in {settings.budget.done:.0f} units of work", hint="name fewer machine types with --vm-type"
        )
    return None


def _clean_flows(
    formulation: Formulation, subproblem: Subproblem, machines: IntArray, settings: SolverSettings
) -> Solution:
    """Return the best flows for the machines of the search; widen the window by its tolerance if necessary."""
    for slack in (0.0, WINDOW_SLACK, WINDOW_SLACK_MAX):
        wide = replace(
            subproblem,
            rate_min_gbps=subproblem.rate_min_gbps * (1 - slack),
            rate_max_gbps=subproblem.rate_max_gbps * (1 + slack),
        )
        clean = solve_flows(formulation, wide, machines, settings)
        if clean is not None:
            return clean
    raise SolverLimitReached("the solver's numbers are inconsistent", hint="report this with the problem file")


def _reevaluated(formulation: Formulation, subproblem: Subproblem, start: Solution) -> Solution | None:
    """Return a known answer evaluated for this question; ``None`` if it does not fit."""
    rate = float(start.flow_gbps[formulation.out_of_source].sum())
    if not subproblem.rate_min_gbps * (1 - WINDOW_SLACK) <= rate <= subproblem.rate_max_gbps * (1 + WINDOW_SLACK):
        return None
    if subproblem.ceiling_usd_per_gbit is not None:
        over = replace(subproblem, maximise_rate=False, usd_per_gbit=subproblem.ceiling_usd_per_gbit)
        if objective_of(formulation, over, start.flow_gbps, start.machines) > 0.0:
            return None
    return replace(start, objective=objective_of(formulation, subproblem, start.flow_gbps, start.machines))


def _solve_with_trees(
    formulation: Formulation,
    shared: SharedFlows,
    subproblem: Subproblem,
    settings: SolverSettings,
    start: Solution | None,
) -> Solution | None:
    """Solve for several destinations: a bound and a first answer from the relaxation, then the exact search."""
    relaxed = shared.relax(subproblem, settings.budget)
    if not relaxed.feasible:
        return None
    start = (
        start
        or _rounded_up(formulation, relaxed, subproblem, settings)
        or _direct(formulation, shared, subproblem, settings)
    )
    if formulation.link_count > WHOLE_COLUMNS_MAX:
        return _solve_around_relaxation(formulation, shared, relaxed, subproblem, settings, start)
    return _bounded(_solve_with_late_rows(formulation, subproblem, settings, start), relaxed, subproblem, settings)


def _bounded(
    solution: Solution | None, relaxed: RelaxedTrees, subproblem: Subproblem, settings: SolverSettings
) -> Solution | None:
    """Return an answer with the better of its own bound and the relaxation's."""
    if solution is None:
        return None
    bound = min(solution.bound, relaxed.bound) if subproblem.maximise_rate else max(solution.bound, relaxed.bound)
    met = abs(solution.objective - bound) <= settings.relative_gap * max(abs(bound), abs(solution.objective))
    return replace(solution, bound=bound, optimal=solution.optimal or met)


def _solve_around_relaxation(
    formulation: Formulation,
    shared: SharedFlows,
    relaxed: RelaxedTrees,
    subproblem: Subproblem,
    settings: SolverSettings,
    start: Solution | None,
) -> Solution | None:
    """Solve exactly within the regions that the relaxation uses; its bound gives the gap for all regions."""
    regions = _regions_of_interest(formulation, relaxed.machines, start)
    small, kept = shared.within(formulation, regions)
    small_start = None
    if start is not None and np.count_nonzero(start.flow_gbps) == np.count_nonzero(start.flow_gbps[kept]):
        small_start = replace(start, flow_gbps=start.flow_gbps[kept])
    found = _solve_with_late_rows(small, subproblem, settings, small_start)
    if found is None or (subproblem.maximise_rate and found.objective <= 0.0 < relaxed.bound):
        limited = replace(settings, time_limit_s=min(settings.time_limit_s, FULL_TRY_S))
        return _bounded(_solve_with_late_rows(formulation, subproblem, limited, start), relaxed, subproblem, settings)
    flows = np.zeros(formulation.link_count)
    flows[kept] = found.flow_gbps
    duals = None if found.duals is None else _duals_by_name(formulation, small, found.duals)
    whole = replace(found, flow_gbps=flows, bound=relaxed.bound, optimal=False, duals=duals)
    return _bounded(whole, relaxed, subproblem, settings)


def _rounded_up(
    formulation: Formulation, relaxed: RelaxedTrees, subproblem: Subproblem, settings: SolverSettings
) -> Solution | None:
    """Return a first answer: the relaxation's machines rounded up; all of the strongest type where it mixes types.

    ``None`` if they fail, for example by exceeding a ceiling.
    """
    machines = np.ceil(relaxed.machines - INTEGRALITY_SLACK).astype(np.int64)
    for options in formulation.choices:
        if np.count_nonzero(machines[options]) > 1:
            strongest = max(options, key=lambda k: formulation.network.options[k].egress_gbps)
            machines[options] = 0
            machines[strongest] = int(formulation.machine_max[strongest])
    if formulation.network.exceeds_limits(machines):
        return None
    try:
        return solve_flows(formulation, subproblem, machines, settings)
    except SolverLimitReached:
        return None


def _direct(
    formulation: Formulation, shared: SharedFlows, subproblem: Subproblem, settings: SolverSettings
) -> Solution | None:
    """Return a first answer: the best over the links from the source to each destination. ``None`` if they fail."""
    small, kept = shared.direct(formulation)
    try:
        found = _solve_with_late_rows(small, subproblem, settings, None)
    except SolverLimitReached:
        return None
    if found is None:
        return None
    flows = np.zeros(formulation.link_count)
    flows[kept] = found.flow_gbps
    return replace(found, flow_gbps=flows, duals=None)


def _duals_by_name(formulation: Formulation, small: Formulation, duals: FloatArray) -> FloatArray:
    """Return the duals of a part of the model, per row of the whole: row numbers differ, but names are the same."""
    of_name = dict(zip(small.rows.names, duals, strict=False))  # late rows, rate window and ceiling come last
    return np.array([of_name.get(name, 0.0) for name in formulation.rows.names])


def _regions_of_interest(formulation: Formulation, machines: FloatArray, start: Solution | None) -> frozenset[int]:
    """Return the ends, the regions of a known answer, and those with most machines in the relaxation."""
    used: dict[int, float] = {}
    for k, option in enumerate(formulation.network.options):
        known = float(start.machines[k]) if start is not None else 0.0
        amount = float(machines[k]) + 1e3 * known
        if amount > INTEGRALITY_SLACK:
            used[option.pool] = used.get(option.pool, 0.0) + amount
    ends = {*formulation.sources, *formulation.sink_pools}
    ranked = sorted(set(used) - ends, key=lambda region: -used[region])
    return frozenset({*ends, *ranked[: max(0, REGIONS_OF_INTEREST_MAX - len(ends))]})


def _solve_with_late_rows(
    formulation: Formulation, subproblem: Subproblem, settings: SolverSettings, start: Solution | None
) -> Solution | None:
    best = None if start is None else _reevaluated(formulation, subproblem, start)
    if best is not None:
        best = replace(best, bound=np.inf if subproblem.maximise_rate else -np.inf, optimal=False)
    for _ in range(LATE_ROUNDS_MAX):
        known = _late_count(formulation)
        round_ = _branch_and_bound(formulation, subproblem, settings, best or start)
        if not round_.feasible:
            return best
        if round_.solution is not None and (best is None or _is_better(round_.solution, best.objective, subproblem)):
            best = round_.solution
        if best is not None:
            met = abs(best.objective - round_.bound) <= settings.relative_gap * abs(round_.bound)
            done = met or _late_count(formulation) == known or settings.budget.spent
            best = replace(best, bound=round_.bound, optimal=met or (round_.exact and round_.complete))
            if done:
                return best
        elif settings.budget.spent:
            break
    if best is None:
        raise SolverLimitReached(
            f"no distribution trees found in {settings.budget.done:.0f} units of work",
            hint="plan for fewer destinations at a time, or search longer with --effort",
        )
    return best


@dataclass(frozen=True, slots=True, eq=False)
class _Round:
    """Result of one branch and bound."""

    solution: Solution | None
    """Cleaned answer; ``None`` if its machines violate late rows."""
    bound: float
    feasible: bool
    complete: bool
    """True if it was completed."""
    exact: bool = False
    """True if trees carry the promised rate with the chosen machines."""


def _late_count(formulation: Formulation) -> int:
    late = formulation.shared.rows() if formulation.shared else None
    return 0 if late is None else len(late.names)


def _is_better(solution: Solution, than: float, subproblem: Subproblem) -> bool:
    return solution.objective > than if subproblem.maximise_rate else solution.objective < than


def _branch_and_bound(
    formulation: Formulation, subproblem: Subproblem, settings: SolverSettings, start: Solution | None
) -> _Round:
    """Run one mixed-integer solve with the rows known so far, and find the best flows for its machines."""
    model = build_model(formulation, subproblem, relax=False)
    limits = MilpLimits(settings.budget.left, settings.time_limit_s, settings.relative_gap, formulation.link_count)
    point = None if start is None else _columns_of(formulation, start)
    solve = solve_in_child if len(model.costs) >= CHILD_COLUMNS_MIN else solve_milp
    made = solve(model, point, limits)
    settings.budget.count_search(made.work)
    if made.status is MilpStatus.INFEASIBLE:
        return _Round(None, 0.0, feasible=False, complete=True)
    bound = unscaled(made.found.bound, subproblem)
    values = made.found.values
    if values is None:
        if start is not None:
            return _Round(None, bound, feasible=True, complete=False)
        raise SolverLimitReached(
            f"no plan found in {settings.budget.done:.0f} units of work",
            hint="plan for fewer destinations at a time, or search longer with --effort",
        )
    raw = values[formulation.link_count : formulation.link_count + formulation.option_count]
    machines = np.rint(raw).astype(np.int64)
    if np.abs(raw - machines).max(initial=0.0) > INTEGRALITY_SLACK:
        machines = np.ceil(raw - INTEGRALITY_SLACK).astype(np.int64)
    complete = made.status is MilpStatus.OPTIMAL
    promised = unscaled(made.found.objective, subproblem)
    return _with_trees(formulation, subproblem, settings, machines, _MilpPoint(values, promised, bound, complete))


@dataclass(frozen=True, slots=True, eq=False)
class _MilpPoint:
    """Result of a branch and bound, with its machines."""

    values: FloatArray
    """Values per column."""
    objective: float
    bound: float
    complete: bool


def _with_trees(
    formulation: Formulation, subproblem: Subproblem, settings: SolverSettings, machines: IntArray, promise: _MilpPoint
) -> _Round:
    """Return the best trees for a branch and bound's machines; add a row if they carry less than it promised."""
    bound, complete, shared = promise.bound, promise.complete, formulation.shared
    try:
        clean = solve_flows(formulation, subproblem, machines, settings)
    except SolverLimitReached:
        return _Round(None, bound, feasible=True, complete=False)
    solution = None if clean is None else replace(clean, bound=bound, optimal=complete)
    slack = TREE_RATE_SLACK * max(abs(promise.objective), abs(subproblem.usd_per_gbit) * subproblem.rate_min_gbps, TINY)
    exact = solution is not None and abs(solution.objective - promise.objective) <= slack
    if not exact and shared is not None:
        flows = promise.values[: formulation.link_count]
        found = shared.add_violated(formulation, subproblem, machines, flows, settings.budget)
        exact = solution is not None and not found and not settings.budget.spent
    return _Round(solution, bound, feasible=True, complete=complete, exact=exact)


def solve_flows(
    formulation: Formulation, subproblem: Subproblem, machines: IntArray, settings: SolverSettings
) -> Solution | None:
    """Return the best flows for ``subproblem`` with given machines, by a small linear program; ``None`` if none exist.

    Raises:
        SolverLimitReached: with several destinations, if the work limit was reached before any trees were found.
    """
    if formulation.shared is None:
        return _flows_once(formulation, subproblem, machines, settings)
    found = formulation.shared.flows(formulation, subproblem, machines, settings.budget)
    if found is None:
        return None
    objective = objective_of(formulation, subproblem, found.flow_gbps, machines)
    bound = objective if found.complete else found.bound
    return Solution(found.flow_gbps, machines, objective, bound, found.complete, found.duals, found.trees)


def _flows_once(
    formulation: Formulation, subproblem: Subproblem, machines: IntArray, settings: SolverSettings
) -> Solution | None:
    highs = new_highs(settings)
    highs.setOptionValue("primal_feasibility_tolerance", FEASIBILITY_TOLERANCE)
    highs.setOptionValue("dual_feasibility_tolerance", FEASIBILITY_TOLERANCE)
    small, kept = formulation.with_machines_only_at(machines)
    pass_model(highs, small, subproblem, relax=True, machines=machines)
    highs.run()
    settings.budget.count(max(0, int(highs.getInfo().simplex_iteration_count)), small.link_count)
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    solution = highs.getSolution()
    flows = np.zeros(formulation.link_count)
    flows[kept] = np.maximum(np.array(solution.col_value)[: small.link_count], 0.0)
    objective = objective_of(formulation, subproblem, flows, machines)
    duals = np.array(solution.row_dual) / (1.0 if subproblem.maximise_rate else COST_SCALE)
    return Solution(flows, machines, objective, objective, True, duals)


def _columns_of(formulation: Formulation, start: Solution) -> FloatArray:
    """Return a known answer as a point of the model."""
    chosen = start.machines[chosen_options(formulation)] > 0
    return np.concatenate([start.flow_gbps, start.machines.astype(np.float64), chosen.astype(np.float64)])
