"""Moves a running job whose routes have changed to the resources that it uses now, and releases the others.

Its rate stays. If a new resource is closed or has no room for the job, its run must stop: limits also apply to jobs
that started on other routes.
"""

from __future__ import annotations

from collections.abc import Iterable

from tradewind.service.scheduler.admission import Admitter, Grant
from tradewind.service.scheduler.job_states import JobState
from tradewind.service.scheduler.jobs import Binding, Resource, resources_of
from tradewind.service.scheduler.limits import ROUNDING, Limits
from tradewind.service.scheduler.tuned_links import TunedLinks
from tradewind.service.scheduler.turns import Turns

__all__ = ["regrant", "why_not_there"]


def why_not_there(state: JobState, resources: Iterable[Resource], admitter: Admitter, now_s: float) -> str | None:
    """Return why a running job may not use some further resources; None if it may."""
    grant, limits = state.grant, admitter.limits
    assert grant is not None
    fresh = [one for one in resources if one not in grant.resources]
    if ban := admitter.bans.in_force(fresh, now_s):
        return f"its routes have changed, and {ban.resource} is closed by ban {ban.id}: {ban.reason}"
    unspent_usd = _unspent_usd(state, grant)
    full = next((one for one in fresh if not _has_room(limits, one, state.job.tenant, grant, unspent_usd)), None)
    return None if full is None else f"its routes have changed, and the limit of {full} is reached"


def _has_room(limits: Limits, resource: Resource, tenant: str, grant: Grant, unspent_usd: float) -> bool:
    used, limit = limits.usage(resource), limits.limit(resource)
    has_slot = limit.active is None or used.active < limit.active
    sum_gbps = used.rate_gbps + limits.sold.kept_gbps(resource, tenant) + grant.rate_gbps
    has_rate = sum_gbps <= limit.rate_gbps * (1 + ROUNDING)
    return has_slot and has_rate and not limit.is_closed and limits.has_money(resource, unspent_usd)


def _unspent_usd(state: JobState, grant: Grant) -> float:
    unsent = max(0, state.left_bytes - state.moved_bytes)
    return grant.usd * unsent / state.left_bytes if state.left_bytes else 0.0


def regrant(
    state: JobState, binding: Binding, admitter: Admitter, tuned: TunedLinks, turns: Turns, now_s: float
) -> list[Resource]:
    """Count a running job for a new binding; return the resources that it has given back."""
    grant, limits, tenant = state.grant, admitter.limits, state.job.tenant
    assert grant is not None
    resources = resources_of(state.job, binding)
    gone = [one for one in grant.resources if one not in resources]
    fresh = [one for one in resources if one not in grant.resources]
    unsent = max(0, state.left_bytes - state.moved_bytes)
    unspent_usd = _unspent_usd(state, grant)
    limits.release(gone, grant.rate_gbps, unspent_usd)
    limits.take(fresh, grant.rate_gbps, unspent_usd)
    limits.sold.stop(state.job.id, tenant, gone)
    limits.sold.start(state.job.id, tenant, fresh, grant.rate_gbps, state.runs[-1][0])
    for resource in (one for one in gone if one in state.charged):
        turns.noted_at(resource).shares.charge(tenant, state.job.activity, -unsent)
    charged = [one for one in fresh if turns.noted_at(one).shares.charge(tenant, state.job.activity, unsent)]
    state.charged = [*(one for one in state.charged if one not in gone), *charged]
    tuned.rerouted(state, binding, now_s)
    state.grant = Grant(binding, resources, grant.rate_gbps, grant.usd)
    return gone
