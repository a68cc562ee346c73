"""Proposals and plans in the database, so that another process can start a proposal, and a later one replan its job.

A plan is stored completely, with all figures of the planner, so that every later figure comes from the same plan. A
proposal is kept with the request to the planner. Its catalog is kept once for all proposals that were made with it.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tradewind.engine.launch_spec import LaunchSpec
from tradewind.engine.request import Options, Via
from tradewind.errors import UsageError
from tradewind.model.document import Codec, parse_json
from tradewind.model.goal import Goal
from tradewind.model.guest import Guest
from tradewind.model.network_tier import NetworkTierChoice
from tradewind.model.plan import Plan
from tradewind.model.records import dataclass
from tradewind.model.sites import NO_SITES, Sites
from tradewind.state.database import Database

if TYPE_CHECKING:
    from tradewind.engine.jobs import JobRecord, JobStore
    from tradewind.model.catalog import Catalog

__all__ = [
    "PROPOSAL_S_MAX",
    "KeptProposal",
    "KeptRequest",
    "ProposalStore",
    "changed_prices",
    "plan_document",
    "plan_from_document",
    "recorded_plan",
]

#: Maximum age at which a proposal can be started, if its prices still hold.
PROPOSAL_S_MAX = 24 * 3600.0


@dataclass(frozen=True)
class KeptRequest:
    """A Request with places as text, and absolute paths."""

    source: tuple[str, ...]
    destination: tuple[str, ...]
    options: Options
    verb: str
    topology: str | None
    sky: str | None
    via: Via | None
    goal: Goal | None
    ceiling_usd: float | None
    ceiling_usd_per_gb: float | None
    machines_per_region: int | None
    replan: bool
    compression_ratio: float = 1.0
    sites: Sites = NO_SITES
    unasked_usd: float | None = None
    tier: NetworkTierChoice | None = None
    routes_max: int | None = None
    guest: Guest | None = None


@dataclass(frozen=True)
class KeptProposal:
    """A Proposal without its plan, which is in its launch."""

    request: KeptRequest
    options: Options
    launch: LaunchSpec
    volume_bytes: int | None
    objects: int | None
    notes: tuple[str, ...]


class ProposalStore:
    """The proposals of one state folder."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, proposal_id: str, proposal: KeptProposal) -> None:
        """Keep a proposal for PROPOSAL_S_MAX, and forget older ones that were not started. Raises StateError."""
        document = _codec(proposal.launch).encode(KeptProposal, proposal)
        digest, catalog = _without_catalog(document)
        now_ms = time.time_ns() // 1_000_000
        with self._database.transaction(durable=False) as connection:
            connection.execute("DELETE FROM proposals WHERE job IS NULL AND expires_unix_ms < ?", (now_ms,))
            connection.execute(
                "DELETE FROM catalogs WHERE digest NOT IN (SELECT catalog FROM proposals WHERE catalog IS NOT NULL)"
            )
            if digest is not None:
                connection.execute("INSERT OR IGNORE INTO catalogs VALUES (?, ?)", (digest, catalog))
            connection.execute(
                "INSERT INTO proposals VALUES (?, ?, ?, NULL, ?, ?)",
                (proposal_id, now_ms, now_ms + round(PROPOSAL_S_MAX * 1000), digest, json.dumps(document)),
            )

    def load(self, proposal_id: str) -> KeptProposal:
        """Return a proposal that can be started. Raises UsageError if it does not exist or can no longer be started;
        StateError.
        """
        hint = "propose again"
        found = self._database.row("SELECT job, expires_unix_ms FROM proposals WHERE id = ?", (proposal_id,))
        if found is None:
            raise UsageError(f"no proposal {proposal_id}", hint=hint)
        job, expires_unix_ms = found
        if job is not None:
            raise UsageError(f"proposal {proposal_id} was started as job {job}", hint=hint)
        if expires_unix_ms < time.time() * 1000:
            raise UsageError(f"proposal {proposal_id} has expired", hint=hint)
        try:
            return self._kept(proposal_id)
        except ValueError as error:
            raise UsageError(f"proposal {proposal_id} is unreadable: {error}", hint=hint) from None

    def job_of(self, proposal_id: str) -> str | None:
        """Return the job that was made of a proposal; None if it was not started. Raises StateError."""
        found = self._database.row("SELECT job FROM proposals WHERE id = ?", (proposal_id,))
        return None if found is None else found[0]

    def launch_of(self, job_id: str) -> LaunchSpec | None:
        """Return the launch in a job's proposal, with its request to the planner.

        None for a job without a proposal, or if this version cannot read it. Raises StateError.
        """
        found = self._database.row("SELECT id FROM proposals WHERE job = ?", (job_id,))
        if found is None:
            return None
        with suppress(ValueError):
            return self._kept(found[0]).launch
        return None

    def _kept(self, proposal_id: str) -> KeptProposal:
        """Return the stored proposal. Raises ValueError."""
        found = self._database.row(
            "SELECT proposals.document, catalogs.document FROM proposals LEFT JOIN catalogs ON catalog = digest"
            " WHERE id = ?",
            (proposal_id,),
        )
        if found is None:
            raise ValueError("it was removed")
        import zlib

        document = parse_json(found[0])
        try:
            request = document["launch"].get("plan_request")
            if request is not None:
                request["catalog"] = parse_json(zlib.decompress(found[1]))
            _update_routes(document["launch"].get("plan"))
        except (AttributeError, KeyError, TypeError, zlib.error) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        return _codec(request).decode(KeptProposal, document)


def plan_document(plan: Plan) -> str:
    """Return a plan as JSON, with all figures of the planner."""
    return json.dumps(_codec(plan.overlay).encode(Plan, plan))


def plan_from_document(text: str) -> Plan:
    """Return the plan of `plan_document`. Raises ValueError, TopologyError."""
    document = parse_json(text)
    _update_routes(document)
    return _codec(document.get("overlay") if isinstance(document, dict) else None).decode(Plan, document)


def _update_routes(plan: Any) -> None:
    """Rewrite the routes of an older version, which named only the network tier of the source's machines."""
    overlay = plan.get("overlay") if isinstance(plan, dict) else None
    routes = overlay.get("routes") if isinstance(overlay, dict) else None
    for route in routes if isinstance(routes, list) else ():
        regions = route.get("regions") if isinstance(route, dict) else None
        if isinstance(regions, list) and route.get("network_tier") is not None:
            route["network_tiers"] = [route.pop("network_tier"), *(None for _ in regions[1:])]


def recorded_plan(store: JobStore, record: JobRecord, *, latest: bool = False) -> Plan:
    """Return the first plan of a job, to which its predicted figures belong, or the latest one. It has all figures
    of the planner. Raises StateError, TopologyError.
    """
    document = store.plan(record.id, latest=latest)
    with suppress(ValueError):  # Jobs of older versions have only a topology.
        if document is not None:
            return plan_from_document(document)
    from tradewind.engine.topology import plan_of

    return plan_of(record.document["topology"])


def recorded_plans(store: JobStore, record: JobRecord) -> tuple[Plan, ...]:
    """Return all plans of a job, the first one first. Raises StateError, TopologyError."""
    try:
        found = tuple(map(plan_from_document, store.plans(record.id)))
    except ValueError:  # Jobs of older versions have only a topology.
        found = ()
    return found or (recorded_plan(store, record),)


def changed_prices(plan: Plan, then: Catalog, now: Catalog) -> list[str]:
    """Return the parts of a plan whose price has changed: `egress aws:us-east-1 → gcp:us-east1`."""
    if plan.overlay is None:
        return []
    changed = []
    for machines in plan.overlay.machines:
        offers = {(offer.machine.name, offer.spot): offer for offer in now.machine_offers(machines.region)}
        offer, found = machines.offer, offers.get((machines.offer.machine.name, machines.offer.spot))
        before = offer.usd_per_hour, offer.machine.billed_s_min
        if found is None or (found.usd_per_hour, found.machine.billed_s_min) != before:
            changed.append(f"machine {offer.name} in {machines.region}")
    for edge in plan.overlay.edges:
        old, new = (plan.overlay.known_to(catalog, edge).egress(edge.src, edge.dst) for catalog in (then, now))
        if (old and (old.tiers, old.counted)) != (new and (new.tiers, new.counted)):
            changed.append(f"egress {edge.src} → {edge.dst}")
    for provider in {plan.overlay.source.provider, plan.overlay.destination.provider}:
        stores = then.stores.get(provider), now.stores.get(provider)
        if (stores[0] and stores[0].request_prices) != (stores[1] and stores[1].request_prices):
            changed.append(f"requests of {provider}")
    return changed


def _codec(planned: Any) -> Codec:
    """Return the codec, with the planner's types only if they are needed, because they load slowly."""
    if not isinstance(planned, LaunchSpec):
        is_planned = planned is not None
    else:
        is_planned = planned.plan_request is not None or planned.plan.overlay is not None
    if is_planned not in _codecs:
        names: dict[str, Any] = {"PlanRequest": type(None), "UnicastOverlay": type(None)}
        if is_planned:
            from tradewind.engine.replan import PlanRequest
            from tradewind.model.overlay import UnicastOverlay

            names = {"PlanRequest": PlanRequest, "UnicastOverlay": UnicastOverlay}
        _codecs[is_planned] = Codec(**names)
    return _codecs[is_planned]


_codecs: dict[bool, Codec] = {}


def _without_catalog(document: dict[str, Any]) -> tuple[str | None, bytes | None]:
    """Remove the catalog from a proposal's document; return its digest and the compressed catalog."""
    request = document["launch"].get("plan_request")
    if request is None:
        return None, None
    text = json.dumps(request.pop("catalog"), sort_keys=True).encode()
    import zlib
    from hashlib import sha256

    return sha256(text).hexdigest(), zlib.compress(text)
