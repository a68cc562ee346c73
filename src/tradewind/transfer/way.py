"""The way that a job takes: its plan, how its gateways are started, and by which provider; all that resuming needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tradewind.fleet.fleet import FleetSettings
from tradewind.fleet.providers import LOCAL
from tradewind.model.plan import Plan, PlannedGateway, PlannedRoute, local_plan
from tradewind.transfer.topology import Topology, read_topology, topology_document, topology_from_document

__all__ = ["Way", "local_way", "planned_way", "single_way", "stored_way", "topology_way"]


@dataclass(frozen=True, slots=True)
class Way:
    """`document` is the topology as JSON, None for one process that is lead, source and sink."""

    plan: Plan
    document: Mapping[str, Any] | None = None
    provider: Mapping[str, Any] = field(default_factory=lambda: LOCAL)
    settings: FleetSettings = field(default_factory=FleetSettings)
    ceiling_usd: float | None = None
    """Most that egress and machines may cost together, where the plan says what machines cost."""


def local_way() -> Way:
    """This machine, no gateways in between."""
    return Way(local_plan())


def topology_way(path: str) -> Way:
    """As a topology file says, on this machine. Raises TopologyError."""
    return _way(read_topology(path), LOCAL)


def planned_way(plan: Plan, provider: Mapping[str, Any], *, ceiling_usd: float | None = None) -> Way:
    """As the planner says, on a provider's machines."""
    return Way(plan, topology_document(plan), provider, ceiling_usd=ceiling_usd)


def single_way(region: str, provider: Mapping[str, Any]) -> Way:
    """One process that is lead, source and sink, on a provider's machine in a region."""
    return Way(
        Plan((PlannedGateway("local", region),), (), (PlannedRoute(("local", "local"), 1.0),), lead="local"),
        provider=provider,
    )


def stored_way(topology: Mapping[str, Any] | None, provider: Mapping[str, Any] | None) -> Way:
    """As a job's folder has it. Raises TopologyError."""
    if topology is None:
        return local_way()
    return _way(topology_from_document(topology), provider or LOCAL)


def _way(shape: Topology, provider: Mapping[str, Any]) -> Way:
    settings = FleetSettings(shape.listen, shape.detours, shape.plain)
    return Way(shape.plan, shape.document, provider, settings)
