"""`tradewind.plan` and `tradewind.frontier`: planning for programs and notebooks."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, Literal, get_args

from tradewind.catalog.load import catalog_folder, load_catalog
from tradewind.errors import UsageError
from tradewind.model.amounts import format_usd
from tradewind.model.catalog import Catalog
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.overlay import Cost, OverlayEdge, OverlayPlan, OverlayRoute, RegionMachines
from tradewind.model.overlay_document import plan_document
from tradewind.model.region import parse_region
from tradewind.planner.baseline import direct, gridftp, ron
from tradewind.planner.compare import Alternative, compare
from tradewind.planner.distribution import prepare_multicast
from tradewind.planner.frontier import Frontier, Segment
from tradewind.planner.network import Limits
from tradewind.planner.plan import Transfer, answer_goal, prepare, trace_transfer
from tradewind.planner.whatif import Offer, what_would_help
from tradewind.planning.picture import Picture, check_picture_path, frontier_picture, plan_picture
from tradewind.planning.words import explain_lines, frontier_lines, plan_lines

__all__ = [
    "GoalName",
    "TransferFrontier",
    "TransferPlan",
    "frontier",
    "goal_of_direct",
    "outruns_boot",
    "plan",
    "planned",
    "prepared",
    "trace",
]

GoalName = Literal["soonest", "cheapest", "fastest"]
_NAMED: Mapping[str, Goal] = {"soonest": Soonest(), "cheapest": Cheapest(), "fastest": Fastest()}

MACHINES_PER_REGION = 8
"""Machines per region unless the caller says otherwise."""
FRONTIER_SOLVES_MAX = 16
FRONTIER_SOLVE_S = 5.0
"""A frontier of the whole catalog may take minutes to prove; pieces not proven by then are marked as such."""


@dataclass(frozen=True, slots=True, eq=False)
class TransferPlan:
    """A plan: over which routes, with which machines, how fast and for how much.

    Shown as text in a terminal and as a table with a map in a notebook. `overlay` is the plan itself, with a unit in
    each field's name; the properties are its main figures.
    """

    overlay: OverlayPlan
    transfer: Transfer = field(repr=False)

    @property
    def throughput_gbps(self) -> float:
        """Predicted rate [Gbit/s]."""
        return self.overlay.throughput_gbps

    @property
    def time_s(self) -> float:
        """From the request for machines to the last byte [s]."""
        return self.overlay.time_s

    @property
    def cost(self) -> Cost:
        """Egress, machines and requests [USD]; `cost.total_usd` is all of it."""
        return self.overlay.cost

    @property
    def routes(self) -> tuple[OverlayRoute, ...]:
        """Ways from source to destination with their shares, the greatest first."""
        return self.overlay.routes

    @property
    def edges(self) -> tuple[OverlayEdge, ...]:
        """Flow, connections and price of each hop."""
        return self.overlay.edges

    @property
    def machines(self) -> tuple[RegionMachines, ...]:
        """Machines by region and type."""
        return self.overlay.machines

    @property
    def binding(self) -> tuple[str, ...]:
        """What limits the plan, in words, the tightest first."""
        return self.overlay.binding

    @property
    def direct(self) -> OverlayPlan | None:
        """The same bytes over the direct link with all machines allowed; None where there is no such link."""
        return direct(self.transfer)

    def compare(self) -> list[Alternative]:
        """This plan beside direct, RON, GridFTP and the planner's other answers."""
        return compare(self.transfer, self.overlay)

    def would_help(self) -> list[Offer]:
        """What one more machine or 10% more money would buy; each answer is one more exact solve."""
        return what_would_help(self.transfer, self.overlay)

    def explain(self) -> str:
        """What binds and what would help, in words."""
        return "\n".join(explain_lines(self.overlay, self.would_help())).strip("\n")

    def frontier(self) -> TransferFrontier:
        """Every efficient pair of cost and rate of the same transfer."""
        return trace(self.transfer)

    def plot(self, path: str | os.PathLike[str] | None = None, *, frontier: TransferFrontier | None = None) -> Picture:
        """Map and frontier as a picture, written to `path` (`.svg`, or `.png` with the extra `plot`) if there is one.

        `frontier` is what `frontier()` gave, where it was asked before; else it is traced now, which may take seconds.

        Raises:
            UsageError: another ending, or PNG without the extra.
        """
        if path is not None:
            check_picture_path(os.fspath(path))
        traced = (frontier or self.frontier()).frontier
        picture = plan_picture(self.overlay, traced, _rivals(self.transfer), self.transfer.catalog.places)
        if path is not None:
            picture.save(path)
        return picture

    def to_document(self) -> dict[str, Any]:
        """The plan as JSON has it, like `tradewind plan --json`."""
        return plan_document(self.overlay)

    def __repr__(self) -> str:
        return "\n".join(plan_lines(self.overlay))

    def _repr_html_(self) -> str:
        rivals = _rivals(self.transfer)
        places = self.transfer.catalog.places
        return f"<div>{plan_picture(self.overlay, None, rivals, places).svg}{_machine_table(self.overlay)}</div>"


@dataclass(frozen=True, slots=True, eq=False)
class TransferFrontier:
    """Every efficient pair of cost and rate of a transfer, from the cheapest to the fastest."""

    frontier: Frontier
    transfer: Transfer = field(repr=False)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Pieces on which the same machines are used; `proven` where nothing better exists."""
        return self.frontier.segments

    @property
    def points(self) -> list[tuple[float, float]]:
        """(cost [USD], rate [Gbit/s]) at both ends of each piece."""
        ends = [
            end for s in self.segments for end in ((s.cost_from_usd, s.rate_from_gbps), (s.cost_to_usd, s.rate_to_gbps))
        ]
        return list(dict.fromkeys(ends))

    @property
    def proven(self) -> bool:
        """Whether nothing better exists anywhere on it."""
        return all(segment.proven for segment in self.segments)

    def cost_usd(self, throughput_gbps: float) -> float:
        """Least cost [USD] of a plan at this rate or more; infinite beyond the fastest."""
        return self.frontier.cost_usd(throughput_gbps)

    def throughput_gbps(self, cost_usd: float) -> float:
        """Highest rate [Gbit/s] for at most this cost; zero below the cheapest."""
        return self.frontier.rate_gbps(cost_usd)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Picture:
        """The frontier with direct and RON marked, written to `path` (`.svg` or `.png`) if there is one.

        Raises:
            UsageError: another ending, or PNG without the extra `plot`.
        """
        if path is not None:
            check_picture_path(os.fspath(path))
        formulation = self.transfer.formulation
        regions = formulation.network.regions
        source, destination = regions[formulation.source], regions[formulation.sink]
        volume_gb = self.transfer.job.volume_gb
        picture = frontier_picture(source, destination, volume_gb, self.frontier, _rivals(self.transfer))
        if path is not None:
            picture.save(path)
        return picture

    def __repr__(self) -> str:
        return "\n".join(frontier_lines(self.frontier)).strip("\n")

    def _repr_html_(self) -> str:
        return f"<div>{self.plot().svg}</div>"


def plan(
    source: str,
    destination: str,
    *,
    volume_gb: float,
    goal: GoalName = "soonest",
    min_throughput_gbps: float | None = None,
    exactly: bool = False,
    max_cost_usd: float | None = None,
    deadline_s: float | None = None,
    max_vms: int = MACHINES_PER_REGION,
    vm_types: Collection[str] | None = None,
    spot: bool = False,
    catalog: Catalog | str | os.PathLike[str] | None = None,
) -> TransferPlan:
    """Plans a transfer between two regions. Starts nothing and asks nothing of any cloud.

    Args:
        source: region, e.g. `aws:us-east-1`.
        destination: region.
        volume_gb: how much [GB, 1e9 bytes].
        goal: `soonest` (machines' start included), `cheapest` or `fastest`; instead of it one of the next three.
        min_throughput_gbps: cheapest at this rate or more [Gbit/s].
        exactly: with `min_throughput_gbps`: at exactly this rate.
        max_cost_usd: fastest for at most this [USD].
        deadline_s: cheapest that is done within this time [s].
        max_vms: most machines in one region.
        vm_types: only these machine types; None for all.
        spot: spot machines too.
        catalog: what is known, or the folder of the user's part of it; None for the user's own folder.

    Raises:
        UsageError: an unknown region or machine type, or a goal that makes no sense.
        TradewindError: no plan meets the goal; the message says which limit, the hint the nearest goal that works.
    """
    wanted = _goal(goal, min_throughput_gbps, exactly, max_cost_usd, deadline_s)
    started_s = time.perf_counter()
    transfer = prepared(
        source, destination, volume_gb=volume_gb, max_vms=max_vms, vm_types=vm_types, spot=spot, catalog=catalog
    )
    return planned(transfer, wanted, started_s)


def frontier(
    source: str,
    destination: str,
    *,
    volume_gb: float,
    max_vms: int = MACHINES_PER_REGION,
    vm_types: Collection[str] | None = None,
    spot: bool = False,
    catalog: Catalog | str | os.PathLike[str] | None = None,
) -> TransferFrontier:
    """Every efficient pair of cost and rate between two regions; arguments and errors are those of `plan`."""
    return trace(
        prepared(
            source, destination, volume_gb=volume_gb, max_vms=max_vms, vm_types=vm_types, spot=spot, catalog=catalog
        )
    )


def planned(transfer: Transfer, goal: Goal, started_s: float) -> TransferPlan:
    """The plan for a goal; `started_s` is the `time.perf_counter` at which the question was asked."""
    overlay = answer_goal(transfer, goal)
    return TransferPlan(replace(overlay, solve_s=time.perf_counter() - started_s), transfer)


def trace(transfer: Transfer) -> TransferFrontier:
    """The frontier, as far as it is found in the time that someone waits for it."""
    hasty = replace(transfer, settings=replace(transfer.settings, time_limit_s=FRONTIER_SOLVE_S))
    return TransferFrontier(trace_transfer(hasty, solves_max=FRONTIER_SOLVES_MAX), transfer)


def outruns_boot(transfer: Transfer) -> OverlayPlan | None:
    """The direct way with one machine at each end, if it moves all before further machines would have started."""
    alone = gridftp(transfer)
    return alone if alone is not None and alone.transfer_s <= alone.boot_s else None


def goal_of_direct(transfer: Transfer) -> Goal:
    """What a transfer wants that says nothing: the fastest for what the direct way costs; without one, the cheapest."""
    straight = direct(transfer)
    return MaxCost(straight.cost.total_usd) if straight is not None else Cheapest()


def _goal(
    name: str, min_throughput_gbps: float | None, exactly: bool, max_cost_usd: float | None, deadline_s: float | None
) -> Goal:
    figures = {"min_throughput_gbps": min_throughput_gbps, "max_cost_usd": max_cost_usd, "deadline_s": deadline_s}
    given = {key: value for key, value in figures.items() if value is not None}
    if len(given) > 1:
        raise UsageError(f"one goal at a time, not {' and '.join(given)}")
    for key, value in given.items():
        if not 0 < value < float("inf"):
            raise UsageError(f"{key} must be more than zero, not {value:g}")
    if exactly and min_throughput_gbps is None:
        raise UsageError("exactly goes with min_throughput_gbps")
    if name not in get_args(GoalName):
        raise UsageError(f"goal is one of {', '.join(get_args(GoalName))}, not {name!r}")
    if given and name != "soonest":
        raise UsageError(f"one goal at a time, not {name} and {next(iter(given))}")
    if min_throughput_gbps is not None:
        return MinThroughput(min_throughput_gbps, exactly)
    if max_cost_usd is not None:
        return MaxCost(max_cost_usd)
    return Deadline(deadline_s) if deadline_s is not None else _NAMED[name]


def prepared(
    source: str,
    destination: str | Sequence[str],
    *,
    volume_gb: float,
    max_vms: int = MACHINES_PER_REGION,
    vm_types: Collection[str] | None = None,
    spot: bool = False,
    compression_ratio: float = 1.0,
    egress_used_gb: float = 0.0,
    catalog: Catalog | str | os.PathLike[str] | None = None,
) -> Transfer:
    """The transfer, ready for any goal; arguments and errors are those of `plan`. Several destinations: multicast."""
    if max_vms < 1:
        raise UsageError(f"at least one machine per region is needed, not {max_vms}")
    known = catalog if isinstance(catalog, Catalog) else load_catalog(Path(catalog) if catalog else catalog_folder())
    require_machine_types(known, vm_types or ())
    if not 0 < compression_ratio <= 1:
        raise UsageError(f"a compression ratio is above 0 and at most 1, not {compression_ratio:g}")
    limits = Limits(
        machines_per_region=max_vms,
        spot=spot,
        machine_types=vm_types,
        compression_ratio=compression_ratio,
        monthly_egress_used_gb=egress_used_gb,
    )
    destinations = [parse_region(d) for d in ([destination] if isinstance(destination, str) else destination)]
    if len(destinations) > 1:
        return prepare_multicast(known, parse_region(source), destinations, volume_gb, limits)
    return prepare(known, parse_region(source), destinations[0], volume_gb, limits)


def require_machine_types(catalog: Catalog, names: Collection[str]) -> None:
    """Raises UsageError for a machine type that the catalog does not know."""
    known = {o.machine.name for of in catalog.offers.values() for o in of}
    for name in names:
        if name not in known:
            raise UsageError(f"unknown machine type {name}", hint=f"known are {', '.join(sorted(known))}")


def _rivals(transfer: Transfer) -> list[tuple[str, OverlayPlan]]:
    return [(name, made) for name, made in (("direct", direct(transfer)), ("RON", ron(transfer))) if made]


def _machine_table(overlay: OverlayPlan) -> str:
    rows = "".join(
        f"<tr><td>{m.count}</td><td>{escape(m.offer.name)}</td><td>{escape(str(m.region))}</td>"
        f"<td>{format_usd(m.offer.usd_per_hour)}/h</td></tr>"
        for m in overlay.machines
    )
    limited = f"<p>Limited by {escape(overlay.binding[0])}.</p>" if overlay.binding else ""
    return f"<table><tr><th>machines</th><th>type</th><th>region</th><th>each</th></tr>{rows}</table>{limited}"
