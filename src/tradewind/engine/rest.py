"""Plans what earlier runs of a job have left, if its plan uses places that were closed meanwhile."""

from __future__ import annotations

from tradewind.engine.adapt import Adaptation
from tradewind.engine.closed import ClosedPlaces
from tradewind.engine.jobs import JobRecord, JobStore
from tradewind.engine.ledger import JobLedger
from tradewind.engine.stored import ProposalStore, plan_document, recorded_plan
from tradewind.engine.topology import topology_document
from tradewind.model.document import to_document
from tradewind.model.job import JobSpec
from tradewind.model.ledger import Ledger
from tradewind.model.plan import Plan

__all__ = ["plan_rest"]


def plan_rest(store: JobStore, record: JobRecord, ledger: Ledger, closed: ClosedPlaces) -> Plan:
    """Return the plan of the next run of a job that does not run, and record it if it is new.

    It is the latest one, unless that uses places that are closed and the rest can be planned without them. `ledger` is
    the cost of earlier runs. Raises StateError, TopologyError.
    """
    plan = recorded_plan(store, record, latest=True)
    launch = ProposalStore(store.database).launch_of(record.id)
    if plan.overlay is None or launch is None or launch.plan_request is None:
        return plan

    def keep(plan: Plan, spec: JobSpec) -> None:
        store.add_plan(record.id, spec, topology_document(plan), plan_document(plan))

    now_s = store.unix_s()
    adaptation = Adaptation(
        launch.plan_request,
        plan,
        JobSpec.from_document(record.document["spec"]),
        replan=launch.replan,
        on_change=keep,
        ledger=JobLedger(ledger.ended(now_s), None, unix_s=now_s),
        earlier_s=max(0.0, now_s - record.created_unix_ms / 1000),
    )
    adaptation.plan_around(closed, to_document(record.progress))
    return adaptation.plan
