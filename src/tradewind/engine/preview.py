"""The gain that a plan between the regions of both sides would bring to a transfer through this machine.

The region of each side is what the user, the address or the store itself states. Planning loads the solver and
needs the volume, so it happens only on request. `preview_of` asks the stores only for a dry run or a goal.
"""

from __future__ import annotations

import os
from time import perf_counter
from typing import TYPE_CHECKING

from tradewind.engine.job_control import JobControl
from tradewind.engine.launch_spec import local_launch
from tradewind.engine.proposal import Request
from tradewind.engine.request import place_texts
from tradewind.engine.sides import Side, find_regions, known_region, named_region
from tradewind.errors import UsageError
from tradewind.model.event import Summary
from tradewind.model.goal import Goal, MaxCost
from tradewind.model.records import dataclass, replace
from tradewind.model.region import Region
from tradewind.model.store import Access
from tradewind.model.url import parse_url

if TYPE_CHECKING:
    from tradewind.planner.plan import Transfer
    from tradewind.render.plans import TransferPlan

__all__ = ["NoPlan", "Preview", "preview_of"]

CLOUDS = {"s3", "gs", "az", "r2"}
ANY_VOLUME_GB = 1.0
"""Volume for the check whether a plan is possible at all, before the real volume is known."""


@dataclass(frozen=True, slots=True)
class NoPlan:
    """The reason why a transfer has no plan. `unknown` has the options that would set the unknown regions."""

    because: str
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Preview:
    """The plan that a transfer could have. Without sides nothing can be planned or reported."""

    control: JobControl
    request: Request
    sides: tuple[Side, Side] | None

    @property
    def has_goal(self) -> bool:
        """Return whether the user set a goal: a plan is then required."""
        return _has_goal(self.request)

    @property
    def known_regions(self) -> tuple[Region, Region] | None:
        """Both regions, if they are known and different."""
        source, destination = (side.region for side in self.sides) if self.sides else (None, None)
        return (source, destination) if source and destination and source != destination else None

    def obstacle(self) -> NoPlan | None:
        """Return why no plan is possible, or None. Raises UsageError if a goal needs an unknown region."""
        assert self.sides is not None
        named = zip(("--src-region", "--dst-region"), self.sides, strict=True)
        missing = {name: side.because for name, side in named if side.region is None}
        if missing:
            name, because = next(iter(missing.items()))
            if self.has_goal:
                hint = f"set the region, e.g. {name} aws:us-east-1; or use --topology"
                raise UsageError(f"a goal needs the regions: {because}", hint=hint)
            return NoPlan(because, tuple(missing))
        source, destination = self.sides
        if source.region == destination.region:
            return NoPlan(f"source and destination are both in {source.region}")
        return None

    def count(self) -> Summary:
        """Count the objects to move, by the rules of the transfer."""
        request = self.request
        options = replace(request.options, dry_run=True)
        counted = self.control.start(request.source, request.destination, options, local_launch(), verb=request.verb)
        return counted.wait().summary

    def plan(self, volume_gb: float, objects: int) -> TransferPlan | NoPlan:
        """Return the plan, or NoPlan if the transfer ends before machines would start.

        Raises TradewindError if no plan meets the goal.
        """
        from tradewind.engine.planning import goal_of_direct, outruns_boot, planned_overlay
        from tradewind.model.units import format_duration, format_volume
        from tradewind.render.words import SHORTEST_S

        started_s = perf_counter()
        transfer = self._prepared(volume_gb, objects)
        alone = outruns_boot(transfer)
        if alone is not None:
            return NoPlan(
                f"machines take {format_duration(alone.boot_s)} to start, and {format_volume(volume_gb)} "
                f"only {format_duration(max(alone.transfer_s, SHORTEST_S))} to move"
            )
        return planned_overlay(transfer, self._goal(volume_gb) or goal_of_direct(transfer), started_s)

    def require_regions(self) -> None:
        """Raise UsageError if both regions are known and the catalog has no links or machines to plan with."""
        regions = {side.region for side in self.sides or ()}
        if len(regions) == 2 and None not in regions:
            self._prepared(ANY_VOLUME_GB)

    def _goal(self, volume_gb: float) -> Goal | None:
        request = self.request
        if request.ceiling_usd_per_gb is not None:
            return MaxCost(request.ceiling_usd_per_gb * volume_gb)
        return request.goal if request.ceiling_usd is None else MaxCost(request.ceiling_usd)

    def _prepared(self, volume_gb: float, objects: int | None = None) -> Transfer:
        from tradewind.engine.planning import prepared

        assert self.sides is not None
        return prepared(
            str(self.sides[0].region),
            str(self.sides[1].region),
            volume_gb=volume_gb,
            max_vms=self.request.machines_per_region,
            objects=objects or None,
            tier=self.request.tier or "premium",
            state_dir=self.control.store.state_dir,
        )


def preview_of(control: JobControl, request: Request) -> Preview:
    """Return the plan that a transfer could have. Queries stores for their regions only for a dry run or a goal.

    Raises:
        UsageError: a goal where there is nothing to plan, or regions that cannot be planned for.
    """
    nothing = Preview(control, request, None)
    if request.moved_by != "local" or request.topology is not None:
        return nothing
    options, has_goal = request.options, _has_goal(request)
    source = place_texts(request.source)[0]
    places = [parse_url(text, cwd=os.getcwd()) for text in (source, *request.destinations)]
    if len(places) != 2:
        if has_goal:
            raise UsageError("a goal plans for one destination", hint="give one DST, or --topology")
        return nothing
    reached = options.destination if isinstance(options.destination, Access) else options.destination[0]
    pairs = list(zip(places, (options.source, reached), strict=True))
    known = known_region(*pairs[0]), known_region(*pairs[1])
    if not has_goal and any(place.kind not in CLOUDS and not named_region(access.region) for place, access in pairs):
        one_is_known = any(side.region for side in known)
        return Preview(control, request, known if options.dry_run and one_is_known else None)
    if not (options.dry_run or has_goal):
        return Preview(control, request, known)
    begin, end = find_regions(pairs, control.gateway)
    preview = Preview(control, request, (begin, end))
    preview.require_regions()
    return preview


def _has_goal(request: Request) -> bool:
    return any(of is not None for of in (request.goal, request.ceiling_usd, request.ceiling_usd_per_gb))
