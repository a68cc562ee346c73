"""The relaxation of a placement: its bound, and the columns that a better placement could use.

Small problems are solved with all columns. Large ones begin with a few columns per flow, and add those that the prices
of the answer make attractive (column generation). Each round gives a valid bound, so it can stop at any time.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tradewind.model.records import dataclass, replace
from tradewind.placement.deadline import CpuDeadline
from tradewind.placement.model import Columns, CountModel, Duals, columns_of, lagrangian_bound, priced
from tradewind.placement.paths import DIRECT, Paths
from tradewind.placement.problem import FloatArray

__all__ = ["COLUMNS_MAX", "Relaxation", "reduced_costs", "relax"]

COLUMNS_MAX = 40_000
"""Most columns of a model that is solved at once: 100 flows of 20 regions."""
COLUMNS_PER_FLOW = 6
"""Columns of each flow at the start, and the most that a round adds."""
ROUNDS_MAX = 60
ATTRACTIVE_S = -1e-7
"""A column is added if it shortens the total by more than this, at the prices of the present answer."""
GAIN_MIN = 1e-9
"""Relative; paths that end a flow earlier by less are left out."""


@dataclass(frozen=True, slots=True, eq=False)
class Relaxation:
    """The best relaxation that was found, and its columns."""

    bound_s: float
    """No placement has a smaller total completion time."""
    duals: Duals | None
    """The best prices; None if no relaxation was solved."""
    priced_s: float
    """The bound that these prices prove. Others may prove a better `bound_s`."""
    columns: Columns


def relax(paths: Paths, deadline: CpuDeadline) -> Relaxation:
    """Solve the relaxation until a deadline. Without time, the bound is that of the fastest paths."""
    least_s = float(paths.fct_s.min(axis=1).sum()) if len(paths.fct_s) else 0.0
    useful = paths.gain_s > GAIN_MIN * paths.fct_s[:, :1]
    kept = useful if useful.sum() <= COLUMNS_MAX else _best_of_each(paths.gain_s, useful)
    best = Relaxation(least_s, None, least_s, columns_of(paths, kept))
    for _ in range(ROUNDS_MAX):
        duals = None if deadline.is_over else CountModel(paths, best.columns, whole=False).duals(deadline)
        if duals is None:
            break
        bound_s = lagrangian_bound(paths, duals)
        best_duals = duals if bound_s > best.bound_s else best.duals
        bound_s = max(bound_s, best.bound_s)
        best = Relaxation(bound_s, best_duals, bound_s, best.columns)
        priced_s = priced(paths, duals)
        now_s = np.where(_with_direct(kept), priced_s, math.inf).min(axis=1, keepdims=True)
        fresh = _best_of_each(now_s - priced_s, useful & ~kept & (priced_s - now_s < ATTRACTIVE_S))
        if not fresh.any():
            break
        kept = kept | fresh
        best = replace(best, columns=columns_of(paths, kept))
    return best


def reduced_costs(paths: Paths, duals: Duals) -> FloatArray:
    """Return by how much the bound rises at least if a flow takes a path, by flow and path [s]."""
    priced_s = priced(paths, duals)
    costs_s: FloatArray = priced_s - priced_s.min(axis=1, keepdims=True)
    return costs_s


def _with_direct(flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    every: NDArray[np.bool_] = flags.copy()
    every[:, DIRECT] = True
    return every


def _best_of_each(value: FloatArray, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return flags of the paths of each flow with the highest values, COLUMNS_PER_FLOW at most."""
    ranked = np.where(allowed, value, -math.inf)
    count = min(COLUMNS_PER_FLOW, ranked.shape[1])
    best = np.argpartition(-ranked, count - 1, axis=1)[:, :count]
    flags = np.zeros_like(allowed)
    np.put_along_axis(flags, best, True, axis=1)
    flags[:, DIRECT] = False
    chosen: NDArray[np.bool_] = np.logical_and(flags, allowed)
    return chosen
