"""Plans and frontiers for programs and notebooks: figures with units, text, tables and pictures."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from typing import Any, Generic, TypeVar

from tradewind.catalog.packaged import read_packaged
from tradewind.model.goal import Cheapest
from tradewind.model.overlay import (
    Cost,
    DistributionTree,
    MulticastOverlay,
    Overlay,
    OverlayEdge,
    OverlayRoute,
    RegionMachines,
    UnicastOverlay,
    plan_document,
)
from tradewind.model.records import dataclass, field, replace
from tradewind.model.region import Region, RegionInfo
from tradewind.model.units import format_duration, format_gbps, format_usd
from tradewind.planner.baseline import Alternative, compare, direct, ron
from tradewind.planner.frontier import Frontier, Segment
from tradewind.planner.multicast import (
    MulticastAlternative,
    compare_multicast,
    solve_multicast,
    trace_multicast,
)
from tradewind.planner.plan import Transfer, trace_transfer
from tradewind.planner.whatif import Improvement, find_improvements
from tradewind.render.chart import Mark
from tradewind.render.picture import Picture, check_picture_path, frontier_picture, plan_picture
from tradewind.render.tree_words import tree_lines
from tradewind.render.words import explain_lines, frontier_lines, plan_lines

__all__ = ["MulticastPlan", "TransferFrontier", "TransferPlan", "trace"]

FRONTIER_SOLVES_MAX = 32
"""Maximum solves for a frontier to one destination: up to some 20 CPU-s for the packaged catalog."""
TREE_FRONTIER_SOLVES_MAX = 16
FRONTIER_SOLVE_S = 5.0
"""A complete frontier of the whole catalog may take minutes to prove; unproven pieces are marked."""

OverlayT = TypeVar("OverlayT", UnicastOverlay, MulticastOverlay)


@dataclass(frozen=True, eq=False, repr=False)
class _Planned(ABC, Generic[OverlayT]):
    """Common part of plans for one destination and for several."""

    overlay: OverlayT
    transfer: Transfer

    @property
    def throughput_gbps(self) -> float:
        """Predicted rate of one copy [Gbit/s]: the rate at which each destination receives."""
        return self.overlay.throughput_gbps

    @property
    def time_s(self) -> float:
        """Time from the request for machines to the last byte [s]."""
        return self.overlay.time_s

    @property
    def cost(self) -> Cost:
        """Egress, machines and requests [USD]; `cost.total_usd` is their sum."""
        return self.overlay.cost

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
        """Limits of the plan, as text, the tightest first."""
        return self.overlay.binding

    def would_help(self) -> list[Improvement]:
        """Return the gain of one more machine or 10% more money; each answer needs one more exact solve."""
        return find_improvements(self.transfer, self.overlay)

    def explain(self) -> str:
        """Return what limits the plan and what would help, as text."""
        return "\n".join(explain_lines(self.overlay, self.would_help(), catalog=self.transfer.catalog)).strip("\n")

    def frontier(self) -> TransferFrontier:
        """Return every efficient pair of cost and rate of the same transfer."""
        return trace(self.transfer, self.overlay)

    def plot(self, path: str | os.PathLike[str] | None = None, *, frontier: TransferFrontier | None = None) -> Picture:
        """Draw map and frontier; write them to `path` (`.svg`, or `.png` with the extra `plot`) if it is given.

        `frontier` is an earlier result of `frontier()`; without it the frontier is traced now, which may take
        minutes for several destinations.

        Raises:
            UsageError: another suffix, PNG without the extra, or a file that cannot be written.
        """
        if path is not None:
            check_picture_path(os.fspath(path))
        traced = (frontier or self.frontier()).frontier
        picture = plan_picture(self.overlay, traced, self._marks(), _places(self.transfer))
        if path is not None:
            picture.save(path)
        return picture

    def map(self) -> Picture:
        """Draw the routes on a map, with cost and rate."""
        return plan_picture(self.overlay, None, (), _places(self.transfer))

    def to_document(self) -> dict[str, Any]:
        """Return the plan as a JSON document, as printed by `tradewind plan --json`."""
        return plan_document(self.overlay)

    @abstractmethod
    def _marks(self) -> list[Mark]:
        """Return the alternative plans for the picture."""

    def _repr_html_(self) -> str:
        drawn = plan_picture(self.overlay, None, self._marks(), _places(self.transfer))
        return f"<div>{drawn.svg}{_machine_table(self.overlay)}</div>"


@dataclass(frozen=True, eq=False, repr=False)
class TransferPlan(_Planned[UnicastOverlay]):
    """A plan for one destination: routes, machines, rate and cost.

    Prints as text in a terminal and as a table with a map in a notebook. `overlay` is the plan itself, with a unit in
    each field's name; the properties are its main figures.
    """

    @property
    def routes(self) -> tuple[OverlayRoute, ...]:
        """Routes from source to destination with their shares, the largest first."""
        return self.overlay.routes

    @property
    def direct(self) -> UnicastOverlay | None:
        """The same transfer over the direct link with all allowed machines; None if the link does not exist."""
        return direct(self.transfer)

    def compare(self) -> list[Alternative]:
        """Compare with direct, RON, GridFTP and the planner's other answers."""
        return compare(self.transfer, self.overlay)

    def _marks(self) -> list[Mark]:
        return _rivals(self.transfer)

    def __repr__(self) -> str:
        return "\n".join(plan_lines(self.overlay))


@dataclass(frozen=True, eq=False, repr=False)
class MulticastPlan(_Planned[MulticastOverlay]):
    """A plan for several destinations, each of which receives everything: trees, rate and cost.

    Prints as text in a terminal and as tables with a map in a notebook. `overlay` is the plan itself, with a unit in
    each field's name; the properties are its main figures.
    """

    @property
    def destinations(self) -> tuple[Region, ...]:
        """The destinations."""
        return self.overlay.destinations

    @property
    def trees(self) -> tuple[DistributionTree, ...]:
        """Trees from the source to all destinations with their shares, the largest first."""
        return self.overlay.trees

    @cached_property
    def _alternatives(self) -> tuple[MulticastAlternative, ...]:
        return tuple(compare_multicast(self.transfer, self.overlay))

    def compare(self) -> list[MulticastAlternative]:
        """Compare with direct copies to each destination and with one plan for each; solved on first use."""
        return list(self._alternatives)

    def _marks(self) -> list[Mark]:
        return _rivals_of_trees(self._alternatives)

    def __repr__(self) -> str:
        return "\n".join(tree_lines(self.overlay))

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("plan", "machines", "time", "rate to each", "cost", ""))
        rows = "".join(
            f"<tr><td>{escape(alternative.name)}</td><td>{alternative.machines}</td><td>{format_duration(alternative.time_s)}</td>"
            f"<td>{format_gbps(alternative.average_gbps)}</td><td>{format_usd(alternative.cost_usd)}</td>"
            f"<td>{escape(alternative.remark)}</td></tr>"
            for alternative in self._alternatives
        )
        return f"<div>{super()._repr_html_()}<table><tr>{head}</tr>{rows}</table></div>"


@dataclass(frozen=True, eq=False)
class TransferFrontier:
    """Every efficient pair of cost and rate of a transfer, from the cheapest to the fastest."""

    frontier: Frontier
    transfer: Transfer = field(repr=False)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Pieces with the same machines; `proven` if nothing better exists."""
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
        """True if the complete frontier is proven optimal."""
        return all(segment.proven for segment in self.segments)

    def cost_usd(self, throughput_gbps: float) -> float:
        """Return the least cost [USD] of a plan at this rate or more; infinite beyond the fastest."""
        return self.frontier.cost_usd(throughput_gbps)

    def throughput_gbps(self, cost_usd: float) -> float:
        """Return the highest rate [Gbit/s] for at most this cost; zero below the cheapest."""
        return self.frontier.rate_gbps(cost_usd)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Picture:
        """Draw the frontier with the alternatives marked; write it to `path` (`.svg` or `.png`) if it is given.

        The alternatives are direct and RON. With several destinations: direct copies, and one plan for each at the
        rate of the cheapest plan, which takes a few seconds more.

        Raises:
            UsageError: another suffix, PNG without the extra `plot`, or a file that cannot be written.
        """
        if path is not None:
            check_picture_path(os.fspath(path))
        formulation = self.transfer.formulation
        source, *destinations = (formulation.network.regions[v] for v in (formulation.source, *formulation.sinks))
        volume_gb = self.transfer.demand.volume_gb
        picture = frontier_picture(source, destinations, volume_gb, self.frontier, self._marks())
        if path is not None:
            picture.save(path)
        return picture

    def _marks(self) -> list[Mark]:
        if len(self.transfer.formulation.sinks) == 1:
            return _rivals(self.transfer)
        return _rivals_of_trees(compare_multicast(self.transfer, solve_multicast(self.transfer, Cheapest())))

    def __repr__(self) -> str:
        return "\n".join(frontier_lines(self.frontier)).strip("\n")

    def _repr_html_(self) -> str:
        return f"<div>{self.plot().svg}</div>"


def trace(transfer: Transfer, known: UnicastOverlay | MulticastOverlay | None = None) -> TransferFrontier:
    """Return the frontier, traced within interactive limits.

    It is nowhere below the plan in ``known`` nor, for one destination, below direct and RON.
    """
    limited = replace(transfer, settings=replace(transfer.settings, time_limit_s=FRONTIER_SOLVE_S))
    if isinstance(known, MulticastOverlay) or len(transfer.formulation.sinks) > 1:
        trees = [known] if isinstance(known, MulticastOverlay) else []
        return TransferFrontier(trace_multicast(limited, solves_max=TREE_FRONTIER_SOLVES_MAX, known=trees), transfer)
    routes = [made for made in (known, direct(transfer), ron(transfer)) if made is not None]
    return TransferFrontier(trace_transfer(limited, solves_max=FRONTIER_SOLVES_MAX, known=routes), transfer)


def _places(transfer: Transfer) -> Mapping[Region, RegionInfo]:
    """Return the positions of regions. Regions of problem files are looked up by name in the packaged catalog."""
    return transfer.catalog.places or read_packaged().places


def _rivals(transfer: Transfer) -> list[Mark]:
    return [Mark.of(name, made) for name, made in (("direct", direct(transfer)), ("RON", ron(transfer))) if made]


def _rivals_of_trees(alternatives: Sequence[MulticastAlternative]) -> list[Mark]:
    """Return the marks of the alternatives; the first entry is the plan itself."""
    return [
        Mark(alternative.name, alternative.average_gbps, alternative.cost_usd, alternative.time_s, alternative.machines)
        for alternative in alternatives[1:]
    ]


def _machine_table(overlay: Overlay) -> str:
    rows = "".join(
        f"<tr><td>{m.count}</td><td>{escape(m.offer.name)}</td><td>{escape(str(m.region))}</td>"
        f"<td>{format_usd(m.offer.usd_per_hour)}/h</td></tr>"
        for m in overlay.machines
    )
    limited = f"<p>Limited by {escape(overlay.binding[0])}.</p>" if overlay.binding else ""
    return f"<table><tr><th>machines</th><th>type</th><th>region</th><th>each</th></tr>{rows}</table>{limited}"
