"""The supervisor of one acceleration: carries out its course, which starts, wires, watches and ends its proxies."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

from tradewind.acceleration.health import Health, paths_now, unreached
from tradewind.acceleration.transparent import TransparentWay
from tradewind.acceleration.wiring import HOME, fleet_plan, listener_key, listener_keys
from tradewind.engine.acceleration_cost import AccelerationMeter
from tradewind.engine.acceleration_course import (
    RESERVE_S,
    Action,
    Answer,
    Ask,
    Close,
    Course,
    DrainHome,
    DrainProxies,
    EndAsked,
    Event,
    Finished,
    Grow,
    Looked,
    Place,
    Replace,
    Rewire,
    Say,
    Shrink,
    SwitchPaths,
)
from tradewind.engine.acceleration_flows import FlowCounts
from tradewind.engine.acceleration_gateways import AccelerationGateways
from tradewind.engine.acceleration_kernels import ProxyKernel, kernels_of, slower_line, with_kernels
from tradewind.engine.acceleration_leaving import TAKEN_BACK, LeavingProxies
from tradewind.engine.acceleration_placing import PlacedFlows, place_for
from tradewind.engine.acceleration_pools import pools_of
from tradewind.engine.acceleration_proxies import proxy_state
from tradewind.engine.acceleration_remains import purpose_of
from tradewind.engine.acceleration_supervision import this_supervisor
from tradewind.engine.accelerations import FLOWS_FILE, Accelerations, TakenOver
from tradewind.errors import CeilingReached, GatewayError, TradewindError, UsageError
from tradewind.fleet.fleet import Fleet
from tradewind.fleet.journal import FleetJournal, new_fleet_id
from tradewind.fleet.providers import make_provider
from tradewind.fleet.settings import LEASE_S, FleetSettings
from tradewind.model.acceleration import AccelerationPhase, AccelerationState, ProxyHealth, ProxyState
from tradewind.model.files import private_folder
from tradewind.model.records import replace

if TYPE_CHECKING:
    from tradewind.engine.ground import Ground
    from tradewind.engine.job_control import JobControl
    from tradewind.model.split import SplitStatus

__all__ = ["Acceleration"]

#: Interval at which proxies are looked at.
TICK_S = 1.0
#: The same while it drains.
DRAIN_TICK_S = 0.2
#: Leases under a ceiling: a supervisor that hangs cannot stop egress, so its proxies end soon.
CEILING_LEASE_S = 120
#: Time for gateways to end by themselves.
GRACE_S = 5.0
#: Most looks at a time.
WORKERS = 16
#: Time after the start of a machine in which failures of its neighbours may be those of its former one: two probes.
RENEWED_S = 16.0


class Acceleration:
    """One acceleration, in the process that supervises it. Call `start`, then `watch`; `close` in any case."""

    def __init__(
        self,
        control: JobControl,
        ground: Ground,
        text: str,
        placed: PlacedFlows,
        *,
        usd_max: float | None = None,
        lasting_s: float | None = None,
        sky: str | None = None,
        former: TakenOver | None = None,
        report: Callable[[str], None],
    ) -> None:
        """Record it. `former` is the acceleration that it resumes: with the same id, end, ceiling and ledger."""
        before = None if former is None else former.state
        self.id = new_fleet_id() if before is None else before.id
        self._control, self._ground, self._placed, self._report = control, ground, placed, report
        self._book = Accelerations(control)
        self._process, self._sky = this_supervisor(), sky
        self._began_s = time.time() if before is None else before.began_unix_s
        self._ends_s = None if before is None else before.ends_unix_s
        if lasting_s is not None:
            self._ends_s = time.time() + lasting_s
        self._lease_s = LEASE_S if usd_max is None else CEILING_LEASE_S
        self._meter = AccelerationMeter(
            placed.machines,
            placed.egress_usd_per_gb,
            usd_max,
            lease_s=self._lease_s,
            former=None if before is None else before.ledger,
        )
        self._phase: AccelerationPhase = "starting"
        self._reason: str | None = None
        self._health = Health(placed.regions)
        self._paths: dict[str, tuple[tuple[str, ...], str | None]] = {}
        self._addresses: dict[str, str] = {}
        self._statuses: dict[str, SplitStatus] = {}
        self._kernels: dict[str, ProxyKernel] = {}
        self._renewed_s: dict[str, float] = {}
        self._slower: str | None = None
        self._taken_back = LeavingProxies(self._ask_leaving)
        self._counts = FlowCounts(placed.flows, time.monotonic())
        self._listening: dict[str, str] = {}
        self._answered = 0 if former is None else former.wish
        self._course = Course(time.monotonic(), self._answered)
        self._wish_error: str | None = None
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="looks")
        #: The step of the course that is being carried out.
        self._step: Future[Finished] | None = None
        #: Placement of a replan and its flows file, until it is wired.
        self._next: tuple[PlacedFlows, str] | None = None
        #: Region of each proxy that a replan removes, until its machine has ended.
        self._leaving: dict[str, str] = {}
        #: The part that the gateways do not have yet: programs and routes, or routes only.
        self._due: Literal["wire", "route"] | None = None
        self._gateways: AccelerationGateways | None = None
        self._transparent: TransparentWay | None = None
        self.folder = self._book.make(self.id, text)
        self._lock = self._book.hold(self.id) if former is None else former.lock
        self._write()

    # --- start -------------------------------------------------------------------------------------------------------

    def start(self) -> AccelerationState:
        """Start the machines and wire them; return when the flows may connect. Raises GatewayError."""
        journal = FleetJournal(self._control.store.state_dir)
        binary = self._control.gateway
        self._require_room(self._placed)
        fleet = Fleet(
            make_provider(self._ground.provider, binary, journal),
            journal,
            self._plan(self._placed.regions),
            binary,
            purpose=purpose_of(self.id),
            settings=FleetSettings(lease_s=self._lease_s),
            report=self._report,
            meter=self._meter,
            logs=self.folder / "logs",
        )
        self._gateways = AccelerationGateways(fleet, self._pool)
        self._wire()
        self._phase = "running"
        return self._write()

    def _require_room(self, placed: PlacedFlows) -> None:
        """Raise CeilingReached if the ceiling leaves too little to start the machines of a placement."""
        there = {} if self._gateways is None else self._placed.regions
        fresh = [placed.machines[region] for name, region in placed.regions.items() if name not in there]
        if self._meter.left_s(math.inf, fresh) <= RESERVE_S:
            raise CeilingReached("no machines were started: the ceiling leaves too little for them")

    def _plan(self, regions: Mapping[str, str], placed: PlacedFlows | None = None) -> Any:
        placed = placed or self._placed
        return fleet_plan([wire.through for wire in placed.wires], regions, placed.home)

    def _wire(self) -> None:
        """Give each proxy its program, and home the routes of the flows. Proxies that refuse it become unhealthy.

        Raises GatewayError.
        """
        assert self._gateways is not None
        there = self._gateways.there
        names = [name for name in self._placed.regions if name in there]
        for name, answer in self._gateways.put_proxies(self._placed.wires, names, self._placed.flows).items():
            if isinstance(answer, str):
                self._health.dead(name, answer)
            else:
                self._kernels |= kernels_of({name: answer})
        self._predict()
        self._addresses = self._gateways.dialled(HOME, names)
        if self._transparent is not None:
            self._transparent.exempt(self._addresses.values())
        self._route()
        self._redirect()

    def _predict(self) -> None:
        """Predict the rates of flows with the kernels of their proxies, and say which are lower than planned."""
        placed = self._placed
        planned = with_kernels(placed.wires, placed.plan, placed.problem, {})
        wires = with_kernels(placed.wires, placed.plan, placed.problem, self._kernels)
        self._placed = replace(placed, wires=wires)
        before, self._slower = self._slower, slower_line(planned, wires, placed.problem, self._kernels)
        if self._slower is not None and self._slower != before:
            self._report(self._slower)

    def _redirect(self) -> None:
        """Redirect connections of this machine to the destinations of flows with the way in `transparent`."""
        assert self._gateways is not None
        wires = [wire for wire in self._placed.wires if wire.way_in == "transparent"]
        if self._transparent is None:
            if not wires:
                return
            enter = self._gateways.fleet.home_enter
            log = private_folder(self.folder / "logs") / "local-proxy.log"
            self._transparent = TransparentWay(self._control.gateway, enter, self._gateways.home_pid, log)
            self._transparent.exempt(self._addresses.values())
        targets = list(dict.fromkeys(wire.target for wire in wires))
        self._transparent.set(targets, self._listening[wires[0].name] if wires else "")

    def _route(self) -> None:
        """Send home the paths of new connections."""
        assert self._gateways is not None
        wires = self._placed.wires
        missing = self._placed.regions.keys() - self._addresses.keys()
        self._paths = paths_now(wires, self._health.unhealthy, missing, self._placed.regions)
        for name in self._counts.aside.keys() & self._paths.keys():
            self._paths[name] = (), self._counts.aside[name]
        paths = {name: path for name, (path, _) in self._paths.items()}
        status = self._gateways.put_home(wires, paths, self._addresses, self._placed.flows)
        bound = dict(zip(listener_keys(wires), status.listening, strict=True))
        self._listening = {wire.name: bound[listener_key(wire)] for wire in wires}

    # --- watch -------------------------------------------------------------------------------------------------------

    def watch(self) -> AccelerationState:
        """Watch the proxies until the acceleration ends, and return its last state. Raises GatewayError."""
        while self._phase not in ("ended", "failed"):
            began_s = time.monotonic()
            tick = self._look_at_all()
            if self._step is not None and self._step.done():
                step, self._step = self._step, None
                self._handle(step.result())
            self._handle(tick)
            if self._due is not None and self._phase == "running":
                self._catch_up()
            if self._phase not in ("ended", "failed"):
                self._write()
                tick_s = DRAIN_TICK_S if self._phase == "draining" else TICK_S
                time.sleep(max(0.0, tick_s - (time.monotonic() - began_s)))
        if self._phase == "failed":
            raise GatewayError(self._reason or "the acceleration failed")
        return self.state()

    def down(self, drain_s: float, reason: str | None = None) -> AccelerationState:
        """Let open connections end within `drain_s`, then end everything. Return the last state."""
        if self._gateways is None:
            return self.close(reason)
        self._handle(EndAsked(drain_s, reason or ""))
        return self.watch()

    def _handle(self, event: Event) -> None:
        for action in self._course.handle(event, time.monotonic()):
            self._carry_out(action)

    def _look_at_all(self) -> Looked:
        """Ask every gateway for its status, count bytes, and return what the course must know."""
        assert self._gateways is not None
        found = self._gateways.look_at((HOME, *{**self._leaving, **self._placed.regions}))
        before = dict(self._health.unhealthy)
        blocked, now_s = self._blocked(found), time.monotonic()
        taken_back = dict.fromkeys(self._taken_back.look(now_s), TAKEN_BACK)
        for name, status in found.items():
            if not isinstance(status, str):
                self._see(name, status)
            if name in self._placed.regions and name in self._addresses:
                self._health.look(name, _failure(status) or blocked.get(name) or taken_back.get(name))
        self._meter.tick()
        self._count_flows()
        self._report_health(before)
        home = found[HOME]
        is_over = self._ends_s is not None and time.time() >= self._ends_s
        # Machines that have ended are replaced, and cost their minimum again.
        ended = self._meter.without_machine(self._placed.regions)
        more = [self._placed.machines[region] for region in ended.values()]
        return Looked(
            self._meter.left_s(2 * RESERVE_S, more),
            is_over,
            self._book.wish(self.id),
            home if isinstance(home, str) else None,
            not isinstance(home, str) or HOME in self._gateways.fleet.living(),
            not isinstance(home, str) and home.state == "ended",
            tuple(self._health.unhealthy),
            tuple(name for name in blocked if name in self._health.unhealthy and _failure(found.get(name, "")) is None),
            self._taken_back.of(self._placed.regions, found, [path for path, _ in self._paths.values()], now_s),
        )

    def _ask_leaving(self) -> dict[str, float]:
        return {} if self._gateways is None else self._gateways.fleet.leaving()

    def _blocked(self, found: Mapping[str, SplitStatus | str]) -> dict[str, str]:
        """Return the proxies to which their neighbours cannot connect, and why."""
        now_s = time.monotonic()
        reasons = unreached(self._placed.wires, found)
        return {
            name: why
            for name, why in reasons.items()
            if name in self._addresses and now_s - self._renewed_s.get(name, -math.inf) >= RENEWED_S
        }

    def _see(self, name: str, status: SplitStatus) -> None:
        """Take in the counts of a proxy."""
        self._statuses[name] = status
        region = {**self._leaving, **self._placed.regions}.get(name)
        if region is not None:
            self._meter.sent(name, region, status.bytes_up + status.bytes_down)

    def _report_health(self, before: Mapping[str, str]) -> None:
        if self._health.unhealthy == before:
            return
        for name in self._health.unhealthy.keys() - before.keys():
            self._report(f"proxy {name} gets no new connections: {self._health.unhealthy[name]}")
        for name in before.keys() - self._health.unhealthy.keys():
            self._report(f"proxy {name} is healthy again")
        self._due = self._due or "route"

    def _catch_up(self) -> None:
        """Send the gateways what they do not have yet. It is tried again if they do not answer."""
        due, self._due = self._due, None
        try:
            self._wire() if due == "wire" else self._route()
        except TradewindError as error:
            self._due = due
            self._report(f"new connections keep their paths for now: {error}")

    def _count_flows(self) -> None:
        home = self._statuses.get(HOME)
        if home is not None and self._counts.count(self._placed.wires, home, time.monotonic()):
            self._due = self._due or "route"

    # --- carry out ---------------------------------------------------------------------------------------------------

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, (Place, Grow, DrainProxies, Shrink, Ask, Replace)):
            self._step = self._pool.submit(self._finish, action)
        elif isinstance(action, SwitchPaths):
            error = self._switch()
            self._handle(Finished(error))
        elif isinstance(action, Rewire):
            self._renew(action.name)
            self._due = "wire"
        elif isinstance(action, Answer):
            self._answered, self._wish_error, self._next = action.number, action.error, None
            self._forget_removed()
        elif isinstance(action, Say):
            self._report(action.line)
        elif isinstance(action, DrainHome):
            self._phase, self._reason = "draining", action.reason or None
            if self._transparent is not None:
                self._transparent.pause()
            self._write()
            self._pool.submit(self._end_proxies, [HOME], action.drain_s)
        else:
            self._end(action)

    def _finish(self, action: Action) -> Finished:
        """Carry out a step beside the looks."""
        assert self._gateways is not None
        fleet = self._gateways.fleet
        try:
            if isinstance(action, Place):
                self._place(action.text)
            elif isinstance(action, Grow):
                self._grow()
            elif isinstance(action, DrainProxies):
                self._end_proxies(list(self._leaving), action.drain_s)
            elif isinstance(action, Shrink):
                fleet.shrink(self._plan(self._placed.regions))
            elif isinstance(action, Ask):
                living = fleet.living()
                return Finished(names=tuple(name for name in action.names if name not in living))
            elif isinstance(action, Replace):
                rest = {name: region for name, region in self._placed.regions.items() if name != action.name}
                fleet.shrink(self._plan(rest))
                fleet.grow(self._plan(self._placed.regions))
        except TradewindError as error:
            return Finished(str(error))
        return Finished()

    def _place(self, text: str | None) -> None:
        text = text if text is not None else (self.folder / FLOWS_FILE).read_text(encoding="utf-8")
        placed = place_for(text, FLOWS_FILE, self._ground, tuple(self._kernels.values()))
        if placed.home != self._placed.home:
            raise UsageError("this machine cannot be in another region")
        self._require_room(placed)
        self._next = placed, text

    def _grow(self) -> None:
        assert self._gateways is not None and self._next is not None
        placed, _ = self._next
        self._meter.add_prices(placed.machines, placed.egress_usd_per_gb)
        self._gateways.fleet.grow(self._plan({**self._placed.regions, **placed.regions}, placed))

    def _switch(self) -> str | None:
        """Wire the next placement. Return why that failed; then the former one is wired again."""
        assert self._next is not None
        (placed, text), before = self._next, self._placed
        fresh = placed.regions.keys() - before.regions.keys()
        for name in fresh:
            self._renew(name)
        self._placed = placed
        self._counts.flows = placed.flows
        self._leaving = {name: region for name, region in before.regions.items() if name not in placed.regions}
        try:
            self._wire()
        except TradewindError as error:
            self._placed, self._due = before, "wire"
            self._counts.flows = before.flows
            # The new machines end with the next step.
            self._leaving = {name: placed.regions[name] for name in fresh}
            return str(error)
        self._book.make(self.id, text)
        return None

    def _renew(self, name: str) -> None:
        """Forget what the former machine of a proxy said."""
        self._health.fresh(name)
        self._renewed_s[name] = time.monotonic()
        self._taken_back.renewed(name)
        self._statuses.pop(name, None)
        self._kernels.pop(name, None)
        self._meter.renewed(name)

    def _forget_removed(self) -> None:
        for name in self._leaving:
            self._health.forget(name)
            self._addresses.pop(name, None)
            self._statuses.pop(name, None)
            self._kernels.pop(name, None)
        self._leaving = {}

    def _end_proxies(self, names: Sequence[str], drain_s: float) -> None:
        """Drain proxies, and count their last bytes."""
        assert self._gateways is not None
        for name, status in self._gateways.end(names, drain_s).items():
            self._see(name, status)

    def _end(self, action: Close) -> None:
        if action.failure is None:
            self._end_proxies([HOME, *self._leaving, *self._placed.regions], 0.0)
            self._count_flows()
        self.close(action.failure)

    def close(self, failure: str | None = None) -> AccelerationState:
        """End what runs, and release the acceleration. May be called more than once."""
        try:
            self._end_machines(failure)
            if self._phase not in ("ended", "failed"):
                self._phase = "ended" if failure is None else "failed"
                self._reason = failure or self._reason
                self._write()
        finally:
            self._pool.shutdown(wait=False)
            self._lock.release()
        return self.state()

    def _end_machines(self, failure: str | None) -> None:
        """End all machines, then redirect no connections any more, even if machines may still run."""
        gateways, self._gateways = self._gateways, None
        try:
            if gateways is not None:
                gateways.fleet.close(grace_s=0.0 if failure else GRACE_S)
        except KeyboardInterrupt:
            # It ends already. The user waits no longer, but machines must not be left.
            assert gateways is not None
            gateways.fleet.close(grace_s=0.0)
        finally:
            if self._transparent is not None:
                self._transparent.close()

    # --- state -------------------------------------------------------------------------------------------------------

    def _write(self) -> AccelerationState:
        state = self.state()
        self._book.write(state)
        return state

    def state(self) -> AccelerationState:
        """Return the present state."""
        return AccelerationState(
            self.id,
            self._phase,
            self._began_s,
            time.time(),
            self._counts.states(self._placed.wires, self._paths, self._listening),
            tuple(self._proxy(name, region) for name, region in self._placed.regions.items()),
            self._meter.machines_usd,
            self._meter.egress_usd,
            self._meter.usd_max,
            self._ends_s,
            self._reason,
            self._answered,
            self._wish_error,
            self._meter.ledger,
            sky=self._sky,
            process=self._process,
            pools=tuple(pools_of(self._statuses)),
        )

    def _proxy(self, name: str, region: str) -> ProxyState:
        error = self._health.unhealthy.get(name)
        health: ProxyHealth = (
            "replacing" if self._course.replacing == name else "healthy" if error is None else "unhealthy"
        )
        state = ProxyState(name, region, health, usd=self._meter.proxy_usd(name), error=error)
        return proxy_state(state, self._statuses.get(name), self._kernels.get(name))


def _failure(look: SplitStatus | str) -> str | None:
    """Return why a proxy cannot take connections; None if it can."""
    if isinstance(look, str):
        return look
    return None if look.state == "running" else f"its split proxy is {look.state}"
