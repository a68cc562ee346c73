"""HiGHS, and nothing but HiGHS: one solve of the programme, and the clean-up of its answer.

A solve asks for the best flows and machines with the rate T inside a window, under one of two objectives. The goals
(`goals.py`) are sequences of such solves. After a mixed-integer solve the machines are rounded to the whole numbers
they stand for and the flows are solved once more with these machines fixed, so that no tolerance of the branch and
bound reaches a plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from tradewind.errors import TradewindError
from tradewind.planner.formulation import Formulation, Rows
from tradewind.planner.network import FloatArray, IntArray

__all__ = ["Answer", "Ask", "SolverLimitReached", "SolverSettings", "solve_flows", "solve_machines"]

COST_SCALE = 1e3
"""Costs are handed over in milli-USD/s, so that HiGHS's absolute tolerances (1e-7) stay far below a cent."""
FEASIBILITY_TOLERANCE = 1e-9
INTEGRALITY_SLACK = 1e-5


@dataclass(frozen=True, slots=True)
class SolverSettings:
    """Limits of one solve."""

    time_limit_s: float = 60.0
    """Of one solve. What has been found by then is returned with its gap."""
    relative_gap: float = 1e-7
    """A solve stops when the proven gap is below this."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One question: rate window, objective and, if any, cost ceiling."""

    rate_min_gbps: float
    rate_max_gbps: float
    maximise_rate: bool = False
    """Maximise T; otherwise minimise R − ``usd_per_gbit`` · T, R being the rate of cost [USD/s]."""
    usd_per_gbit: float = 0.0
    """λ of the parametric objective."""
    machine_factor: float = 1.0
    """Weight of machine prices in R; above one where boot time is paid too."""
    ceiling_usd_per_gbit: float | None = None
    """R ≤ ceiling · T."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Flows and whole machines. All figures are of this point, after clean-up."""

    flow_gbps: FloatArray
    """Per link column."""
    machines: IntArray
    """Per option column."""
    objective: float
    bound: float
    """No point is better than this (USD/s, or Gbit/s when the rate was maximised)."""
    optimal: bool
    duals: FloatArray | None = None
    """Per row, of the flow programme with machines fixed; the last two belong to rate window and ceiling."""


class SolverLimitReached(TradewindError):
    """The time limit passed before any plan was found."""


def solve_machines(
    formulation: Formulation, ask: Ask, settings: SolverSettings, *, start: Answer | None = None
) -> Answer | None:
    """Best flows and machines for ``ask``; ``None`` if there are none (proven).

    Raises:
        SolverLimitReached: if time ran out before anything was found.
    """
    if ask.rate_min_gbps > ask.rate_max_gbps:
        return None
    highs = _highs(settings)
    highs.setOptionValue("presolve", "off")  # Halves the median and cuts the worst of these programmes by four.
    _pass_model(highs, formulation, ask, relax=False)
    if start is not None:
        _offer_start(highs, start)
    highs.run()
    status = highs.getModelStatus()
    if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        return None
    info = highs.getInfo()
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        raise SolverLimitReached(
            f"no plan found within {settings.time_limit_s:g} s", hint="name fewer machine types with --vm-type"
        )
    values = np.array(highs.getSolution().col_value)
    raw = values[formulation.link_count :]
    machines = np.rint(raw).astype(np.int64)
    if np.abs(raw - machines).max(initial=0.0) > INTEGRALITY_SLACK:
        machines = np.ceil(raw - INTEGRALITY_SLACK).astype(np.int64)
    bound = _unscaled(info.mip_dual_bound, ask)
    clean = solve_flows(formulation, ask, machines, settings)
    if clean is None:
        # The branch and bound's tolerance let a little more through than these machines carry: its flows stand, and
        # the route writer scales them into the caps.
        flows = np.maximum(values[: formulation.link_count], 0.0)
        return Answer(flows, machines, _objective(formulation, ask, flows, machines), bound, False)
    optimal = status == highspy.HighsModelStatus.kOptimal
    return Answer(clean.flow_gbps, machines, clean.objective, bound, optimal, clean.duals)


def solve_flows(formulation: Formulation, ask: Ask, machines: IntArray, settings: SolverSettings) -> Answer | None:
    """Best flows for ``ask`` with the machines given; a small linear programme. ``None`` if there are none."""
    highs = _highs(settings)
    highs.setOptionValue("primal_feasibility_tolerance", FEASIBILITY_TOLERANCE)
    highs.setOptionValue("dual_feasibility_tolerance", FEASIBILITY_TOLERANCE)
    small, kept = formulation.with_machines_only_at(machines)
    _pass_model(highs, small, ask, relax=True, machines=machines)
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    solution = highs.getSolution()
    flows = np.zeros(formulation.link_count)
    flows[kept] = np.maximum(np.array(solution.col_value)[: small.link_count], 0.0)
    objective = _objective(formulation, ask, flows, machines)
    duals = np.array(solution.row_dual) / (1.0 if ask.maximise_rate else COST_SCALE)
    return Answer(flows, machines, objective, objective, True, duals)


def _highs(settings: SolverSettings) -> Any:
    highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("time_limit", settings.time_limit_s)
    highs.setOptionValue("mip_rel_gap", settings.relative_gap)
    highs.setOptionValue("mip_abs_gap", settings.relative_gap)
    return highs


def _costs(formulation: Formulation, ask: Ask) -> FloatArray:
    costs = np.concatenate([formulation.egress_usd_per_s, formulation.machine_usd_per_s * ask.machine_factor])
    if ask.maximise_rate:
        costs = np.zeros_like(costs)
        costs[formulation.out_of_source] = -1.0
        return costs
    costs[formulation.out_of_source] -= ask.usd_per_gbit
    return costs * COST_SCALE


def _objective(formulation: Formulation, ask: Ask, flows: FloatArray, machines: IntArray) -> float:
    rate = float(flows[formulation.out_of_source].sum())
    if ask.maximise_rate:
        return rate
    machine_usd_per_s = float(formulation.machine_usd_per_s @ machines) * ask.machine_factor
    return float(formulation.egress_usd_per_s @ flows) + machine_usd_per_s - ask.usd_per_gbit * rate


def _unscaled(objective: float, ask: Ask) -> float:
    return -objective if ask.maximise_rate else objective / COST_SCALE


def _window_and_ceiling(formulation: Formulation, ask: Ask) -> Rows:
    """T within the window; R − ceiling · T ≤ 0 (goal 2: linear in F, N and T)."""
    width = formulation.link_count + formulation.option_count
    out = formulation.out_of_source
    row = np.zeros(len(out), dtype=np.int64)
    if ask.ceiling_usd_per_gbit is None:
        return Rows(
            ("rate",), row, out, np.ones(len(out)), np.array([ask.rate_min_gbps]), np.array([ask.rate_max_gbps])
        )
    value = np.concatenate([formulation.egress_usd_per_s, formulation.machine_usd_per_s * ask.machine_factor])
    value[out] -= ask.ceiling_usd_per_gbit
    return Rows(
        ("rate", "cost ceiling"),
        np.concatenate([row, np.ones(width, dtype=np.int64)]),
        np.concatenate([out, np.arange(width)]),
        np.concatenate([np.ones(len(out)), value * COST_SCALE]),
        np.array([ask.rate_min_gbps, -np.inf]),
        np.array([ask.rate_max_gbps, 0.0]),
    )


def _pass_model(
    highs: Any, formulation: Formulation, ask: Ask, *, relax: bool, machines: IntArray | None = None
) -> None:
    extra = _window_and_ceiling(formulation, ask)
    base = formulation.rows
    row = np.concatenate([base.row, extra.row + len(base.names)])
    column = np.concatenate([base.column, extra.column])
    value = np.concatenate([base.value, extra.value])
    order = np.argsort(row, kind="stable")
    row_count = len(base.names) + len(extra.names)
    lp = highspy.HighsLp()
    lp.num_col_ = formulation.link_count + formulation.option_count
    lp.num_row_ = row_count
    lp.col_cost_ = _costs(formulation, ask)
    whole = formulation.machine_max if machines is None else machines.astype(np.float64)
    lower = np.zeros(lp.num_col_)
    if machines is not None:
        lower[formulation.link_count :] = whole
    lp.col_lower_ = lower
    lp.col_upper_ = np.concatenate([formulation.flow_max, whole])
    lp.row_lower_ = np.concatenate([base.lower, extra.lower])
    lp.row_upper_ = np.concatenate([base.upper, extra.upper])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = lp.num_col_, row_count
    lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=row_count))]).astype(np.int32)
    lp.a_matrix_.index_ = column[order].astype(np.int32)
    lp.a_matrix_.value_ = value[order]
    if not relax:
        kinds = [highspy.HighsVarType.kContinuous] * formulation.link_count
        lp.integrality_ = kinds + [highspy.HighsVarType.kInteger] * formulation.option_count
    highs.passModel(lp)


def _offer_start(highs: Any, start: Answer) -> None:
    solution = highspy.HighsSolution()
    solution.col_value = np.concatenate([start.flow_gbps, start.machines.astype(np.float64)])
    highs.setSolution(solution)
