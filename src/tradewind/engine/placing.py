"""Placement of split proxies from a problem file or a flows file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.engine.flows import problem_document, proxy_regions
from tradewind.errors import ConfigError, UsageError
from tradewind.model.document import read_json
from tradewind.model.files import write_user_file
from tradewind.model.flows import FlowsFile, read_flows
from tradewind.model.records import dataclass, replace
from tradewind.placement.advice import Ends, tuned, with_tcp_rates
from tradewind.placement.explain import reasons_of
from tradewind.placement.paths import DIRECT, paths_of
from tradewind.placement.place import place
from tradewind.placement.plan import PlacementPlan
from tradewind.placement.problem import PlacementProblem, problem_from_document
from tradewind.render.placement import PlacementReport

if TYPE_CHECKING:
    from tradewind.model.catalog import Catalog
    from tradewind.model.sites import Sites

__all__ = ["PlacementWish", "checked_limit_s", "place_flows", "place_problem"]

STANDARD_INPUT, STANDARD_INPUT_FILE = Path("-"), Path("/dev/stdin")
FORMAT = "docs/reference/placement-problem.md describes the format"
#: Budgets of the frontier, as parts of the problem's.
FRONTIER_PARTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 3.0)
ONE_DOLLAR_CENTS = 100.0
TIME_LIMIT_S_MAX = 86_400.0


@dataclass(frozen=True, slots=True)
class PlacementWish:
    """How to place, and what to report; see `Engine.place`."""

    algorithm: str = "auto"
    time_limit_s: float | None = None
    explain: bool = False
    frontier: bool = False


def place_problem(path: Path, wish: PlacementWish) -> PlacementReport:
    """Return the placement of a problem file; errors are those of `Engine.place`."""
    checked_limit_s(wish.time_limit_s)
    return _report(_read(path), wish)


def place_flows(
    path: Path, wish: PlacementWish, catalog: Catalog, sites: Sites | None, problem_file: Path | None = None
) -> PlacementReport:
    """Return the placement of a flows file; arguments and errors are those of `Engine.place_flows`."""
    checked_limit_s(wish.time_limit_s)
    flows, place = read_flows(path), str(path)
    document = problem_document(flows, catalog, proxy_regions(flows, catalog, sites, place), place)
    problem = problem_from_document(document, place)
    if problem_file is not None:
        write_user_file(problem_file, (json.dumps(document, indent=1) + "\n").encode())
    return replace(_report(problem, wish), tuned_total_fct_s=_tuned_s(problem, flows))


def _tuned_s(problem: PlacementProblem, flows: FlowsFile) -> float:
    """Return the time of all flows together without proxies, if both ends of each are tuned, which is free."""
    ends = [tuned(Ends(problem.edge_window_of(flow), flow.congestion_control)) for flow in problem.flows]
    direct = paths_of(with_tcp_rates(problem, flows.flows, ends)).fct_s[:, DIRECT]
    return float(direct.sum())


def checked_limit_s(limit_s: float | None) -> float | None:
    """Return the time limit of a placement. Raises UsageError if it is out of range."""
    if limit_s is not None and not 0 < limit_s <= TIME_LIMIT_S_MAX:
        raise UsageError(f"a time limit is more than 0 s and at most a day, not {limit_s:g} s")
    return limit_s


def _report(problem: PlacementProblem, wish: PlacementWish) -> PlacementReport:
    plan = place(problem, wish.algorithm, wish.time_limit_s)
    report = PlacementReport(plan)
    if wish.explain:
        richer = replace(problem, budget_cents=problem.budget_cents + ONE_DOLLAR_CENTS)
        next_dollar = place(richer, wish.algorithm, wish.time_limit_s)
        report = replace(report, reasons=reasons_of(plan, problem), next_dollar=next_dollar)
    if wish.frontier:
        report = replace(report, frontier=_frontier(problem, plan, wish.algorithm, wish.time_limit_s))
    return report


def _frontier(
    problem: PlacementProblem, plan: PlacementPlan, algorithm: str, time_limit_s: float | None
) -> tuple[PlacementPlan, ...]:
    """Return plans for budgets around the problem's. A plan is never worse than that of a smaller budget."""
    found: list[PlacementPlan] = []
    for part in FRONTIER_PARTS:
        budget_cents = problem.budget_cents * part
        made = plan if part == 1.0 else place(replace(problem, budget_cents=budget_cents), algorithm, time_limit_s)
        if found and found[-1].total_fct_s < made.total_fct_s:
            made = replace(found[-1], budget_cents=budget_cents, gap=_gap_to(made, found[-1].total_fct_s))
        found.append(made)
    return _without_repetition(found)


def _gap_to(plan: PlacementPlan, total_s: float) -> float | None:
    """Return the gap of a smaller total to the bound that a plan proves."""
    return None if plan.gap is None else max(0.0, 1 - plan.total_fct_s * (1 - plan.gap) / total_s)


def _without_repetition(plans: Sequence[PlacementPlan]) -> tuple[PlacementPlan, ...]:
    """Return plans without those that no larger budget has improved any more."""
    least_s = plans[-1].total_fct_s
    first = next(number for number, plan in enumerate(plans) if plan.total_fct_s <= least_s)
    return tuple(plans[: first + 1])


def _read(path: Path) -> PlacementProblem:
    place, source = ("standard input", STANDARD_INPUT_FILE) if path == STANDARD_INPUT else (str(path), path)
    try:
        return problem_from_document(read_json(source), place)
    except FileNotFoundError:
        raise ConfigError(f"{place}: no such file", hint=FORMAT) from None
    except OSError as error:
        raise ConfigError(f"{place}: {error.strerror}", hint=FORMAT) from None
    except ConfigError as error:
        error.hint = error.hint or FORMAT
        raise
    except ValueError as error:
        raise ConfigError(f"{place}: not JSON: {error}", hint=FORMAT) from None
