"""What is handed to HiGHS, and in which units: the programme of one question, relaxed or with whole machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from tradewind.planner.formulation import Ask, Formulation, Rows
from tradewind.planner.network import FloatArray, IntArray

__all__ = ["COST_SCALE", "SolverSettings", "costs_of", "new_highs", "objective_of", "pass_model", "scaled", "unscaled"]

COST_SCALE = 1e3
"""Costs are handed over in milli-USD/s, so that HiGHS's absolute tolerances (1e-7) stay far below a cent."""


@dataclass(frozen=True, slots=True)
class SolverSettings:
    """Limits of one solve."""

    time_limit_s: float = 60.0
    """Of one solve. What has been found by then is returned with its gap."""
    relative_gap: float = 1e-7
    """A solve stops when the proven gap is below this."""
    windows_max: int = 24
    """Rate windows looked at, where boot time is paid, before the remaining gap is reported instead of closed."""


def new_highs(settings: SolverSettings) -> Any:
    """A solver on one thread that says nothing."""
    highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("time_limit", settings.time_limit_s)
    highs.setOptionValue("mip_rel_gap", settings.relative_gap)
    highs.setOptionValue("mip_abs_gap", settings.relative_gap)
    return highs


def costs_of(formulation: Formulation, ask: Ask) -> FloatArray:
    """Per column, as HiGHS minimises them."""
    egress = formulation.egress_usd_per_s * (0.0 if ask.machines_only else 1.0)
    costs = np.concatenate([egress, formulation.machine_usd_per_s * ask.machine_factor])
    if ask.maximise_rate:
        costs = np.zeros_like(costs)
        costs[formulation.out_of_source] = -1.0
        return costs
    costs[formulation.out_of_source] -= ask.usd_per_gbit
    return costs * COST_SCALE


def objective_of(formulation: Formulation, ask: Ask, flows: FloatArray, machines: IntArray) -> float:
    """What a point is worth: Gbit/s, or USD/s."""
    rate = float(flows[formulation.out_of_source].sum())
    if ask.maximise_rate:
        return rate
    machine_usd_per_s = float(formulation.machine_usd_per_s @ machines) * ask.machine_factor
    egress_usd_per_s = 0.0 if ask.machines_only else float(formulation.egress_usd_per_s @ flows)
    return egress_usd_per_s + machine_usd_per_s - ask.usd_per_gbit * rate


def scaled(objective: float, ask: Ask) -> float:
    """An objective as HiGHS minimises it."""
    return -objective if ask.maximise_rate else objective * COST_SCALE


def unscaled(objective: float, ask: Ask) -> float:
    """An objective of HiGHS as it is meant."""
    return -objective if ask.maximise_rate else objective / COST_SCALE


def _window_and_ceiling(formulation: Formulation, ask: Ask) -> Rows:
    """T within the window; R − ceiling · T ≤ a constant (goal 2: linear in F, N and T)."""
    width = formulation.link_count + formulation.option_count
    out = formulation.out_of_source
    row = np.zeros(len(out), dtype=np.int64)
    if ask.ceiling_usd_per_gbit is None:
        return Rows(
            ("rate",), row, out, np.ones(len(out)), np.array([ask.rate_min_gbps]), np.array([ask.rate_max_gbps])
        )
    value = np.concatenate([formulation.egress_usd_per_s, formulation.machine_usd_per_s * ask.machine_factor])
    value[out] -= ask.ceiling_usd_per_gbit
    scale = COST_SCALE / ask.machine_factor
    return Rows(
        ("rate", "cost ceiling"),
        np.concatenate([row, np.ones(width, dtype=np.int64)]),
        np.concatenate([out, np.arange(width)]),
        np.concatenate([np.ones(len(out)), value * scale]),
        np.array([ask.rate_min_gbps, -np.inf]),
        np.array([ask.rate_max_gbps, ask.ceiling_usd_per_s * scale]),
    )


def pass_model(
    highs: Any, formulation: Formulation, ask: Ask, *, relax: bool, machines: IntArray | None = None
) -> None:
    """Hand the programme over: relaxed, with whole machines, or with machines fixed at ``machines``."""
    extra = _window_and_ceiling(formulation, ask)
    base = formulation.rows_so_far()
    row = np.concatenate([base.row, extra.row + len(base.names)])
    column = np.concatenate([base.column, extra.column])
    value = np.concatenate([base.value, extra.value])
    order = np.argsort(row, kind="stable")
    row_count = len(base.names) + len(extra.names)
    lp = highspy.HighsLp()
    lp.num_col_ = formulation.link_count + formulation.option_count
    lp.num_row_ = row_count
    lp.col_cost_ = costs_of(formulation, ask)
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
