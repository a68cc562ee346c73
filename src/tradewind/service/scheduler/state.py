"""The scheduler: events and `now` in, decisions out. It is the same in the service and in the simulator.

After each event, no waiting job can start: every queue is blocked, and noted at the resources that block it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tradewind.errors import UsageError
from tradewind.model.records import replace
from tradewind.service.scheduler import events
from tradewind.service.scheduler.admission import Admitter, Grant
from tradewind.service.scheduler.bans import Ban
from tradewind.service.scheduler.ends import run_s, see_progress
from tradewind.service.scheduler.estimates import Estimates
from tradewind.service.scheduler.eta import Eta
from tradewind.service.scheduler.events import (
    Decision,
    FailJob,
    RebindJob,
    RefuseJob,
    SchedulerEvent,
    StartJob,
    StopJob,
)
from tradewind.service.scheduler.job_states import (
    DELAYED_PHASE,
    OWNED_PHASE,
    PAUSED_PHASE,
    QUEUED_PHASE,
    RUNNING_PHASE,
    RUNS_MAX,
    JobState,
)
from tradewind.service.scheduler.jobs import (
    LINK,
    SITE,
    Binder,
    Binding,
    Resource,
    ServiceJob,
    resources_of,
    resources_of_store,
    store_of_tenant,
)
from tradewind.service.scheduler.limits import DAY_S
from tradewind.service.scheduler.ownership import Ownership
from tradewind.service.scheduler.reroutes import regrant, why_not_there
from tradewind.service.scheduler.retry import CLASSES, STORE_DOWN, retry_wait_s
from tradewind.service.scheduler.sold import Right
from tradewind.service.scheduler.timers import Timers
from tradewind.service.scheduler.tuned_links import TunedLinks, tuned_names
from tradewind.service.scheduler.turns import Turns
from tradewind.service.scheduler.why import NOT_YET, OWNED, PAUSED, RETRYING, TURN, WaitCause, WaitReason, sentence
from tradewind.service.scheduler.withheld import withheld_gbps

__all__ = ["Scheduler"]

STORE_DOWN_WAIT_S = 30.0
"""Wait after a run that failed because its store is down, if the store is not known to be down by then."""

UNPROVEN_S_MAX = 60.0
"""Time after which a run that has written nothing, and may have no right to, lets jobs of other tenants go first."""


class Scheduler:
    """Decides which job starts next.

    Jobs, resources and queues are kept in memory. After a restart the service sends `JobRestored` for each job. With
    `tunes_links` it also decides how many jobs each link runs.
    """

    def __init__(self, binder: Binder, *, tunes_links: bool = False) -> None:
        self._jobs: dict[str, JobState] = {}
        self._numbers = 0
        self._admitter = Admitter(binder)
        self._tuned = TunedLinks(self._admitter.limits, is_on=tunes_links)
        self._ownership = Ownership()
        self._turns = Turns(self._jobs, self._admitter, self._start)
        self._timers = Timers()
        self._estimates = Estimates(self._jobs, self._admitter, self._ownership, self._turns.queue_of, self._causes)
        #: Running jobs that are not proven.
        self._unproven: dict[str, None] = {}
        self._decisions: list[Decision] = []
        self._now_s = 0.0

    def handle(self, now_s: float, event: SchedulerEvent) -> list[Decision]:
        """Return what to do after an event. Times must not go backwards; an earlier one counts as the latest."""
        self._now_s = max(now_s, self._now_s)
        self._decisions = []
        self._run_timers()
        self._tune()
        _HANDLERS[type(event)](self, event)
        self._turns.serve(self._now_s)
        return self._decisions

    def next_wakeup_s(self) -> float:
        """Return when to send `TimePassed` if nothing else happens before; infinity if never."""
        midnight_s = (self._now_s // DAY_S + 1) * DAY_S if self._admitter.limits.has_costs else math.inf
        return min(self._timers.next_s(), midnight_s, self._tuned.next_s())

    def phase(self, job_id: str) -> str | None:
        """Return the phase of a job; None if it has ended or is unknown."""
        state = self._jobs.get(job_id)
        return state.phase if state else None

    def why(self, job_id: str) -> WaitReason | None:
        """Return why a job waits; None if it runs, has ended or is unknown."""
        state = self._jobs.get(job_id)
        if state is None or state.phase == RUNNING_PHASE:
            return None
        causes = self._causes(state)
        others = [one.subject for one in causes if self._is_of_another(one.subject, state.job.tenant)]
        return WaitReason(sentence(causes, hidden=others), tuple(causes))

    def withheld_gbps(self) -> dict[tuple[str, str], float]:
        """Return what the service withholds now of sold bandwidth, by the name of the link and the tenant [Gbit/s]."""
        return withheld_gbps(self._jobs, self._turns.queues, self._admitter, self._now_s)

    def utilisation(self) -> dict[Resource, float]:
        """Return the used share of each link and site that runs jobs. Links to hosts of users are left out."""
        used = self._admitter.limits.utilisation((LINK, SITE))
        return {one: share for one, share in used.items() if one.kind == SITE or tuned_names([one.name])}

    def _is_of_another(self, job_id: str, tenant: str) -> bool:
        """Return whether a job belongs to another tenant, which must not learn of it."""
        other = self._jobs.get(job_id)
        return other is not None and other.job.tenant != tenant

    def eta(self, job_id: str) -> Eta | None:
        """Return when a job ends; None if that depends on people: a pause, a ban, a store that is down, no route."""
        state = self._jobs.get(job_id)
        return None if state is None else self._estimates.eta(state, self._now_s)

    def _causes(self, state: JobState) -> list[WaitCause]:
        if state.phase == PAUSED_PHASE:
            return [WaitCause(PAUSED)]
        if state.phase == OWNED_PHASE:
            return [WaitCause(OWNED, subject=self._ownership.first_owner(state.job.id))]
        if state.phase == DELAYED_PHASE:
            kind = RETRYING if state.failure else NOT_YET
            return [WaitCause(kind, subject=state.failure, until_s=state.not_before_s)]
        queue = self._turns.queue_of(state.job)
        granted = self._admitter.admit(state.job, state.left_bytes, queue, self._now_s)
        if isinstance(granted, Grant):
            first = queue.first()
            return [WaitCause(TURN, subject=first[1] if first else "")]
        return granted

    def _submit(self, event: events.JobSubmitted) -> None:
        job = event.job
        if job.id in self._jobs:
            self._decisions.append(RefuseJob(job.id, "a job with this id exists"))
            return
        if ban := self._admitter.bans.refusing(job.tenant, job.sources, job.destinations, self._now_s):
            self._decisions.append(RefuseJob(job.id, f"ban {ban.id} refuses new jobs: {ban.reason}"))
            return
        self._numbers += 1
        state = JobState(job, self._numbers, job.size_bytes, not_before_s=job.not_before_s)
        self._jobs[job.id] = state
        self._claim(state)
        self._estimates.set(state, self._now_s)

    def _restore(self, event: events.JobRestored) -> None:
        job, failure, moved_bytes = event.job, event.failure, min(event.moved_bytes, event.job.size_bytes)
        if job.id in self._jobs:
            return
        self._numbers += 1
        left_bytes = job.size_bytes - moved_bytes
        state = JobState(job, self._numbers, left_bytes, failure=failure, failures=dict(event.failures))
        state.not_before_s = max(event.not_before_s, job.not_before_s)
        self._jobs[job.id] = state
        if event.binding is not None:
            self._ownership.claim(job)
            self._restore_run(state, event, event.binding)
            return
        self._claim(state)
        self._estimates.set(state, self._now_s)
        if failure in CLASSES and state.failures.get(failure, 0) > CLASSES[failure].attempts:
            self._fail(state)

    def _restore_run(self, state: JobState, event: events.JobRestored, binding: Binding) -> None:
        resources = resources_of(state.job, binding)
        usd = state.job.cost_usd(state.left_bytes, binding.usd_per_gb)
        self._admitter.limits.take(resources, event.rate_gbps, usd)
        self._admitter.limits.sold.start(state.job.id, state.job.tenant, resources, event.rate_gbps, event.started_s)
        state.phase, state.grant = RUNNING_PHASE, Grant(binding, resources, event.rate_gbps, usd)
        self._tuned.started(state, self._now_s, is_known=False)
        self._note_unproven(state.job)
        state.runs = [(event.started_s, run_s(state.left_bytes, event.rate_gbps))]
        state.since_s, state.estimate_s, state.estimate_kind = state.job.submitted_s, state.runs[0][1], QUEUED_PHASE
        if ban := self._admitter.bans.stopping(resources, self._now_s):
            self._withdraw(state, f"ban {ban.id}: {ban.reason}")
            self._make_ready(state)

    def _restore_link(self, event: events.LinkRestored) -> None:
        self._tuned.restore(event)
        self._turns.free([Resource(LINK, event.link)])

    def _tune(self) -> None:
        """Decide how many jobs links run, if that is due. Queues try again where more may."""
        for tuned in self._tuned.decide(self._now_s, self._turns.has_waiting):
            self._decisions.append(tuned)
            if tuned.changes:
                self._turns.free([Resource(LINK, tuned.link)])

    def _count_cost(self, event: events.CostCounted) -> None:
        self._admitter.limits.spend(event.resources, event.usd)

    def _claim(self, state: JobState) -> None:
        if self._ownership.claim(state.job, lambda other: self._yields(other, state.job)):
            self._make_ready(state)
        else:
            state.phase = OWNED_PHASE

    def _yields(self, other_id: str, job: ServiceJob) -> bool:
        """Return whether another job lets one go first: it waits, and nothing shows that its tenant may write there."""
        other = self._jobs.get(other_id)
        return other is not None and not other.job.is_proven and not other.grant and other.job.tenant != job.tenant

    def _end_idle_claims(self) -> None:
        """Stop runs that have written nothing, and may have no right to, while other tenants wait for their places."""
        for job_id in list(self._unproven):
            state = self._jobs[job_id]
            is_idle = state.moved_bytes == 0 and self._now_s - state.runs[-1][0] > UNPROVEN_S_MAX
            tenants = {self._jobs[other].job.tenant for other in self._ownership.later(job_id)} if is_idle else set()
            if tenants - {state.job.tenant}:
                self._withdraw(state, "it has written nothing yet, and another job waits for the place")
                self._disown(state)
                self._claim(state)

    def _make_ready(self, state: JobState) -> None:
        """Queue a job that may write, or wait for its time."""
        if state.not_before_s > self._now_s:
            state.phase = DELAYED_PHASE
            self._timers.set(state.not_before_s, "job", state.job.id)
            return
        state.phase = QUEUED_PHASE
        self._estimates.note_closed(state, self._now_s)
        self._turns.add(state)

    def _start(self, state: JobState, grant: Grant) -> None:
        self._admitter.limits.take(grant.resources, grant.rate_gbps, grant.usd)
        tenant, activity, sold = state.job.tenant, state.job.activity, self._admitter.limits.sold
        # Bandwidth that was bought does not count against the fair share.
        shared = [one for one in grant.resources if sold.left_gbps(one, tenant) < grant.rate_gbps]
        shares = {one: self._turns.noted_at(one).shares for one in shared}
        state.charged = [one for one, share in shares.items() if share.charge(tenant, activity, state.left_bytes)]
        sold.start(state.job.id, tenant, grant.resources, grant.rate_gbps, self._now_s)
        state.phase, state.grant, state.moved_bytes = RUNNING_PHASE, grant, 0
        self._tuned.started(state, self._now_s)
        state.runs = [*state.runs[-RUNS_MAX:], (self._now_s, run_s(state.left_bytes, grant.rate_gbps))]
        self._note_unproven(state.job)
        is_limited = self._admitter.limits.has_rate_limit(grant.resources)
        requests = self._tuned.start_of(grant.binding)
        self._decisions.append(StartJob(state.job.id, grant.binding, grant.rate_gbps, is_limited, requests))

    def _note_unproven(self, job: ServiceJob) -> None:
        if not job.is_proven:
            self._unproven[job.id] = None

    def _end_run(self, state: JobState, moved_bytes: int, spent_usd: float | None = None) -> None:
        """Give back what a running job uses, and count what it moved, and what that cost if it is known."""
        grant = state.grant
        if grant is None:
            return
        self._unproven.pop(state.job.id, None)
        self._tuned.left(state)
        moved_bytes = min(max(moved_bytes, state.moved_bytes), state.left_bytes)
        unsent = state.left_bytes - moved_bytes
        unspent = grant.usd * unsent / state.left_bytes if state.left_bytes else 0.0
        if spent_usd is not None:
            unspent = grant.usd - spent_usd
        self._admitter.limits.release(grant.resources, grant.rate_gbps, unspent)
        self._admitter.limits.sold.stop(state.job.id, state.job.tenant, grant.resources)
        for resource in state.charged if unsent else ():
            self._turns.noted_at(resource).shares.charge(state.job.tenant, state.job.activity, -unsent)
        state.left_bytes, state.grant, state.moved_bytes = unsent, None, 0
        state.seen, state.seen_share = [], 0.0
        self._turns.free(grant.resources)

    def _ended(self, event: events.RunEnded) -> None:
        state = self._jobs.get(event.job_id)
        if state is None:
            return
        self._estimates.ends.learn(state, self._now_s)
        moved_bytes = state.left_bytes if event.moved_bytes is None else event.moved_bytes
        self._tuned.ended(state, moved_bytes, None, self._now_s)
        self._end_run(state, state.left_bytes, event.spent_usd)
        self._remove(state)

    def _failed(self, event: events.RunFailed) -> None:
        state = self._jobs.get(event.job_id)
        if state is None or state.grant is None:
            return
        if event.kind != STORE_DOWN and event.kind not in CLASSES:
            raise UsageError(f"no such retry class: {event.kind}", hint=f"one of {', '.join([*CLASSES, STORE_DOWN])}")
        self._tuned.ended(state, event.moved_bytes, event.kind, self._now_s)
        self._end_run(state, event.moved_bytes, event.spent_usd)
        state.failure = event.kind
        if event.kind == STORE_DOWN:
            is_known = self._admitter.down_for(state.job) is not None
            state.not_before_s = self._now_s + (0.0 if is_known else STORE_DOWN_WAIT_S)
            self._make_ready(state)
            return
        rule, count = CLASSES[event.kind], state.failures.get(event.kind, 0) + 1
        state.failures[event.kind] = count
        if count > rule.attempts:
            self._fail(state)
            return
        state.not_before_s = self._now_s + retry_wait_s(rule, state.job.id, count)
        self._make_ready(state)

    def _fail(self, state: JobState) -> None:
        """Fail a job whose last failure has used all attempts of its class."""
        kind = state.failure
        reason = f"{CLASSES[kind].meaning} ({kind}, {state.failures[kind]} times)"
        self._decisions.append(FailJob(state.job.id, reason))
        self._remove(state)

    def _progressed(self, event: events.RunProgressed) -> None:
        state = self._jobs.get(event.job_id)
        if state is not None and state.grant is not None:
            see_progress(state, event, self._now_s)
            self._tuned.progressed(state, event.moved_bytes, self._now_s)
            state.requests = event.requests or state.requests

    def _rerouted(self, event: events.RunRerouted) -> None:
        """Count a running job for its present routes, or stop it if it may not use them."""
        state = self._jobs.get(event.job_id)
        if state is None or state.grant is None or set(event.links) == set(state.grant.binding.links):
            return
        state.job = replace(state.job, links=event.links, planned_gbps=event.planned_gbps)
        binding = next(iter(self._admitter.bindings(state.job)))
        resources = resources_of(state.job, binding)
        reason = why_not_there(state, resources, self._admitter, self._now_s)
        if reason is not None:
            self._withdraw(state, reason)
            self._make_ready(state)
            self._estimates.set_anew([state], self._now_s)
            return
        self._decisions.append(RebindJob(state.job.id, binding))
        self._turns.free(regrant(state, binding, self._admitter, self._tuned, self._turns, self._now_s))

    def _replanned(self, event: events.JobReplanned) -> None:
        """Let a job wait for its present routes. It keeps its place among jobs that write to the same objects."""
        state = self._jobs.get(event.job.id)
        if state is None or state.grant is not None:
            return
        is_queued = state.phase == QUEUED_PHASE
        if is_queued:
            self._turns.remove(state)
        state.job = event.job
        if is_queued:
            self._make_ready(state)
            self._estimates.set_anew([state], self._now_s)

    def _withdraw(self, state: JobState, reason: str, spent_usd: float | None = None) -> None:
        """Stop a job's run, or take the job out of its queue."""
        if state.grant:
            self._decisions.append(StopJob(state.job.id, reason))
            self._end_run(state, state.moved_bytes, spent_usd)
        elif state.phase == QUEUED_PHASE:
            self._turns.remove(state)

    def _remove(self, state: JobState) -> None:
        if state.phase == QUEUED_PHASE:
            self._withdraw(state, "")
        del self._jobs[state.job.id]
        self._disown(state)

    def _disown(self, state: JobState) -> None:
        for other in self._ownership.release(state.job):
            # A restored job may run although others claimed the place before.
            if self._jobs[other].phase == OWNED_PHASE:
                self._make_ready(self._jobs[other])

    def _cancelled(self, event: events.JobCancelled) -> None:
        state = self._jobs.get(event.job_id)
        if state:
            self._withdraw(state, "the job was cancelled", event.spent_usd)
            state.phase = PAUSED_PHASE
            self._remove(state)

    def _paused(self, event: events.JobPaused) -> None:
        state = self._jobs.get(event.job_id)
        if state and state.phase != PAUSED_PHASE:
            self._withdraw(state, "the job was paused")
            state.phase = PAUSED_PHASE
            self._disown(state)

    def _resumed(self, event: events.JobResumed) -> None:
        state = self._jobs.get(event.job_id)
        if state and state.phase == PAUSED_PHASE:
            self._claim(state)

    def _set_limit(self, event: events.LimitSet) -> None:
        before = self._admitter.limits.limit(event.resource)
        self._admitter.limits.set(event.resource, event.limit)
        if before.is_closed or event.limit.is_closed:
            self._estimates.refresh(self._now_s)
        elif before.rate_gbps != event.limit.rate_gbps:
            # A limit below its minimum rate closes a resource for a job.
            self._estimates.refresh(self._now_s, lambda job: job.rate_gbps_min > 0)
        self._turns.free([event.resource])

    def _sell(self, event: events.BandwidthSold) -> None:
        if event.until_s <= self._now_s:
            return
        right = Right(event.rate_gbps, event.since_s, event.until_s)
        self._admitter.limits.sold.add(event.resource, event.tenant, right)
        self._timers.set(event.until_s, "sold-end", event.resource.name)
        self._turns.free([event.resource])

    def _set_weight(self, event: events.WeightSet) -> None:
        if not 0 < event.weight < math.inf:
            raise UsageError(f"the weight of {event.tenant} is not above 0", hint="pause a tenant with a limit of 0")
        self._turns.weights.set(event.tenant, event.activity, event.weight)

    def _ban(self, event: events.BanSet) -> None:
        ban = event.ban
        replaced = self._admitter.bans.get(ban.id)
        self._admitter.bans.add(ban)
        if replaced:
            self._estimates.refresh(self._now_s)
            self._turns.free([replaced.resource])
        if ban.start_s > self._now_s:
            self._timers.set(ban.start_s, "ban-start", ban.id)
        else:
            self._begin_ban(ban)
        if ban.end_s < math.inf:
            self._timers.set(ban.end_s, "ban-end", ban.id)

    def _begin_ban(self, ban: Ban) -> None:
        if not ban.start_s <= self._now_s < ban.end_s:
            return
        if ban.stops_jobs:
            self._stop_all([ban.resource], f"ban {ban.id}: {ban.reason}")
        self._estimates.refresh(self._now_s)

    def _stop_all(self, resources: list[Resource], reason: str, tenant: str = "") -> None:
        """Stop and queue the running jobs of all tenants, or of one, that use a resource.

        It may look at all jobs, because operators do this, or a store that does not answer.
        """
        stopped = []
        for state in list(self._jobs.values()):
            is_meant = tenant in ("", state.job.tenant)
            if state.grant and is_meant and not set(resources).isdisjoint(state.grant.resources):
                self._withdraw(state, reason)
                self._make_ready(state)
                stopped.append(state)
        self._estimates.set_anew(stopped, self._now_s)

    def _lift(self, event: events.BanLifted) -> None:
        ban = self._admitter.bans.lift(event.ban_id)
        if ban:
            self._estimates.refresh(self._now_s)
            self._turns.free([ban.resource])

    def _store_down(self, event: events.StoreDown) -> None:
        self._admitter.down[event.store, event.tenant] = event.where
        self._stop_all(resources_of_store(event.store), f"store {event.store} does not answer", event.tenant)
        self._estimates.refresh(self._now_s, lambda job: _uses(job, event.store, event.tenant))
        self._end_delays(event.store, event.tenant)

    def _store_up(self, event: events.StoreUp) -> None:
        self._admitter.down.pop((event.store, event.tenant), None)
        self._estimates.refresh(self._now_s, lambda job: _uses(job, event.store, event.tenant))
        own = [store_of_tenant(event.store, event.tenant)]
        self._turns.free(own if event.tenant else resources_of_store(event.store))
        self._end_delays(event.store, event.tenant)

    def _end_delays(self, store: str, tenant: str) -> None:
        """Queue the jobs that wait because the store did not answer. It may look at all jobs, like `_stop_all`."""
        for state in list(self._jobs.values()):
            if state.phase == DELAYED_PHASE and state.failure == STORE_DOWN and _uses(state.job, store, tenant):
                state.not_before_s = state.job.not_before_s
                self._make_ready(state)

    def _routes_changed(self, event: events.RoutesChanged) -> None:
        self._turns.try_all()

    def _time_passed(self, event: events.TimePassed) -> None:
        """Timers have run already."""
        self._end_idle_claims()

    def _run_timers(self) -> None:
        self._turns.free(self._admitter.limits.begin_day(self._now_s))
        for kind, name in self._timers.take_due(self._now_s):
            if kind == "sold-end":
                self._turns.free(self._admitter.limits.sold.end(self._now_s))
                continue
            state, ban = self._jobs.get(name), self._admitter.bans.get(name)
            if kind == "job":
                if state and state.phase == DELAYED_PHASE and state.not_before_s <= self._now_s:
                    self._make_ready(state)
            elif ban and kind == "ban-start":
                self._begin_ban(ban)
            elif ban and ban.end_s <= self._now_s:
                self._lift(events.BanLifted(name))


def _uses(job: ServiceJob, store: str, tenant: str) -> bool:
    """Return whether a job of the tenant, or of any for an empty one, uses a store."""
    return tenant in ("", job.tenant) and (store in job.sources or store in job.destinations)


_HANDLERS: dict[type, Callable[[Scheduler, Any], None]] = {
    events.JobSubmitted: Scheduler._submit,
    events.JobRestored: Scheduler._restore,
    events.CostCounted: Scheduler._count_cost,
    events.LinkRestored: Scheduler._restore_link,
    events.RunEnded: Scheduler._ended,
    events.RunFailed: Scheduler._failed,
    events.RunProgressed: Scheduler._progressed,
    events.RunRerouted: Scheduler._rerouted,
    events.JobReplanned: Scheduler._replanned,
    events.JobCancelled: Scheduler._cancelled,
    events.JobPaused: Scheduler._paused,
    events.JobResumed: Scheduler._resumed,
    events.LimitSet: Scheduler._set_limit,
    events.BandwidthSold: Scheduler._sell,
    events.WeightSet: Scheduler._set_weight,
    events.BanSet: Scheduler._ban,
    events.BanLifted: Scheduler._lift,
    events.StoreDown: Scheduler._store_down,
    events.StoreUp: Scheduler._store_up,
    events.RoutesChanged: Scheduler._routes_changed,
    events.TimePassed: Scheduler._time_passed,
}
