"""Compiles plan + deployment + job into one program per gateway. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from os.path import commonprefix

from tradewind.model.job import JobSpec, ObjectSelection, SeveralSelection
from tradewind.model.plan import Deployment, Plan, PlannedGateway
from tradewind.model.program import (
    CopyScope,
    DialSpec,
    GatewayLimits,
    HopSpec,
    KeyScope,
    ObjectScope,
    PrefixScope,
    Program,
    RouteSpec,
)
from tradewind.model.records import dataclass, replace

#: Connections from the lead to each source: orders and acks are small, and a second connection survives a loss.
LEAD_CONNECTIONS = 2
#: Minimum time after which a frozen or vanished gateway is noticed (a quarter of the stall limit): pings take time.
NOTICED_S_MIN = 2
#: Minimum timeout of a store, however short the stall limit.
IDLE_S_MIN = 5


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Facts of a run other than plan and job. `seal_key_hex` is secret and goes to sources and sinks only.

    `route_ids` are the numbers of routes by their gateways, if they differ from the plan's order.
    """

    job_id: str
    store_requests_max: int | None = None
    seal_key_hex: str | None = None
    route_ids: Mapping[tuple[str, ...], int] | None = None
    store_work_s: int | None = None
    dedup_window_bytes: int | None = None
    read_requests_start: int | None = None
    write_requests_start: int | None = None


def compile_programs(deployment: Deployment, job: JobSpec, settings: RunSettings) -> dict[str, Program]:
    """Return one program per gateway, by name, in the order in which to push them: sinks before their callers."""
    plan = deployment.plan
    ids = settings.route_ids or {route.nodes: index for index, route in enumerate(plan.routes)}
    routes = tuple(
        RouteSpec(ids[route.nodes], (plan.lead, *route.nodes), route.share, route.usd_per_gb) for route in plan.routes
    )
    gateways = {gateway.name: gateway for gateway in plan.gateways}
    programs = {}
    for name in push_order(plan):
        programs[name] = _program(gateways[name], routes, deployment, job, settings)
    return programs


def push_order(plan: Plan) -> tuple[str, ...]:
    """Return gateway names from the far end to the near end; the lead is last, because it starts the work."""
    distance: dict[str, int] = {}
    for route in plan.routes:
        for hops_to_sink, name in enumerate(reversed(route.nodes)):
            distance[name] = max(distance.get(name, 0), hops_to_sink)
    distance.pop(plan.lead, None)
    return (*sorted(distance, key=lambda name: (distance[name], name)), plan.lead)


def _program(
    gateway: PlannedGateway, routes: tuple[RouteSpec, ...], deployment: Deployment, job: JobSpec, settings: RunSettings
) -> Program:
    name = gateway.name
    mine = tuple(route for route in routes if name in route.nodes)
    is_source = any(route.nodes[1] == name for route in mine)
    is_sink = any(route.nodes[-1] == name for route in mine)
    is_lead = name == deployment.plan.lead
    return Program(
        job_id=settings.job_id,
        node=name,
        routes=mine,
        hops=_hops(name, mine, deployment),
        dials=_dials(name, mine, deployment),
        lead=job if is_lead else None,
        source=job.source if is_source else None,
        sinks=tuple(target.store for target in job.targets) if is_sink else (),
        reads=_reads(job) if is_source and not is_lead else None,
        writes=_writes(job) if is_sink and not is_lead else (),
        copies=_copies(job) if is_sink and not is_lead else None,
        seal_key_hex=settings.seal_key_hex if is_source or is_sink else None,
        limits=_limits(gateway, job, settings),
    )


def _reads(job: JobSpec) -> KeyScope:
    if isinstance(job.selection, ObjectSelection):
        return ObjectScope(job.selection.key)
    if isinstance(job.selection, SeveralSelection):
        # Character by character, as the gateway compares keys.
        return PrefixScope(commonprefix([member.key for member in job.selection.members]))  # noqa: RUF071
    return PrefixScope(job.selection.prefix)


def _writes(job: JobSpec) -> tuple[KeyScope, ...]:
    scope = ObjectScope if isinstance(job.selection, ObjectSelection) else PrefixScope
    return tuple(scope(target.key) for target in job.targets)


def _copies(job: JobSpec) -> CopyScope | None:
    return CopyScope(job.source.url.rsplit("/", 1)[-1], _reads(job)) if job.server_side_copy else None


def _hops(name: str, routes: tuple[RouteSpec, ...], deployment: Deployment) -> tuple[HopSpec, ...]:
    """Return the outgoing hops of a gateway."""
    return tuple(
        HopSpec(
            downstream,
            _connections(deployment, name, downstream),
            deployment.address(name, downstream) if deployment.upstream_dials(name, downstream) else None,
        )
        for upstream, downstream in _hop_ends(routes)
        if upstream == name
    )


def _dials(name: str, routes: tuple[RouteSpec, ...], deployment: Deployment) -> tuple[DialSpec, ...]:
    """Return the incoming hops that a gateway opens, because their upstream ends cannot."""
    return tuple(
        DialSpec(upstream, deployment.address(name, upstream), _connections(deployment, upstream, name))
        for upstream, downstream in _hop_ends(routes)
        if downstream == name and not deployment.upstream_dials(upstream, name)
    )


def _hop_ends(routes: tuple[RouteSpec, ...]) -> tuple[tuple[str, str], ...]:
    """Return the upstream and downstream end of each hop, once."""
    return tuple(
        dict.fromkeys(
            (upstream, downstream)
            for route in routes
            for upstream, downstream in zip(route.nodes, route.nodes[1:], strict=False)
            if upstream != downstream
        )
    )


def _connections(deployment: Deployment, upstream: str, downstream: str) -> int:
    planned = {(hop.start, hop.end): hop.connections for hop in deployment.plan.hops}
    return planned.get((upstream, downstream), LEAD_CONNECTIONS)


def _limits(gateway: PlannedGateway, job: JobSpec, settings: RunSettings) -> GatewayLimits:
    """Return the plan's limits, shortened for a job with a short stall limit."""
    limits = gateway.limits
    noticed_s = max(NOTICED_S_MIN, job.stall_s // 4)
    return replace(
        limits,
        peer_silence_s=min(limits.peer_silence_s, noticed_s),
        store_reach_s=min(limits.store_reach_s, max(1, job.stall_s * 3 // 4)),
        store_idle_s=min(limits.store_idle_s, max(IDLE_S_MIN, job.stall_s // 2)),
        store_requests_max=settings.store_requests_max or limits.store_requests_max,
        store_work_s=settings.store_work_s or limits.store_work_s,
        dedup_window_bytes=settings.dedup_window_bytes or limits.dedup_window_bytes,
        read_requests_start=settings.read_requests_start or limits.read_requests_start,
        write_requests_start=settings.write_requests_start or limits.write_requests_start,
    )
