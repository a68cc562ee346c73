"""Plan while the source is still being listed, where the rest of the list cannot change the machines.

A long list and a long start then overlap (docs/decisions/0047-machines-while-listing.md). The lead lists the source
again, while it moves what it has found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tradewind.engine.placed import placed
from tradewind.errors import InfeasibleGoal
from tradewind.model.goal import Deadline, MaxCost
from tradewind.model.plan import Plan
from tradewind.model.records import replace
from tradewind.model.units import format_count, format_volume

if TYPE_CHECKING:
    from tradewind.engine.ground import Ground
    from tradewind.engine.job_control import JobControl
    from tradewind.engine.proposal import Proposal, Request
    from tradewind.model.overlay import UnicastOverlay
    from tradewind.model.region import Region

__all__ = ["may_plan_early", "planned_early"]

#: The plan must need the same machines for all volumes up to this one. For even more bytes, time and cost are
#: proportional to the volume, so the plan stays the same.
FAR_BYTES = 10**15
#: Ratio of the volumes up to FAR_BYTES for which plans are compared.
STEP = 1000
#: Shares of routes that differ by less are equal.
SAME_SHARE = 0.01


def may_plan_early(request: Request) -> bool:
    """Return whether machines may be ordered before the volume is known: the user has agreed to any cost, and neither
    a ceiling nor a deadline depends on the volume.
    """
    bounded = request.ceiling_usd is not None or request.ceiling_usd_per_gb is not None
    return (
        request.agreed
        and not bounded
        and not request.options.dry_run
        and not isinstance(request.goal, (Deadline, MaxCost))
    )


def planned_early(
    control: JobControl, request: Request, listed: Proposal, ground: Ground, regions: tuple[Region, Region]
) -> Proposal | None:
    """Return the proposal for what is `listed` so far; None if the rest of the list may change the machines, or where
    the bytes go.
    """
    from tradewind.engine.choice import why_not_worth

    if not listed.volume_bytes or listed.objects is None:
        return None
    try:
        made = placed(request, listed, ground, regions)
        more = (placed(request, larger, ground, regions) for larger in _larger(listed))
        if not all(_needs_the_same(made.plan, each.plan) for each in more):
            return None
    except InfeasibleGoal:
        return None
    if request.moved_by == "auto" and why_not_worth(control, request, made)[0] is not None:
        return None  # This machine is faster for what is listed, and perhaps not for the rest.
    found = f"{format_count(listed.objects, 'object')} and {format_volume(listed.volume_bytes / 1e9)}"
    note = f"the source is still being listed, {found} so far; the rest does not change the machines, so they start now"
    return replace(made, launch=replace(made.launch, is_early=True), notes=(*made.notes, note))


def _larger(listed: Proposal) -> Iterator[Proposal]:
    """Yield proposals for larger volumes, the largest first: it is the likeliest to need other machines."""
    assert listed.volume_bytes is not None and listed.objects is not None
    factors = [max(STEP, FAR_BYTES // listed.volume_bytes)]
    while factors[-1] > STEP:
        factors.append(-(-factors[-1] // STEP))
    for factor in factors:
        yield replace(listed, volume_bytes=listed.volume_bytes * factor, objects=listed.objects * factor)


def _needs_the_same(one: Plan, other: Plan) -> bool:
    """Return whether two plans need the same machines, connections and routes."""
    if one.overlay is None or other.overlay is None:
        return False
    if _machines(one.overlay) != _machines(other.overlay) or one.hops != other.hops:
        return False
    shares, others = ({route.nodes: route.share for route in plan.routes} for plan in (one, other))
    return shares.keys() == others.keys() and all(abs(shares[nodes] - others[nodes]) <= SAME_SHARE for nodes in shares)


def _machines(overlay: UnicastOverlay) -> set[tuple[Region, str, bool, str | None, int]]:
    return {
        (each.region, each.offer.machine.name, each.offer.spot, each.network_tier, each.count)
        for each in overlay.machines
    }
