"""Planning for a goal: from regions, volume and limits to a plan or to every efficient pair of cost and rate."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from tradewind.catalog.load import catalog_folder, load_catalog
from tradewind.engine.option_values import require_number
from tradewind.engine.topology import topology_document
from tradewind.errors import UsageError
from tradewind.model.catalog import Catalog
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, GoalName, MaxCost, MinThroughput, Soonest
from tradewind.model.network_tier import check_network_tiers
from tradewind.model.overlay import UnicastOverlay
from tradewind.model.reach import unconnected
from tradewind.model.records import replace
from tradewind.model.region import Region
from tradewind.model.sites import Sites
from tradewind.planner.baseline import direct, gridftp
from tradewind.planner.gateways import assign_gateways
from tradewind.planner.multicast import prepare_multicast, solve_multicast
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import Transfer, prepare, solve_overlay
from tradewind.render.plans import MulticastPlan, TransferFrontier, TransferPlan, trace

__all__ = [
    "goal_of_direct",
    "outruns_boot",
    "plan_problem",
    "plan_transfer",
    "planned",
    "planned_multicast",
    "planned_overlay",
    "prepared",
    "read_question",
    "topology_of",
    "trace_frontier",
    "with_effort",
]

_NAMED: Mapping[str, Goal] = {"soonest": Soonest(), "cheapest": Cheapest(), "fastest": Fastest()}

MACHINES_PER_REGION = 8
"""Default for the machines per region."""

EFFORT_MIN, EFFORT_MAX = 0.1, 100.0
"""Range of `effort`: about 0.3 CPU-s to 5 minutes for one question."""

ONE_GOAL = "leave one of them out; `frontier` has every efficient pair of cost and rate"
EXAMPLES = {"volume_gb": 500, "min_throughput_gbps": 5, "max_cost_usd": 50, "deadline_s": 1800}
"""Plausible figures, for hints."""


def plan_transfer(
    source: str,
    destination: str | Sequence[str],
    *,
    volume_gb: float,
    goal: GoalName | Goal = "soonest",
    min_throughput_gbps: float | None = None,
    exactly: bool = False,
    max_cost_usd: float | None = None,
    deadline_s: float | None = None,
    effort: float = 1.0,
    **limits: Any,
) -> TransferPlan | MulticastPlan:
    """Return the plan of a transfer; arguments and errors are those of `Engine.plan`, `limits` those of `prepared`."""
    started_s = time.perf_counter()
    _refuse_single(destination)
    wanted = _goal(goal, min_throughput_gbps, exactly, max_cost_usd, deadline_s)
    transfer = prepared(source, destination, volume_gb=volume_gb, **limits)
    return planned(with_effort(transfer, effort), wanted, started_s)


def plan_problem(
    path: Path, *, machines_setting: str, effort: float = 1.0, single: bool = False
) -> TransferPlan | MulticastPlan:
    """Return the plan of a problem file; arguments and errors are those of `Engine.plan_problem`."""
    started_s = time.perf_counter()
    transfer, goal = read_question(path, machines_setting)
    if single and len(transfer.formulation.sinks) > 1:
        raise UsageError("--topology takes one destination", hint="leave it out, or plan for one destination at a time")
    return planned(with_effort(transfer, effort), goal, started_s)


def trace_frontier(
    source: str, destination: str | Sequence[str], *, volume_gb: float, **limits: Any
) -> TransferFrontier:
    """Return every efficient pair of cost and rate; arguments and errors are those of `Engine.frontier`."""
    _refuse_single(destination)
    return trace(prepared(source, destination, volume_gb=volume_gb, **limits))


def planned(transfer: Transfer, goal: Goal, started_s: float) -> TransferPlan | MulticastPlan:
    """Return the plan for a goal, by the number of destinations; arguments as in `planned_overlay`."""
    several = len(transfer.formulation.sinks) > 1
    return (planned_multicast if several else planned_overlay)(transfer, goal, started_s)


def planned_overlay(transfer: Transfer, goal: Goal, started_s: float) -> TransferPlan:
    """Return the plan for a goal; `started_s` is the `time.perf_counter` at the start of the question."""
    overlay = solve_overlay(transfer, goal)
    return TransferPlan(replace(overlay, solve_s=time.perf_counter() - started_s), transfer)


def planned_multicast(transfer: Transfer, goal: Goal, started_s: float) -> MulticastPlan:
    """Return the plan for a goal and several destinations; arguments as in `planned_overlay`."""
    overlay = solve_multicast(transfer, goal)
    return MulticastPlan(replace(overlay, solve_s=time.perf_counter() - started_s), transfer)


def _refuse_single(destination: str | Sequence[str]) -> None:
    """Refuse a list with one region: lists always give plans with trees, which are of another type."""
    if isinstance(destination, (list, tuple)) and len(destination) < 2:
        count = len(destination)
        raise UsageError(
            f"a list of destinations needs at least two, not {count}", hint="pass a single destination as a string"
        )


def _refuse_figure(name: str, value: float) -> None:
    """Refuse values that a program may pass by mistake: text with a unit, None, or anything else but a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(
            f"{name} is a number, not {value!r}", hint="the name has the unit: 5 for 5 GB, Gbit/s, USD or s"
        )
    if not 0 < value < float("inf"):
        raise UsageError(
            f"{name} must be more than zero, and finite, not {value:g}", hint=f"for example {name}={EXAMPLES[name]}"
        )


def _region(known: Catalog, region: str) -> Region:
    """Return the region of that name. Raises UsageError."""
    if not isinstance(region, str):
        raise UsageError(
            f"a region is a string like aws:us-east-1, not {region!r}",
            hint="`tradewind catalog show` lists all regions",
        )
    return known.region_named(region)


def outruns_boot(transfer: Transfer) -> UnicastOverlay | None:
    """Return the direct path with one machine at each end, if it ends before further machines would have started."""
    alone = gridftp(transfer)
    return alone if alone is not None and alone.transfer_s <= alone.boot_s else None


def goal_of_direct(transfer: Transfer) -> Goal:
    """Return the default goal of a transfer: the fastest for the cost of the direct path; without one, the cheapest."""
    straight = direct(transfer)
    return MaxCost(straight.cost.total_usd) if straight is not None else Cheapest()


def _goal(
    name: GoalName | Goal,
    min_throughput_gbps: float | None,
    exactly: bool,
    max_cost_usd: float | None,
    deadline_s: float | None,
) -> Goal:
    figures = {"min_throughput_gbps": min_throughput_gbps, "max_cost_usd": max_cost_usd, "deadline_s": deadline_s}
    given = {key: value for key, value in figures.items() if value is not None}
    if len(given) > 1:
        raise UsageError(f"one goal at a time, not {' and '.join(given)}", hint=ONE_GOAL)
    for key, value in given.items():
        _refuse_figure(key, value)
    if exactly and min_throughput_gbps is None:
        raise UsageError("exactly needs min_throughput_gbps", hint="for example min_throughput_gbps=5, exactly=True")
    if isinstance(name, Goal) and not given:
        return name
    if name not in get_args(GoalName):
        raise UsageError(
            f"goal is one of {', '.join(get_args(GoalName))}, not {name!r}",
            hint=f"other goals need a number: {', '.join(f'{key}={EXAMPLES[key]}' for key in figures)}",
        )
    if given and name != "soonest":
        raise UsageError(f"one goal at a time, not {name} and {next(iter(given))}", hint=ONE_GOAL)
    if min_throughput_gbps is not None:
        return MinThroughput(min_throughput_gbps, exactly)
    if max_cost_usd is not None:
        return MaxCost(max_cost_usd)
    return Deadline(deadline_s) if deadline_s is not None else _NAMED[str(name)]


def with_effort(transfer: Transfer, effort: float) -> Transfer:
    """Return the same question with this many times the work. Raises UsageError."""
    if not EFFORT_MIN <= effort <= EFFORT_MAX:
        raise UsageError(
            f"an effort is {EFFORT_MIN:g} to {EFFORT_MAX:g}, not {effort:g}", hint="1, the default, is about 3 CPU-s"
        )
    settings = transfer.settings
    longer = replace(settings, work_max=settings.work_max * effort, time_limit_s=settings.time_limit_s * effort)
    return replace(transfer, settings=longer)


def prepared(
    source: str,
    destination: str | Sequence[str],
    *,
    volume_gb: float,
    max_vms: int | None = None,
    vm_types: Collection[str] | None = None,
    spot: bool = False,
    compression_ratio: float = 1.0,
    egress_used_gb: float = 0.0,
    tier: str = "premium",
    objects: int | None = None,
    catalog: Catalog | str | os.PathLike[str] | None = None,
    sites: Sites | None = None,
    state_dir: str | None = None,
) -> Transfer:
    """Return the transfer, ready for any goal; arguments and errors are those of `Engine.plan`.

    Several destinations: multicast.

    Without a catalog, that of `state_dir` is loaded.
    """
    _refuse_figure("volume_gb", volume_gb)
    if objects is not None and (isinstance(objects, bool) or not isinstance(objects, int) or objects < 1):
        raise UsageError(f"objects must be at least 1, not {objects!r}", hint="None assumes objects of 16 MiB")
    max_vms = MACHINES_PER_REGION if max_vms is None else max_vms
    if isinstance(max_vms, bool) or not isinstance(max_vms, int) or max_vms < 1:
        raise UsageError(
            f"at least one machine per region is needed, in whole numbers, not {max_vms!r}",
            hint=f"max_vms=1 or more; without it up to {MACHINES_PER_REGION} are used",
        )
    if vm_types is not None and (isinstance(vm_types, str) or not vm_types):
        raise UsageError(f"vm_types is a list of machine types, not {vm_types!r}", hint="None takes all")
    require_number("egress_used_gb", egress_used_gb, 0, None)
    known = (
        catalog
        if isinstance(catalog, Catalog)
        else load_catalog(Path(catalog) if catalog else catalog_folder(state_dir))
    )
    require_machine_types(known, vm_types or ())
    if sites is not None:
        known = known.without_links(unconnected(sites, known.places))
    if not 0 < compression_ratio <= 1:
        raise UsageError(
            f"a compression ratio is above 0 and at most 1, not {compression_ratio:g}", hint="for example 0.6"
        )
    limits = PlanningLimits(
        machines_per_region=max_vms,
        spot=spot,
        machine_types=vm_types,
        compression_ratio=compression_ratio,
        monthly_egress_used_gb=egress_used_gb,
        network_tiers=check_network_tiers(tier),
    )
    begin = _region(known, source)
    asked = [destination] if isinstance(destination, str) or not isinstance(destination, Sequence) else destination
    destinations = [_region(known, region) for region in asked]
    if len(destinations) > 1:
        return prepare_multicast(known, begin, destinations, volume_gb, limits, objects=objects)
    return prepare(known, begin, destinations[0], volume_gb, limits, objects=objects)


def read_question(path: Path, machines_setting: str) -> tuple[Transfer, Goal]:
    """Return the transfer and the goal of a problem file. `machines_setting` names its limit in hints.

    Raises UsageError, ConfigError.
    """
    from tradewind.catalog.problem import read_problem

    problem = read_problem(path)
    limits = PlanningLimits(
        problem.machines_per_region,
        connections_per_machine=problem.connections_per_machine,
        machines_setting=machines_setting,
    )
    catalog, source, volume_gb = problem.catalog, problem.source, problem.volume_gb
    if len(problem.destinations) > 1:
        several = prepare_multicast(catalog, source, problem.destinations, volume_gb, limits, boot_s=problem.boot_s)
        return several, problem.goal
    return prepare(catalog, source, problem.destination, volume_gb, limits, boot_s=problem.boot_s), problem.goal


def topology_of(plan: TransferPlan) -> dict[str, Any]:
    """Return the topology document of a plan's gateways. Raises TopologyError if they do not take that many routes."""
    return dict(topology_document(assign_gateways(plan.overlay)))


def require_machine_types(catalog: Catalog, names: Collection[str]) -> None:
    """Raise UsageError for a machine type that the catalog does not know."""
    known = {o.machine.name for of in catalog.offers.values() for o in of}
    for name in names:
        if name not in known:
            raise UsageError(f"unknown machine type {name}", hint=f"known: {', '.join(sorted(known))}")
