"""Input of HiGHS and its units: the model of one question, relaxed or with whole machines."""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

from tradewind.model.records import dataclass, field, replace
from tradewind.planner.budget import WORK_MAX, WorkBudget
from tradewind.planner.formulation import BootWindow, Formulation, Rows, Subproblem
from tradewind.planner.network import FloatArray, IntArray

__all__ = [
    "COST_SCALE",
    "WORK_MAX",
    "MilpModel",
    "SolverSettings",
    "WorkBudget",
    "build_model",
    "chosen_options",
    "costs_of",
    "load",
    "new_highs",
    "objective_of",
    "pass_model",
    "quiet_highs",
    "scaled",
    "unscaled",
]

COST_SCALE = 1e3
"""Costs are passed in milli-USD/s, so that HiGHS's absolute tolerances (1e-7) stay far below a cent."""


@dataclass(frozen=True, slots=True)
class SolverSettings:
    """Limits of the answer to one question."""

    time_limit_s: float = 60.0
    """CPU time of one branch and bound by HiGHS for several destinations. The best answer is then returned with its
    gap."""
    relative_gap: float = 1e-7
    """A solve stops when the proven gap is below this."""
    windows_max: int = 24
    """Maximum rate windows with several destinations and paid boot time; after that the gap is reported."""
    work_max: float = WORK_MAX
    """Maximum work of all solves of one question, in the units of `WorkBudget`; beyond it the gap is reported."""
    relaxations_max: int = 500
    """Maximum relaxations of one search for machines. Measured grids took up to 230."""
    budget: WorkBudget = field(default_factory=WorkBudget, compare=False)
    """Work of the current question; each goal starts with a new budget."""
    shared_budget: WorkBudget | None = field(default=None, compare=False)
    """Budget that several questions share, if they belong to one answer."""

    def with_new_budget(self, part: float = 1.0) -> SolverSettings:
        """Return the same limits for another question, with ``part`` of the work."""
        return replace(self, budget=WorkBudget(self.work_max * part, parent=self.shared_budget))


@dataclass(frozen=True, slots=True, eq=False)
class MilpModel:
    """Columns and rows as HiGHS accepts them; plain arrays, so that they can be sent to another process."""

    costs: FloatArray
    """Cost per column, to be minimised."""
    lower: FloatArray
    upper: FloatArray
    row_lower: FloatArray
    row_upper: FloatArray
    row_start: IntArray
    """Start of each row's coefficients, and their number."""
    column: IntArray
    """Column of each coefficient."""
    value: FloatArray
    integer: NDArray[np.bool_] | None
    """For each column, whether it must be a whole number; ``None`` if none must."""


def quiet_highs(relative_gap: float) -> Any:
    """Return a solver on one thread, without output and without limits."""
    highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("mip_rel_gap", relative_gap)
    highs.setOptionValue("mip_abs_gap", relative_gap)
    return highs


def new_highs(settings: SolverSettings) -> Any:
    """Return a solver for linear programs, with the time limit of a question."""
    highs = quiet_highs(settings.relative_gap)
    highs.setOptionValue("time_limit", settings.time_limit_s)
    return highs


def costs_of(formulation: Formulation, subproblem: Subproblem) -> FloatArray:
    """Return the costs per column, as HiGHS minimises them."""
    egress = formulation.egress_usd_per_s * (0.0 if subproblem.machines_only else 1.0)
    costs = np.concatenate([egress, formulation.machine_usd_per_s * subproblem.machine_factor])
    if subproblem.maximise_rate:
        costs = np.zeros_like(costs)
        costs[formulation.out_of_source] = -1.0
        return costs
    costs[formulation.out_of_source] -= subproblem.usd_per_gbit
    return costs * COST_SCALE


def objective_of(formulation: Formulation, subproblem: Subproblem, flows: FloatArray, machines: IntArray) -> float:
    """Return the objective of a point: Gbit/s, or USD/s."""
    rate = float(flows[formulation.out_of_source].sum())
    if subproblem.maximise_rate:
        return rate
    machine_usd_per_s = float(formulation.machine_usd_per_s @ machines)
    egress_usd_per_s = 0.0 if subproblem.machines_only else float(formulation.egress_usd_per_s @ flows)
    boot_usd_per_s = subproblem.boot_usd_per_s(machine_usd_per_s, rate)
    return (
        egress_usd_per_s
        + machine_usd_per_s * subproblem.machine_factor
        + boot_usd_per_s
        - subproblem.usd_per_gbit * rate
    )


def scaled(objective: float, subproblem: Subproblem) -> float:
    """Return an objective as HiGHS minimises it."""
    return -objective if subproblem.maximise_rate else objective * COST_SCALE


def unscaled(objective: float, subproblem: Subproblem) -> float:
    """Return an objective of HiGHS in the units of the model."""
    return -objective if subproblem.maximise_rate else objective / COST_SCALE


def _window_and_ceiling(formulation: Formulation, subproblem: Subproblem) -> Rows:
    """T within the window; R − ceiling · T ≤ 0 (goal 2: linear in F, N and T)."""
    width = formulation.link_count + formulation.option_count
    out = formulation.out_of_source
    row = np.zeros(len(out), dtype=np.int64)
    if subproblem.ceiling_usd_per_gbit is None:
        return Rows(
            ("rate",),
            row,
            out,
            np.ones(len(out)),
            np.array([subproblem.rate_min_gbps]),
            np.array([subproblem.rate_max_gbps]),
        )
    value = np.concatenate([formulation.egress_usd_per_s, formulation.machine_usd_per_s * subproblem.machine_factor])
    value[out] -= subproblem.ceiling_usd_per_gbit
    scale = COST_SCALE / subproblem.machine_factor
    return Rows(
        ("rate", "cost ceiling"),
        np.concatenate([row, np.ones(width, dtype=np.int64)]),
        np.concatenate([out, np.arange(width)]),
        np.concatenate([np.ones(len(out)), value * scale]),
        np.array([subproblem.rate_min_gbps, -np.inf]),
        np.array([subproblem.rate_max_gbps, 0.0]),
    )


def _boot_rows(formulation: Formulation, subproblem: Subproblem, boot: BootWindow) -> Rows:
    """Rows z ≥ β·(a·W + b·T + c) for each plane under W·T; z is the last column, in the units of the costs."""
    first = formulation.link_count
    options = first + np.arange(formulation.option_count)
    out = formulation.out_of_source
    planes = boot.planes(subproblem.rate_min_gbps, subproblem.rate_max_gbps)
    column = np.concatenate([options, out, [first + formulation.option_count]])
    scale = COST_SCALE * boot.per_gbit
    machines = scale * formulation.machine_usd_per_s
    values = [np.concatenate([-a * machines, np.full(len(out), -b * scale), [1.0]]) for a, b, _ in planes]
    return Rows(
        ("boot counted from below", "boot counted from above"),
        np.repeat(np.arange(len(planes)), len(column)),
        np.tile(column, len(planes)),
        np.concatenate(values),
        np.array([c * scale for _, _, c in planes]),
        np.full(len(planes), np.inf),
    )


def _one_type_rows(formulation: Formulation, first: int) -> Rows:
    """N_k − limit · z_k ≤ 0 and Σ_k z_k ≤ 1 over the types of each region; the z are columns from ``first`` on."""
    options = chosen_options(formulation)
    z = first + np.arange(len(options))
    each = np.arange(len(options))
    region = np.repeat(np.arange(len(formulation.choices)), [len(choice) for choice in formulation.choices])
    count = len(options) + len(formulation.choices)
    return Rows(
        tuple(f"machines of type {k} only if chosen" for k in options)
        + tuple(f"one type for choice {number}" for number in range(len(formulation.choices))),
        np.concatenate([each, each, len(options) + region]),
        np.concatenate([formulation.link_count + options, z, z]),
        np.concatenate([np.ones(len(options)), -formulation.machine_max[options], np.ones(len(options))]),
        np.full(count, -np.inf),
        np.concatenate([np.zeros(len(options)), np.ones(len(formulation.choices))]),
    )


def chosen_options(formulation: Formulation) -> IntArray:
    """Return machine columns that exclude each other; each has a column z, which is one if it is the type of its
    region.
    """
    return np.concatenate([np.zeros(0, dtype=np.int64), *formulation.choices])


def _usable(formulation: Formulation, rows: Rows) -> Rows:
    """Return caps limited to the region's fastest link, because one machine's connections carry no more.

    Machines of one type lose nothing by that; a relaxation gains less by mixing types.
    """
    number = {name: row for row, name in enumerate(rows.names)}
    flows = rows.column < formulation.link_count
    per_gbps = np.full(len(rows.names), np.inf)
    np.minimum.at(per_gbps, rows.row[flows], rows.value[flows])
    most = np.full(len(rows.names), np.inf)
    for cap, links in (("egress cap at", "links out of"), ("ingress cap at", "links into")):
        for name, row in number.items():
            if name.startswith(cap):
                most[row] = 1 / per_gbps[number[links + name.removeprefix(cap)]]
    value = np.where(flows, rows.value, np.maximum(rows.value, -most[rows.row]))
    return replace(rows, value=value)


def pass_model(
    highs: Any, formulation: Formulation, subproblem: Subproblem, *, relax: bool, machines: IntArray | None = None
) -> None:
    """Pass the model of a question to HiGHS, as `build_model` writes it."""
    load(highs, build_model(formulation, subproblem, relax=relax, machines=machines))


def build_model(
    formulation: Formulation, subproblem: Subproblem, *, relax: bool, machines: IntArray | None = None
) -> MilpModel:
    """Write the model down: relaxed, with whole machines of one type per region, or with ``machines`` fixed."""
    extra = _window_and_ceiling(formulation, subproblem)
    costs = costs_of(formulation, subproblem)
    if subproblem.boot is not None:
        extra = _boot_rows(formulation, subproblem, subproblem.boot).joined(extra)
        costs = np.append(costs, 1.0)
    boot_columns = len(costs) - formulation.link_count - formulation.option_count
    chosen = np.zeros(0, dtype=np.int64) if relax else chosen_options(formulation)
    if len(chosen):
        extra = _one_type_rows(formulation, len(costs)).joined(extra)
        costs = np.append(costs, np.zeros(len(chosen)))
    base = formulation.rows_so_far()
    if machines is None:
        base = _usable(formulation, base)
    row = np.concatenate([base.row, extra.row + len(base.names)])
    column = np.concatenate([base.column, extra.column])
    value = np.concatenate([base.value, extra.value])
    order = np.argsort(row, kind="stable")
    row_count = len(base.names) + len(extra.names)
    most = formulation.machine_max if machines is None else machines.astype(np.float64)
    lower = np.zeros(len(costs))
    if machines is not None:
        lower[formulation.link_count : formulation.link_count + formulation.option_count] = most
    integer = None
    if not relax:
        integer = np.zeros(len(costs), dtype=np.bool_)
        integer[formulation.link_count : formulation.link_count + formulation.option_count] = True
        integer[len(costs) - len(chosen) :] = True
    return MilpModel(
        costs=costs,
        lower=lower,
        upper=np.concatenate([formulation.flow_max, most, np.full(boot_columns, np.inf), np.ones(len(chosen))]),
        row_lower=np.concatenate([base.lower, extra.lower]),
        row_upper=np.concatenate([base.upper, extra.upper]),
        row_start=np.concatenate([[0], np.cumsum(np.bincount(row, minlength=row_count))]),
        column=column[order],
        value=value[order],
        integer=integer,
    )


def load(highs: Any, model: MilpModel) -> None:
    """Pass a model to HiGHS."""
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(model.costs), len(model.row_lower)
    lp.col_cost_ = model.costs
    lp.col_lower_, lp.col_upper_ = model.lower, model.upper
    lp.row_lower_, lp.row_upper_ = model.row_lower, model.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = lp.num_col_, lp.num_row_
    lp.a_matrix_.start_ = model.row_start.astype(np.int32)
    lp.a_matrix_.index_ = model.column.astype(np.int32)
    lp.a_matrix_.value_ = model.value
    if model.integer is not None:
        kinds = {False: highspy.HighsVarType.kContinuous, True: highspy.HighsVarType.kInteger}
        lp.integrality_ = [kinds[bool(is_integer)] for is_integer in model.integer]
    highs.passModel(lp)
