"""A request's plan on the machines of a ground: its goal, its ceilings, its chunks, and how it is launched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tradewind.engine.launch_spec import planned_launch
from tradewind.errors import InfeasibleGoal
from tradewind.model.goal import Fastest, Goal, MaxCost
from tradewind.model.job import DEFAULT_CHUNK_BYTES, MIN_CHUNK_BYTES, MIN_FILE_CHUNK_BYTES, lowest_limit
from tradewind.model.overlay import UnicastOverlay
from tradewind.model.plan import Plan
from tradewind.model.records import replace
from tradewind.model.region import Region
from tradewind.model.units import format_duration, format_usd
from tradewind.model.url import parse_url

if TYPE_CHECKING:
    from tradewind.engine.ground import Ground
    from tradewind.engine.proposal import Proposal, Request

__all__ = ["placed"]


def placed(request: Request, made: Proposal, ground: Ground, regions: tuple[Region, Region]) -> Proposal:
    """Return a proposal, whose volume is known, with a plan on a ground, if there is anything to move."""
    from tradewind.engine.ground import fixed_tiers
    from tradewind.engine.provisioning import pace_bytes_per_s, plan_gateways, usual_goal, with_memory_for
    from tradewind.engine.replan import PlanRequest
    from tradewind.planner.network import PlanningLimits

    options, objects = request.options, made.objects
    provider, catalog = ground.provider, ground.catalog
    made = replace(made, notes=ground.notes)
    if not made.volume_bytes or made.volume_bytes <= 0:
        return made
    volume_gb = made.volume_bytes / 1e9
    limits = PlanningLimits(
        machines_per_region=request.machines_per_region or ground.machines,
        compression_ratio=request.compression_ratio,
        # The survey has left out spot machines where the configuration does not want them.
        spot=provider["kind"] != "sky",
        rate_max_gbps=None if options.limit_bytes_per_s is None else options.limit_bytes_per_s * 8e-9,
        routes_max=request.routes_max,
        closed_regions=tuple(sorted(set(request.closed_regions) - set(regions))),
        closed_links=tuple(sorted(request.closed_links)),
        network_tiers=request.tier or "premium",
        network_tier_of={**fixed_tiers(request.sites, catalog, request.tier), **ground.network_tiers},
    )
    ceiling_usd = _ceiling_usd(request, volume_gb)
    goal = _goal(request, ceiling_usd)
    wanted = goal or usual_goal(catalog, *regions, volume_gb, limits, objects=objects or None)
    plan = plan_gateways(catalog, *regions, volume_gb, wanted, limits, objects=objects or None)
    if options.dry_run:
        return replace(made, plan=plan, notes=(*made.notes, *_start_note(plan)))
    _require_below_ceiling(plan, request.goal, ceiling_usd)
    options = replace(options, chunk_bytes=_chunk_bytes(request, plan, ground.scale))
    plan = with_memory_for(plan, options.chunk_bytes)
    plan_request = PlanRequest(
        catalog,
        *regions,
        goal,
        limits,
        options.chunk_bytes,
        ceiling_usd,
        limit_bytes_per_s=options.limit_bytes_per_s,
        objects=objects or None,
    )
    pace = pace_bytes_per_s(plan)
    if pace is not None:
        options = replace(options, limit_bytes_per_s=lowest_limit(pace, options.limit_bytes_per_s))
    egress_usd = _egress_ceiling_usd(plan, ceiling_usd)
    options = replace(options, max_cost_usd=egress_usd, max_usd_per_gb=_mean_usd_per_gb(plan, ceiling_usd, volume_gb))
    launch = planned_launch(plan, provider, ceiling_usd=ceiling_usd, plan_request=plan_request, replan=request.replan)
    return replace(made, plan=plan, options=options, launch=launch, notes=(*made.notes, *_start_note(plan)))


def _start_note(plan: Plan) -> Iterator[str]:
    """Yield how long the machines usually take to start, if that is learned."""
    machines = () if plan.overlay is None else plan.overlay.machines
    slowest = max((each.offer.machine for each in machines), key=lambda machine: machine.boot_s, default=None)
    if slowest is not None and slowest.boot_origin.kind == "learned":
        yield f"the machines usually start in {format_duration(slowest.boot_s)} ({slowest.boot_origin})"


def _require_below_ceiling(plan: Plan, goal: Goal | None, ceiling_usd: float | None) -> None:
    """Raise InfeasibleGoal if the cheapest plan of a goal costs more than the ceiling."""
    if goal is None or ceiling_usd is None or plan.prediction is None or not isinstance(plan.overlay, UnicastOverlay):
        return
    cost_usd = plan.prediction.cost_usd
    if cost_usd > ceiling_usd:
        raise InfeasibleGoal(
            f"{goal} costs {format_usd(cost_usd)}, more than the ceiling of {format_usd(ceiling_usd)}",
            hint="allow more time, a lower rate, or a higher cost",
            nearest=plan.overlay,
        )


def _ceiling_usd(request: Request, volume_gb: float) -> float | None:
    if request.ceiling_usd_per_gb is not None:
        return request.ceiling_usd_per_gb * volume_gb
    return request.ceiling_usd


def _goal(request: Request, ceiling_usd: float | None) -> Goal | None:
    """Return the goal of a request: without one the fastest within the ceiling, and without a ceiling the fastest.

    None in a cloud, where the fastest would cost too much: `usual_goal` applies.
    """
    if request.goal is not None:
        return request.goal
    if ceiling_usd is not None:
        return MaxCost(ceiling_usd)
    return Fastest() if request.sky is not None or not request.sites.clouds else None


def _egress_ceiling_usd(plan: Plan, ceiling_usd: float | None) -> float | None:
    """Return the ceiling less the cost of the machines, for egress; None without a ceiling or prices."""
    if ceiling_usd is None or plan.overlay is None or plan.mean_usd_per_gb == 0:
        return None
    return ceiling_usd - plan.overlay.cost.machines_usd - plan.overlay.cost.requests_usd


def _mean_usd_per_gb(plan: Plan, ceiling_usd: float | None, volume_gb: float) -> float | None:
    """Return the maximum average price per byte: the plan's price, or more if the ceiling leaves room.

    Bytes that are lost with a dead machine are sent again, so a plan that costs much less than the ceiling must not
    stop at its own price. The last part of the ceiling is reserved for the supervisor, which extrapolates costs.
    """
    from tradewind.engine.provisioning import RETRY_RESERVE
    from tradewind.engine.replan import ceiling_usd_per_gb

    if ceiling_usd is None or plan.mean_usd_per_gb == 0:
        return None
    room = ceiling_usd_per_gb(ceiling_usd * (1 - 2 * RETRY_RESERVE), plan, round(volume_gb * 1e9))
    return max(plan.mean_usd_per_gb, room or 0.0)


def _chunk_bytes(request: Request, plan: Plan, scale: float) -> int:
    """Return a chunk size for the plan and the destination's store; a requested size is kept."""
    from tradewind.engine.provisioning import chunk_bytes_for

    if request.options.chunk_bytes != DEFAULT_CHUNK_BYTES:
        return request.options.chunk_bytes
    any_size = parse_url(request.destinations[0], cwd="/").kind in ("file", "mem")
    return chunk_bytes_for(plan, scale, MIN_FILE_CHUNK_BYTES if any_size else MIN_CHUNK_BYTES)
