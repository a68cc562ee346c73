"""Adapts a running transfer: replaces machines that died or that the cloud takes back, leaves places that are closed
meanwhile, and reports routes that are slower than planned, or plans again and changes them.

The lead's progress is read here line by line. Planning and starting machines take seconds and run in their own thread,
while the transfer continues unchanged. The order of a change: new machines are started; all gateways get the new routes
beside the old ones, the far end first; the lead gets them last, and from then on gives work to the new routes only.
When the requests in flight on the old routes are answered, their hops and machines are ended. Acknowledged work is not
sent again; work that is lost with a dead gateway would have been lost in any case.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from tradewind.engine.adaptation_words import closed_words, route_names, shortfall_words
from tradewind.engine.closed import ClosedPlaces, Moves
from tradewind.engine.compile import RunSettings, compile_programs, push_order
from tradewind.engine.gateways import JobGateways
from tradewind.engine.launch_spec import plan_prices
from tradewind.engine.leaving import LeavingMachines
from tradewind.engine.ledger import JobLedger
from tradewind.engine.provisioning import RETRY_RESERVE
from tradewind.engine.rates import RateMonitor, SlowRoutes
from tradewind.engine.replan import (
    PlanRequest,
    RegionPair,
    RevisedPlan,
    TransferState,
    available_machines,
    ceiling_usd_per_gb,
    mixed_regions,
    observed_links,
    revise_plan,
    unreachable,
    with_names,
    with_names_of,
    with_types_of,
)
from tradewind.engine.report import usd_of_more
from tradewind.engine.sending_tiers import running_tiers
from tradewind.errors import GatewayError, GatewayLost, ProviderRefused, TradewindError, recorded_text
from tradewind.gateway.client import GatewayClient
from tradewind.model.document import to_document
from tradewind.model.job import JobSpec
from tradewind.model.ledger import STANDARD_EDGE
from tradewind.model.network_tier import NetworkTier
from tradewind.model.overlay import UnicastOverlay
from tradewind.model.plan import Plan, PlannedHop
from tradewind.model.program import Program, Routes
from tradewind.model.records import dataclass, replace
from tradewind.model.region import Region
from tradewind.model.units import format_count

__all__ = ["REPLANS_MAX", "REPLAN_PAUSE_S", "Adaptation"]

#: Refusals after which a region is planned with fewer machines.
REPLANNED_REFUSALS = ("capacity", "quota")
#: Minimum interval between questions to the planner, whatever it answered.
REPLAN_PAUSE_S = 20.0
#: Minimum interval between changes of the plan.
REPLANS_MAX = 5
#: Time after which a route that is down is examined for dead machines.
DOWN_S = 1.0
#: Pause before the provider is asked again after it reported no dead machine.
LOOK_PAUSE_S = 3.0
#: Attempts to replace a dead machine before the plan does without it.
REPLACE_TRIES_MAX = 3
#: Maximum machines replaced in one transfer: the cause of their end may end the next ones too.
REPLACEMENTS_MAX = 8
#: Timeout for a gateway's reply to a change of its routes. One that hangs must not delay the others.
ROUTES_S = 5.0

#: Called after each change of the plan, with the plan and the job from which to resume.
Changed = Callable[[Plan, JobSpec], None]


@dataclass(frozen=True, slots=True)
class _Retired:
    """Remaining routes by gateway, for the time when no request is in flight on the old routes."""

    ids: frozenset[int]
    last: Mapping[str, dict[str, Any]]
    plan: Plan


class Adaptation:
    """Adaptation of one transfer. `replan` says whether the plan may be changed; without it slow routes are only
    reported, once. `is_early`: the plan was made for a part of the volume.
    """

    def __init__(
        self,
        plan_request: PlanRequest,
        plan: Plan,
        spec: JobSpec,
        *,
        replan: bool,
        on_change: Changed,
        ledger: JobLedger,
        earlier_s: float = 0.0,
        is_early: bool = False,
    ) -> None:
        #: Seconds from the start of the job to this run: a deadline counts from there.
        self._earlier_s = earlier_s
        self._plan_request, self._replan, self._on_change, self._ledger = plan_request, replan, on_change, ledger
        self._notices: SimpleQueue[str] = SimpleQueue()
        self._ended = False
        #: Held while a change becomes the plan, so that none does after an end.
        self._adopting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._links: dict[RegionPair, float] = {}
        self._standard_links: dict[RegionPair, float] = {}
        #: Network tiers in which regions have sent: their edges have one price, and observed rates belong to a tier.
        #: Then the regions whose machines have had both.
        self._tiers: dict[Region, NetworkTier] = {}
        self._mixed: set[Region] = set()
        self._note_tiers(plan)
        self._dead: dict[str, Region] = {}
        self._available: dict[Region, int] = {}
        self._asked_s = 0.0
        self._asked = 0
        self._notified: set[tuple[str, ...]] = set()
        self.plan, self.spec = plan, spec
        self.plan_of_all = plan
        self._expected_usd = _cost_usd(plan)
        #: The plan that was made for a part of the volume, until a change: more bytes cost more with it.
        self._partial = plan.overlay if is_early else None
        self._ids: dict[tuple[str, ...], int] = {}
        self._watch: RateMonitor | None = None
        self._retired: _Retired | None = None
        self._seen_s = 0.0
        #: Time since which each route is down.
        self._down_since_s: dict[int, float] = {}
        #: Time at which a route was down but no machine was dead.
        self._looked_s = -LOOK_PAUSE_S
        self._leaving = LeavingMachines()
        self._moves = Moves()
        self._replacements = 0
        #: Failed attempts to replace each dead machine, and the machines that the plan does without.
        self._failures: Counter[str] = Counter()
        self._lost: set[str] = set()
        #: Names of machines that were ordered in place of others and did not come. They are not used again: one whose
        #: end failed may still have its name.
        self._failed_names: set[str] = set()
        self._total_bytes = 0

    def begin(self, gateways: JobGateways, run: RunSettings) -> None:
        """Follow the gateways, which run the present plan. After a restart of the gateways, all times begin again."""
        self._gateways, self._run = gateways, run
        self._seen_s = self._asked_s = 0.0
        self._down_since_s, self._looked_s = {}, -LOOK_PAUSE_S
        self._failures.clear()
        self._lost.clear()
        self._leaving = LeavingMachines()
        self._ids = {route.nodes: index for index, route in enumerate(self.plan.routes)}
        self._retired = None
        self._ended = False
        self._follow(0.0)

    def stop(self) -> None:
        """Prevent new changes, and roll back one in progress. Returns at once."""
        with self._adopting:
            self._ended = True

    def end(self) -> None:
        """Do the same as `stop`, and wait for a change in progress."""
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def notices(self) -> list[str]:
        """Return the lines for the user since the last call."""
        lines = []
        while True:
            try:
                lines.append(self._notices.get_nowait())
            except Empty:
                return lines

    def close(self, closed: ClosedPlaces) -> None:
        """Set what is closed from now on: no new plan uses it, and the present one is changed if another route exists.

        Any thread may call it.
        """
        self._moves.close(closed)

    def see(self, progress: Mapping[str, Any]) -> None:
        """Handle one progress document."""
        self._seen_s, self._total_bytes = float(progress["elapsed_s"]), int(progress["bytes_total"])
        if self._ended or self._watch is None or (self._thread is not None and self._thread.is_alive()):
            return
        if self._retired is not None and not _under_way(progress, self._retired.ids):
            self._in_background(self._finish, self._retired)
            self._retired = None
            return
        if self._is_down(progress):
            self._down_since_s = {}
            self._in_background(self._replace_dead)
            return
        if self._retired is None and (leaving := self._leaving.look(self._gateways, self.plan, self._seen_s)):
            self._in_background(self._replace_leaving, leaving)
            return
        seen = self._watch.see(progress)
        places = self._moves.due(self.plan, self._seen_s) if self._retired is None else ()
        if places and not self._watch.ends_soon(progress):
            self._moves.begin(self._seen_s)
            self._in_background(self._move_off, places, progress)
            return
        if seen is None:
            return
        if not self._replan:
            self._notify_once(seen, "--replan would plan again")
        elif self._asked < REPLANS_MAX and (self._asked == 0 or self._seen_s >= self._asked_s + REPLAN_PAUSE_S):
            self._asked, self._asked_s = self._asked + 1, self._seen_s
            self._in_background(self._revise_and_change, seen, dict(progress))

    def _is_down(self, progress: Mapping[str, Any]) -> bool:
        """Return whether a route of the plan has been down for DOWN_S."""
        present = {self._ids[route.nodes] for route in self.plan.routes if not self._lost & set(route.nodes)}
        down = {hop["id"] for hop in progress["hops"] if not hop["up"] and hop["id"] in present}
        self._down_since_s = {number: self._down_since_s.get(number, self._seen_s) for number in down}
        if self._seen_s < self._looked_s + LOOK_PAUSE_S:
            return False
        return any(self._seen_s - since_s >= DOWN_S for since_s in self._down_since_s.values())

    def _replace_leaving(self, left_s: Mapping[str, float]) -> None:
        """Replace machines that the cloud takes back. They carry bytes until the others do, as long as they can."""
        names = self._fresh_names(sorted(left_s))
        self._leaving.report(names)
        if self._replacements + len(names) > REPLACEMENTS_MAX:
            return
        for name in names:
            works = f"works for another {left_s[name]:.0f} s"
            self._notices.put(f"the cloud takes machine {name} back: it {works}, and another one is ordered")
        plan = with_names(self.plan, names)
        try:
            self._change(RevisedPlan(plan, self._ceiling_now(plan), self.spec.rate_limit_bytes_per_s))
        except (TradewindError, OSError) as error:
            self._failed_names.update(names.values())
            if not self._ended:
                them = "it" if len(names) == 1 else "them"
                self._notices.put(
                    f"nothing replaces {', '.join(names)} before the cloud takes {them} back: {recorded_text(error)}"
                )
            self._gateways.shrink(self.plan)
            return
        self._replacements += len(names)
        for name, fresh in names.items():
            self._notices.put(f"machine {name} is about to end; {fresh} takes its place")

    def _replace_dead(self) -> None:
        """Replace each machine of the plan that has ended. One that does not answer may be alive, and stays."""
        passed = {name for route in self.plan.routes for name in route.nodes} - {self.plan.lead}
        dead = sorted(passed - self._gateways.living() - self._lost)
        if not dead or self._ended:
            self._looked_s = self._seen_s  # A link is down, not a machine.
            return None
        if self._replacements + len(dead) > REPLACEMENTS_MAX:
            self._lost.update(dead)
            words = f"no more than {REPLACEMENTS_MAX} machines of a transfer are replaced"
            return self._notices.put(f"{format_count(len(dead), 'machine')} ended ({', '.join(dead)}); {words}")
        self._replacements += len(dead)
        names = self._fresh_names(dead)
        plan = with_names(self.plan, names)
        try:
            self._change(RevisedPlan(plan, self._ceiling_now(plan), self.spec.rate_limit_bytes_per_s), replaced=names)
        except (TradewindError, OSError) as error:
            self._failed_names.update(names.values())
            # Another machine may have died in the meantime: the next attempt replaces all of them.
            self._failures.update(dead)
            for name in dead:
                if self._failures[name] >= REPLACE_TRIES_MAX:
                    self._lost.add(name)
                    self._notices.put(f"machine {name} ended and is not replaced: {recorded_text(error)}")
            self._gateways.shrink(self.plan)
            return None
        for name, fresh in names.items():
            self._notices.put(f"machine {name} ended; {fresh} takes its place")
        return None

    def _fresh_names(self, dead: Collection[str]) -> dict[str, str]:
        return _fresh_names(dead, self.plan_of_all.names | self._failed_names)

    def _ceiling_now(self, plan: Plan) -> float | None:
        """Return the average price per GB that the ceiling allows after the cost of the machines."""
        if self._plan_request.ceiling_usd is None or self._total_bytes == 0:
            return self.spec.ceiling_usd_per_gb
        ledger, now_s = self._ledger.ledger, self._ledger.unix_s
        room = ceiling_usd_per_gb(
            self._plan_request.ceiling_usd,
            plan,
            self._total_bytes,
            machines_usd=ledger.usd_of("machine", now_s),
            requests_usd=ledger.usd_of("requests", now_s),
        )
        return max(self.spec.ceiling_usd_per_gb or 0.0, room or 0.0)

    def _follow(self, since_s: float) -> None:
        self._watch = RateMonitor(
            self.plan,
            self._ids,
            limit_bytes_per_s=self.spec.rate_limit_bytes_per_s,
            chunk_bytes=self.spec.chunk_bytes,
            since_s=since_s,
        )

    def _in_background(self, work: Callable[..., None], *arguments: Any) -> None:
        def guarded() -> None:
            try:
                work(*arguments)
            except (TradewindError, OSError) as error:
                if not self._ended:
                    self._notices.put(f"the routes could not be changed: {recorded_text(error)}")

        self._thread = threading.Thread(target=guarded, name="replanning", daemon=True)
        self._thread.start()

    def _notify_once(self, seen: SlowRoutes, what_then: str) -> None:
        if not self._notified.issuperset(seen.under):
            self._notified.update(seen.under)
            self._notices.put(f"{shortfall_words(self.plan, seen)}: {what_then}")

    def _revise_and_change(self, seen: SlowRoutes, progress: Mapping[str, Any]) -> None:
        places = {gateway.name: Region.parse(gateway.region) for gateway in self.plan.gateways}
        living = self._gateways.living()
        dead = unreachable(self.plan, seen, living)
        self._dead |= {name: places[name] for name in dead}
        # A route whose gateway ended says nothing about its links.
        with_links = replace(seen, under=tuple(route for route in seen.under if set(route) <= living))
        known = self._plan_request.catalog, self.plan, with_links, self._plan_request.limits.compression_ratio
        self._links |= observed_links(*known)
        self._standard_links |= observed_links(*known, standard=True)
        state = self._state(progress, seen.total_gbps)
        found = revise_plan(self._plan_request, state)
        if found is None:
            return self._notify_once(seen, "the planner found no better plan")
        return self._change_planned(found, state, shortfall_words(self.plan, seen))

    def _move_off(self, places: tuple[str, ...], progress: Mapping[str, Any]) -> None:
        """Change to routes without the places that were closed. However slow they are, they are better than these."""
        words = closed_words(places)
        state = self._state(self._with_total(progress), 0.0)
        found = revise_plan(self._plan_request, state)
        if found is not None:
            return self._change_planned(found, state, words)
        self._moves.end()
        if places not in self._notified:
            self._notified.add(places)
            self._notices.put(f"{words}, but there is no other route: it stays in use")
        return None

    def _with_total(self, progress: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the progress with an estimate of all bytes: a list ends at about what the plan was made for."""
        if progress.get("listed"):
            return progress
        planned_bytes = round(self.plan.overlay.volume_gb * 1e9) if self.plan.overlay else 0
        total_bytes = max(progress["bytes_total"], planned_bytes, progress["bytes_done"] + 1)
        return {**progress, "bytes_total": total_bytes}

    def _state(self, progress: Mapping[str, Any], carried_gbps: float) -> TransferState:
        ledger, now_s = self._ledger.ledger, self._ledger.unix_s
        return TransferState(
            left_bytes=progress["bytes_total"] - progress["bytes_done"],
            total_bytes=progress["bytes_total"],
            elapsed_s=self._earlier_s + self._seen_s,
            carried_gbps=carried_gbps,
            egress_usd=ledger.usd_of("egress", now_s),
            machines_usd=ledger.usd_of("machine", now_s),
            requests_usd=ledger.usd_of("requests", now_s),
            links=self._links,
            dead=self._dead,
            sent_gb=_by_regions(ledger.sent_gb(), standard=False),
            standard_sent_gb=_by_regions(ledger.sent_gb(), standard=True),
            available=self._available,
            network_tier_of=self._tiers,
            mixed=self._mixed,
            standard_links=self._standard_links,
            closed=self._moves.closed,
        )

    def _change_planned(self, found: RevisedPlan, state: TransferState, reason: str) -> None:
        """Change to a new plan, for a reason in words. Raises GatewayError."""
        if self._ended:
            return  # It ended while the planner was working: no more machines are ordered.
        try:
            self._change(found)
        except TradewindError as error:
            self._gateways.shrink(self.plan)
            self._learn_refusal(found.plan, error)
            raise
        self._notices.put(f"{reason}: replanned, {self._expect(found.plan, state)}")

    def _expect(self, plan: Plan, state: TransferState) -> str:
        """Expect the cost of a new plan; return its routes, and how much more the transfer costs with it, in words."""
        if self._partial is not None:
            self._expected_usd, self._partial = usd_of_more(self._partial, state.total_bytes / 1e9), None
        expected_usd = state.spent_usd + _cost_usd(plan)
        more_usd, self._expected_usd = expected_usd - self._expected_usd, expected_usd
        return f"now {route_names(plan)}; {more_usd:+.4f} USD"

    def _note_tiers(self, plan: Plan) -> None:
        """Note in which network tiers a plan's machines send."""
        self._mixed |= mixed_regions(plan)
        self._tiers |= {region: tier for region, tier in running_tiers(plan).items() if region not in self._mixed}

    def _learn_refusal(self, plan: Plan, error: TradewindError) -> None:
        """Plan without the machines that a region refused."""
        if isinstance(error, ProviderRefused) and error.kind in REPLANNED_REFUSALS:
            self._available |= available_machines(plan, error.regions)

    def plan_without(self, error: ProviderRefused, running: Collection[str] = ()) -> str | None:
        """Plan again before the job begins, without the machines that regions refused.

        Machines that are `running` keep their names and types. What they have cost is part of the cost of the new plan,
        if it has them. Return the new plan and its additional cost in words; None if there is none. The next `begin` is
        with it.
        """
        if self.plan.overlay is None or error.kind not in REPLANNED_REFUSALS:
            return None
        self._learn_refusal(self.plan, error)
        request = with_types_of(self._plan_request, self.plan, running)
        state = self._state_of_all(self.plan.overlay, running)
        found = _revised(request, state, running)
        if found is not None and (kept := found.plan.names & set(running)) != set(running):
            state = self._state_of_all(self.plan.overlay, kept)
            found = _revised(request, state, running)
        return None if found is None else self._begin_with(found, state)

    def plan_around(self, closed: ClosedPlaces, progress: Mapping[str, Any]) -> str | None:
        """Plan again before a run, for what earlier runs have left, if the plan uses closed places.

        `progress` is the last document of the earlier runs. Return the reason, the new plan and its additional cost in
        words; None if the plan stays: it uses none of the places, or there is no other one.
        """
        self._moves.close(closed)
        places = self._moves.due(self.plan, 0.0)
        if not places:
            return None
        state = self._state(self._with_total(progress), 0.0)
        found = revise_plan(self._plan_request, state)
        return None if found is None else f"{closed_words(places)}: replanned, {self._begin_with(found, state)}"

    def _state_of_all(self, overlay: UnicastOverlay, kept: Collection[str]) -> TransferState:
        """Return the state of a transfer of all bytes, without the cost of machines that its plan will have."""
        ledger, now_s = self._ledger.ledger, self._ledger.unix_s
        total_bytes = round(overlay.volume_gb * 1e9)
        return TransferState(
            left_bytes=total_bytes,
            total_bytes=total_bytes,
            elapsed_s=0.0,
            carried_gbps=0.0,
            egress_usd=ledger.usd_of("egress", now_s),
            machines_usd=ledger.without_running(kept).usd_of("machine", now_s),
            requests_usd=ledger.usd_of("requests", now_s),
            links={},
            dead={},
            available=self._available,
            network_tier_of=self._tiers,
            mixed=self._mixed,
            closed=self._moves.closed,
        )

    def _begin_with(self, found: RevisedPlan, state: TransferState) -> str:
        """Let the next run begin with a plan. Return it and its additional cost in words."""
        self.plan = self.plan_of_all = found.plan
        self.spec = _limited(self.spec, found)
        self._ledger.add_prices(plan_prices(found.plan, self._plan_request.catalog))
        self._note_tiers(self.plan)
        self._on_change(self.plan, self.spec)
        return self._expect(found.plan, state)

    def _change(self, found: RevisedPlan, replaced: Mapping[str, str] | None = None) -> None:
        """Start the machines that the plan needs, and give all gateways their routes, the lead last."""
        before, plan = self.plan, found.plan
        gone = frozenset(self._dead) | frozenset(replaced or ())
        self._ledger.add_prices(plan_prices(plan, self._plan_request.catalog))
        known = before.names
        deployment = self._gateways.grow(plan, self._ledger.room_s(plan, without=known), replaced or ())
        fresh = itertools.count(max(self._ids.values()) + 1)
        ids = dict(self._ids)
        for route in plan.routes:
            if route.nodes not in ids:
                ids[route.nodes] = next(fresh)
        spec = _limited(self.spec, found)
        run = replace(self._run, route_ids=ids)
        both = _joined(plan, before, without=gone)
        with_old = compile_programs(replace(deployment, plan=both), spec, run)
        alone = compile_programs(deployment, spec, run)
        staying = plan.names
        for name in push_order(both):
            client = GatewayClient.of(deployment, name)
            if name == plan.lead:
                client.put_routes(_routes(alone[name], spec), ROUTES_S)
            elif name not in known:
                self._gateways.give_program(deployment, with_old[name])
            elif name in staying:
                client.put_routes(_routes(with_old[name]), ROUTES_S)
            else:
                # It ends soon and has its routes already. If it hangs, that may be the reason for the change.
                with suppress(GatewayLost):
                    client.put_routes(_routes(with_old[name]), ROUTES_S)
        old = frozenset(ids[route.nodes] for route in before.routes) - {ids[route.nodes] for route in plan.routes}
        last = {name: _routes(program) for name, program in alone.items() if name != plan.lead and name in known}
        with self._adopting:
            if self._ended:
                raise GatewayError("the job ended meanwhile")
            self.plan, self.spec, self._ids = plan, spec, ids
            self.plan_of_all = _joined(plan, self.plan_of_all, without=frozenset())
            self._note_tiers(plan)
            self._retired = _Retired(old, last, plan)
            self._follow(self._seen_s)
            self._on_change(plan, spec)

    def _finish(self, retired: _Retired) -> None:
        """End the hops and machines of the old routes once no request is in flight on them."""
        deployment, failed = self._gateways.deployment(), None
        for name, routes in retired.last.items():
            try:
                GatewayClient.of(deployment, name).put_routes(routes, ROUTES_S)
            except GatewayError as error:
                failed = error
        self._gateways.shrink(retired.plan)  # They are charged whether or not the others answer.
        if failed is not None:
            raise failed


def _revised(request: PlanRequest, state: TransferState, running: Collection[str]) -> RevisedPlan | None:
    """Return another plan, whose machines have the names of running ones."""
    found = revise_plan(request, state)
    return None if found is None else replace(found, plan=with_names_of(found.plan, running))


def _limited(spec: JobSpec, found: RevisedPlan) -> JobSpec:
    """Return the job with the limits of another plan. As in the first one, the list may be a little longer than that:
    the lead refuses to begin with more bytes than the ceiling allows at the highest average price.
    """
    spec = replace(spec, ceiling_usd_per_gb=found.ceiling_usd_per_gb, rate_limit_bytes_per_s=found.limit_bytes_per_s)
    if found.ceiling_usd is None or found.ceiling_usd_per_gb is None or spec.ceiling_usd is None:
        return spec
    usd_per_gb = max(found.mean_usd_per_gb, found.ceiling_usd_per_gb * (1 - 2 * RETRY_RESERVE))
    return replace(spec, ceiling_usd=found.ceiling_usd, ceiling_usd_per_gb=min(usd_per_gb, found.ceiling_usd_per_gb))


def _by_regions(sent_gb: Mapping[str, float], *, standard: bool) -> dict[RegionPair, float]:
    """Return the volume sent in one network tier over each edge, by its regions instead of its name.

    Edges of clouds without a choice of tiers count as premium.
    """
    found = {}
    for what, volume_gb in sent_gb.items():
        if what.endswith(STANDARD_EDGE) == standard:
            src, dst = what.removesuffix(STANDARD_EDGE).split(" → ")
            found[Region.parse(src), Region.parse(dst)] = volume_gb
    return found


def _under_way(progress: Mapping[str, Any], ids: Collection[int]) -> bool:
    return any(hop["requests_in_flight"] for hop in progress["hops"] if hop["id"] in ids)


def _routes(program: Program, lead: JobSpec | None = None) -> dict[str, Any]:
    """Return the update of a running gateway's program."""
    ceiling, limit = (lead.ceiling_usd_per_gb, lead.rate_limit_bytes_per_s) if lead else (None, None)
    document: dict[str, Any] = to_document(Routes(program.routes, program.hops, program.dials, ceiling, limit))
    return document


def _joined(plan: Plan, other: Plan, *, without: Collection[str]) -> Plan:
    """Return the plan plus the additional routes of another plan, except those through the excluded gateways."""
    known = {route.nodes for route in plan.routes}
    more = [route for route in other.routes if route.nodes not in known and not set(route.nodes) & set(without)]
    routes = (*plan.routes, *more)
    taken = {pair for route in routes for pair in itertools.pairwise(route.nodes)}
    taken |= {(plan.lead, route.nodes[0]) for route in routes}
    connections: dict[tuple[str, str], int] = {}
    for hop in (*plan.hops, *other.hops):
        pair = hop.start, hop.end
        if pair in taken:
            connections[pair] = max(hop.connections, connections.get(pair, 0))
    passed = {plan.lead, *(name for route in routes for name in route.nodes)}
    gateways = {gateway.name: gateway for gateway in (*other.gateways, *plan.gateways) if gateway.name in passed}
    hops = tuple(PlannedHop(*pair, count) for pair, count in connections.items())
    return replace(plan, gateways=tuple(gateways.values()), hops=hops, routes=routes)


def _fresh_names(dead: Collection[str], known: Collection[str]) -> dict[str, str]:
    """Return an unused name for each dead machine: `aws-us-east-1-3` after `…-1` and `…-2`."""
    names: dict[str, str] = {}
    for name in dead:
        stem = name.rpartition("-")[0]
        numbered = (f"{stem}-{number}" for number in itertools.count(1))
        names[name] = next(fresh for fresh in numbered if fresh not in known and fresh not in names.values())
    return names


def _cost_usd(plan: Plan) -> float:
    return plan.overlay.cost.total_usd if plan.overlay else 0.0
