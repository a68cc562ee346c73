"""The way that a job takes: its plan, how its gateways are started, and by which provider; all that resuming needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tradewind.fleet.fleet import FleetSettings
from tradewind.fleet.providers import LOCAL
from tradewind.model.plan import Plan, PlannedGateway, PlannedRoute, local_plan
from tradewind.transfer.topology import Topology, read_topology, topology_document, topology_from_document

if TYPE_CHECKING:
    from tradewind.transfer.replan import Question

__all__ = ["Ceiling", "Way", "local_way", "machines_ceiling", "planned_way", "single_way", "stored_way", "topology_way"]


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Most that egress and machines of a job may cost together [USD], over all its runs."""

    usd: float
    machines_usd_per_s: float
    """Of all machines, from launch."""
    boot_s: float
    earlier_usd: float = 0.0
    """What the machines of earlier runs, or before `since_s`, cost. The lead adds up what egress does."""
    since_s: float = 0.0
    """Of the present run: from when on these machines are paid for."""

    def spent_usd(self, egress_usd: float, elapsed_s: float) -> float:
        """What the job has cost when its present run has taken so long."""
        return self.earlier_usd + egress_usd + self.machines_usd_per_s * (self.boot_s + elapsed_s - self.since_s)

    def after(self, elapsed_s: float) -> Ceiling:
        """For the next run, when the last one took so long."""
        return replace(self, earlier_usd=self.spent_usd(0.0, elapsed_s), since_s=0.0)


@dataclass(frozen=True, slots=True)
class Way:
    """`document` is the topology as JSON, None for one process that is lead, source and sink."""

    plan: Plan
    document: Mapping[str, Any] | None = None
    provider: Mapping[str, Any] = field(default_factory=lambda: LOCAL)
    settings: FleetSettings = field(default_factory=FleetSettings)
    ceiling: Ceiling | None = None
    """Where one was asked for, and the plan says what machines cost."""
    question: Question | None = None
    """What the planner was asked, where it was; its answer is then watched."""
    replan: bool = False
    """Whether it may be asked again while the job runs, and the routes be changed."""


def local_way() -> Way:
    """This machine, no gateways in between."""
    return Way(local_plan())


def topology_way(path: str) -> Way:
    """As a topology file says, on this machine. Raises TopologyError."""
    return _way(read_topology(path), LOCAL)


def planned_way(
    plan: Plan,
    provider: Mapping[str, Any],
    *,
    ceiling_usd: float | None = None,
    question: Question | None = None,
    replan: bool = False,
) -> Way:
    """As the planner says, on a provider's machines."""
    ceiling = None if ceiling_usd is None else machines_ceiling(plan, ceiling_usd)
    settings = FleetSettings(grows=replan)
    return Way(plan, topology_document(plan), provider, settings, ceiling, question, replan)


def machines_ceiling(plan: Plan, usd: float) -> Ceiling | None:
    """A ceiling over egress and the plan's machines; None where the plan does not say what machines cost."""
    overlay = plan.overlay
    if overlay is None:
        return None
    return Ceiling(usd, sum(machines.count * machines.offer.usd_per_s for machines in overlay.machines), overlay.boot_s)


def single_way(region: str, provider: Mapping[str, Any]) -> Way:
    """One process that is lead, source and sink, on a provider's machine in a region."""
    return Way(
        Plan((PlannedGateway("local", region),), (), (PlannedRoute(("local", "local"), 1.0),), lead="local"),
        provider=provider,
    )


def stored_way(
    topology: Mapping[str, Any] | None, provider: Mapping[str, Any] | None, ceiling: Ceiling | None = None
) -> Way:
    """As a job's folder has it. Raises TopologyError."""
    if topology is None:
        return local_way()
    return replace(_way(topology_from_document(topology), provider or LOCAL), ceiling=ceiling)


def _way(shape: Topology, provider: Mapping[str, Any]) -> Way:
    settings = FleetSettings(shape.listen, shape.detours, shape.plain)
    return Way(shape.plan, shape.document, provider, settings)
