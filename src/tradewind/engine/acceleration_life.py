"""The supervisor of one acceleration: carries out its course, which starts, wires, watches and ends its proxies."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

from tradewind.acceleration.health import Health, cut_off, paths_now, unreached
from tradewind.acceleration.services import service_port_of
from tradewind.acceleration.transparent import TransparentWay
from tradewind.acceleration.wiring import (
    HOME,
    entrances_of,
    fleet_plan,
    is_entrance,
    kind_of,
    listener_key,
    listener_keys,
)
from tradewind.engine.acceleration_cost import AccelerationMeter
from tradewind.engine.acceleration_course import (
    DRAIN_S,
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
from tradewind.engine.acceleration_gateways import END_S, LOOK_S, AccelerationGateways
from tradewind.engine.acceleration_kernels import ProxyKernel, kernels_of, slower_line, with_kernels
from tradewind.engine.acceleration_leaving import TAKEN_BACK, LeavingProxies
from tradewind.engine.acceleration_placing import PlacedFlows, place_for
from tradewind.engine.acceleration_pools import pools_of
from tradewind.engine.acceleration_proxies import ProxyCounts, proxy_state
from tradewind.engine.acceleration_remains import purpose_of
from tradewind.engine.acceleration_supervision import this_supervisor
from tradewind.engine.accelerations import FLOWS_FILE, Accelerations, TakenOver
from tradewind.errors import CeilingReached, GatewayError, JobUnreadable, TradewindError, UsageError
from tradewind.fleet.fleet import Fleet
from tradewind.fleet.journal import FleetJournal, new_fleet_id
from tradewind.fleet.providers import make_provider
from tradewind.fleet.settings import LEASE_S, FleetSettings
from tradewind.model.acceleration import (
    AccelerationPhase,
    AccelerationState,
    AccelerationWish,
    ProxyHealth,
    ProxyState,
)
from tradewind.model.clock import elapsed_s
from tradewind.model.files import private_folder
from tradewind.model.records import replace
from tradewind.model.units import format_count

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
#: A larger difference between two clocks means that one was set: this machine's, which shows when an acceleration ends.
CLOCK_SET_S = 1.0


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
        #: The same by a clock that nobody can set.
        self._over_s = None if self._ends_s is None else elapsed_s() + self._ends_s - time.time()
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
        self._health = Health(placed.others)
        #: Pairs of an entrance and a proxy to which it cannot connect.
        self._cut: dict[tuple[str, str], str] = {}
        self._paths: dict[str, tuple[tuple[str, ...], str | None]] = {}
        self._addresses: dict[str, str] = {}
        self._statuses: dict[str, SplitStatus] = {}
        self._kernels: dict[str, ProxyKernel] = {}
        self._renewed_s: dict[str, float] = {}
        #: Time of the latest answer of each gateway that was taken in, and what keeps answers apart.
        self._seen_s: dict[str, float] = {}
        self._seeing = threading.Lock()
        self._slower: str | None = None
        self._taken_back = LeavingProxies(self._ask_leaving)
        self._counts = FlowCounts(placed.flows, time.monotonic(), () if before is None else before.flows)
        self._proxy_counts = ProxyCounts(() if before is None else before.proxies)
        self._listening: dict[str, str] = {}
        #: True if the gateway at home runs a split proxy.
        self._enters_at_home = False
        self._assumed_s = 0.0 if before is None else before.assumed_s
        self._answered = 0 if former is None else former.wish
        self._course = Course(time.monotonic(), self._answered)
        self._wish_error: str | None = None
        #: Why the latest state was not recorded.
        self._unwritten: OSError | None = None
        #: Why the latest wish cannot be read.
        self._damaged_wish: str | None = None
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
            self._plan(self._placed.others),
            binary,
            purpose=purpose_of(self.id),
            settings=FleetSettings(lease_s=self._lease_s),
            report=self._report,
            meter=self._meter,
            logs=self.folder / "logs",
        )
        self._gateways = AccelerationGateways(fleet, self._pool)
        self._wire(strict=True)
        self._phase = "running"
        return self._write()

    def _require_room(self, placed: PlacedFlows) -> None:
        """Raise CeilingReached if the ceiling leaves too little to start the machines of a placement."""
        there = {} if self._gateways is None else self._placed.others
        fresh = [placed.machines[region] for name, region in placed.others.items() if name not in there]
        if self._meter.left_s(math.inf, fresh) <= RESERVE_S:
            raise CeilingReached("no machines were started: the ceiling leaves too little for them")

    def _plan(self, regions: Mapping[str, str], placed: PlacedFlows | None = None) -> Any:
        placed = placed or self._placed
        # Flows of any entrance may take the path of another flow while a proxy is unhealthy.
        entrances = entrances_of(placed.wires)
        paths = [(entrance, *wire.through) for wire in placed.wires for entrance in entrances]
        return fleet_plan(paths, regions, placed.home)

    def _wire(self, *, strict: bool = False) -> None:
        """Give each proxy its program, and entrances the routes of the flows. Proxies that refuse it become unhealthy.

        Raises GatewayError.
        """
        assert self._gateways is not None
        there, before = self._gateways.there, dict(self._health.unhealthy)
        # A new machine gets its program once its counts begin at zero.
        names = [name for name in self._placed.regions if name in there and name != self._course.replacing]
        for name, answer in self._gateways.put_proxies(self._placed.wires, names, self._placed.flows).items():
            if isinstance(answer, str):
                self._health.dead(name, answer)
            else:
                self._kernels |= kernels_of({name: answer})
        self._report_health(before)
        self._predict()
        self._addresses = self._gateways.dialled(HOME, names)
        if self._transparent is not None:
            self._transparent.exempt(self._addresses.values())
        self._route(strict=strict)
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

    def _route(self, *, strict: bool = False) -> None:
        """Send the entrances the paths of new connections. Those on other hosts that do not take them become unhealthy,
        unless it is `strict`. Raises GatewayError.
        """
        assert self._gateways is not None
        wires, before = self._placed.wires, dict(self._health.unhealthy)
        # While a machine is replaced, its gateway has no address. An entrance gets its paths again with the next one.
        there = set(self._gateways.there)
        addresses = {name: address for name, address in self._addresses.items() if name in there}
        missing = self._placed.regions.keys() - addresses.keys()
        paths = paths_now(wires, self._health.unhealthy, missing, self._placed.regions, self._cut)
        for name in self._counts.aside.keys() & paths.keys():
            paths[name] = (), self._counts.aside[name]
        self._paths = {name: self._paths.get(name, path) for name, path in paths.items()}
        for entrance in entrances_of(wires):
            mine = {wire.name: paths[wire.name] for wire in wires if wire.entrance == entrance}
            if entrance != HOME and entrance not in there and not strict:
                self._paths |= mine  # It has no connections, and begins with these.
                continue
            try:
                self._route_at(entrance, mine, addresses)
                self._paths |= mine
            except TradewindError as error:
                if strict or entrance == HOME:
                    raise
                self._health.dead(entrance, str(error))
        self._report_health(before)
        if self._enters_at_home and HOME not in entrances_of(wires):
            self._enters_at_home = False
            self._pool.submit(self._end_proxies, [HOME], DRAIN_S)

    def _route_at(
        self, entrance: str, paths: Mapping[str, tuple[tuple[str, ...], str | None]], addresses: Mapping[str, str]
    ) -> None:
        """Send one entrance the `paths` of its new connections, by flow. `addresses` are those for home. Raises
        GatewayError.
        """
        assert self._gateways is not None
        wires, through = self._placed.wires, {name: path for name, (path, _) in paths.items()}
        if entrance != HOME:
            addresses = self._gateways.dialled(entrance, addresses)
        status = self._gateways.put_entrance(entrance, wires, through, addresses, self._placed.flows)
        if entrance == HOME and not self._enters_at_home:
            self._counts.renewed(HOME)
            self._enters_at_home = True
        keys = listener_keys(wires, entrance)
        if len(status.listening) != len(keys):
            listening = format_count(len(status.listening), "address", "addresses")
            raise GatewayError(f"{entrance} listens at {listening} instead of {len(keys)}")
        bound = dict(zip(keys, status.listening, strict=True))
        mine = [wire for wire in wires if wire.entrance == entrance]
        self._listening |= {
            wire.name: wire.listen if service_port_of(wire.listen) else bound[listener_key(wire)] for wire in mine
        }

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
        entrances, asked_s = entrances_of(self._placed.wires), time.monotonic()
        found = self._gateways.look_at((*entrances, *{**self._leaving, **self._placed.regions}))
        before = dict(self._health.unhealthy)
        blocked, now_s = self._blocked(found), time.monotonic()
        taken_back = dict.fromkeys(self._taken_back.look(now_s), TAKEN_BACK)
        for name, status in found.items():
            if not isinstance(status, str):
                self._see(name, status, asked_s)
            if name in self._placed.entrances or (name in self._placed.regions and name in self._addresses):
                self._health.look(name, _failure(status) or blocked.get(name) or taken_back.get(name))
        self._count_flows()
        self._report_health(before)
        home = self._look_of_home(found)
        is_over = self._over_s is not None and elapsed_s() >= self._over_s
        ill = [name for name in blocked if name in self._health.unhealthy and _failure(found.get(name, "")) is None]
        paths = [path for path, _ in self._paths.values()]
        leaving = self._taken_back.of(self._placed.regions, found, paths, now_s)
        replaced = {*ill, *(each.name for each in leaving), *self._meter.without_machine(self._placed.regions)}
        return Looked(
            self._left_s(replaced),
            is_over,
            self._wish(),
            home,
            home is None or self._gateways.fleet.lead_lives,
            self._is_drained(found),
            tuple(self._health.unhealthy),
            tuple(ill),
            leaving,
        )

    def _left_s(self, replaced: Collection[str]) -> float:
        """Return the time that the ceiling leaves. Machines in place of the present ones cost their minimum again."""
        more = [self._placed.machines[self._placed.regions[name]] for name in replaced if name in self._placed.regions]
        return self._meter.left_s(2 * RESERVE_S, more)

    def _wish(self) -> AccelerationWish | None:
        """Return the latest wish; None for a damaged one, which the next wish replaces."""
        try:
            wish, self._damaged_wish = self._book.wish(self.id), None
        except JobUnreadable as error:
            if str(error) != self._damaged_wish:
                self._report(f"a request to change or end this acceleration is ignored: {error}")
            wish, self._damaged_wish = None, str(error)
        return wish

    def _ask_leaving(self) -> dict[str, float]:
        return {} if self._gateways is None else self._gateways.fleet.leaving()

    def _look_of_home(self, found: Mapping[str, SplitStatus | str]) -> str | None:
        """Return why the gateway at home did not answer; None if it did. Without flows of this machine it need only
        live.
        """
        assert self._gateways is not None
        look = found.get(HOME)
        if look is None:
            return None if self._gateways.fleet.lead_lives else "its process has ended"
        return look if isinstance(look, str) else None

    def _is_drained(self, found: Mapping[str, SplitStatus | str]) -> bool:
        """Return whether no connection of a flow is left. An entrance on another host that does not answer has none."""
        looks = {name: found.get(name, "") for name in entrances_of(self._placed.wires)}
        return all(name != HOME if isinstance(look, str) else look.state == "ended" for name, look in looks.items())

    def _blocked(self, found: Mapping[str, SplitStatus | str]) -> dict[str, str]:
        """Return the proxies to which their neighbours cannot connect, and why."""
        now_s = time.monotonic()
        cut = cut_off(self._placed.wires, found)
        if cut.keys() != self._cut.keys():
            self._due = self._due or "route"
        self._cut = cut
        reasons = unreached(self._placed.wires, found)
        return {
            name: why
            for name, why in reasons.items()
            if name in self._addresses and now_s - self._renewed_s.get(name, -math.inf) >= RENEWED_S
        }

    def _see(self, name: str, status: SplitStatus, asked_s: float = math.inf) -> None:
        """Take in the counts of a proxy, unless a later answer was taken in since it was asked at `asked_s`.

        The end of a proxy answers beside the looks, and lower counts than its last ones would be another machine's.
        """
        with self._seeing:
            if asked_s < self._seen_s.get(name, -math.inf):
                return
            self._seen_s[name] = time.monotonic()
            self._statuses[name] = status
            self._proxy_counts.seen(name, status)
            region = {**self._leaving, **self._placed.regions}.get(name)
            # Entrances send what their hosts would send without them.
            if region is not None and not is_entrance(name):
                self._meter.sent(name, region, status.bytes_up + status.bytes_down)

    def _report_health(self, before: Mapping[str, str]) -> None:
        if self._health.unhealthy == before:
            return
        for name in self._health.unhealthy.keys() - before.keys():
            self._report(f"{kind_of(name)} {name} gets no new connections: {self._health.unhealthy[name]}")
        for name in before.keys() - self._health.unhealthy.keys():
            self._report(f"{kind_of(name)} {name} is healthy again")
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
        if self._counts.count(self._placed.wires, self._statuses, time.monotonic()):
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
            self._pool.submit(self._end_proxies, entrances_of(self._placed.wires), action.drain_s)
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
                fleet.shrink(self._plan(self._placed.others))
            elif isinstance(action, Ask):
                living = fleet.living()
                return Finished(names=tuple(name for name in action.names if name not in living))
            elif isinstance(action, Replace):
                if action.is_alive:
                    self._end_proxies([action.name], 0.0, LOOK_S)
                rest = {name: region for name, region in self._placed.others.items() if name != action.name}
                fleet.shrink(self._plan(rest))
                fleet.grow(self._plan(self._placed.others))
        except TradewindError as error:
            return Finished(str(error))
        return Finished()

    def _place(self, text: str | None) -> None:
        text = text if text is not None else self._book.flows(self.id)
        placed = place_for(text, FLOWS_FILE, self._ground, tuple(self._kernels.values()))
        if HOME not in entrances_of(placed.wires):
            placed = replace(placed, home=self._placed.home)  # Any place of this machine would do.
        if placed.home != self._placed.home:
            raise UsageError("this machine cannot be in another region")
        self._require_room(placed)
        self._next = placed, text

    def _grow(self) -> None:
        assert self._gateways is not None and self._next is not None
        placed, _ = self._next
        self._meter.add_prices(placed.machines, placed.egress_usd_per_gb)
        self._gateways.fleet.grow(self._plan({**self._placed.others, **placed.others}, placed))

    def _switch(self) -> str | None:
        """Wire the next placement. Return why that failed; then the former one is wired again."""
        assert self._next is not None
        (placed, text), before = self._next, self._placed
        fresh = placed.others.keys() - before.others.keys()
        for name in fresh:
            self._renew(name)
        self._placed = placed
        self._counts.flows = placed.flows
        self._leaving = {name: region for name, region in before.others.items() if name not in placed.others}
        try:
            # A resumed acceleration would have other flows than this one if they were not recorded.
            with self._book.changing_flows(self.id, text):
                self._wire(strict=True)
        except (TradewindError, OSError) as error:
            self._placed, self._due = before, "wire"
            self._counts.flows = before.flows
            # The new machines end with the next step.
            self._leaving = {name: placed.others[name] for name in fresh}
            return str(error)
        return None

    def _renew(self, name: str) -> None:
        """Forget what the former machine of a proxy said."""
        self._health.fresh(name)
        self._renewed_s[name] = time.monotonic()
        self._taken_back.renewed(name)
        self._statuses.pop(name, None)
        self._kernels.pop(name, None)
        self._meter.renewed(name)
        self._proxy_counts.renewed(name)
        self._counts.renewed(name)

    def _forget_removed(self) -> None:
        for name in self._leaving:
            self._health.forget(name)
            self._addresses.pop(name, None)
            self._statuses.pop(name, None)
            self._kernels.pop(name, None)
        self._leaving = {}

    def _end_proxies(self, names: Sequence[str], drain_s: float, timeout_s: float = END_S) -> None:
        """Drain proxies, and count their last bytes."""
        assert self._gateways is not None
        for name, status in self._gateways.end(names, drain_s, timeout_s).items():
            self._see(name, status)

    def _end(self, action: Close) -> None:
        has_failed = action.failure is not None
        entrances = [HOME] if self._enters_at_home and not has_failed else []
        names = [*entrances, *self._leaving, *self._placed.others]
        self._end_proxies(names, 0.0, LOOK_S if has_failed else END_S)
        self._count_flows()
        self.close(action.failure)

    def close(self, failure: str | None = None) -> AccelerationState:
        """End what runs, and release the acceleration. May be called more than once."""
        try:
            self._end_machines(failure)
            self._write_end(failure)
        except TradewindError as error:
            self._write_end(failure or str(error))
            raise
        finally:
            self._pool.shutdown(wait=False)
            self._lock.release()
        return self.state()

    def _write_end(self, failure: str | None) -> None:
        if self._phase not in ("ended", "failed"):
            self._phase = "ended" if failure is None else "failed"
            self._reason = failure or self._reason
            self._write()

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
        """Record the state, and return it. A full disk must end no flow of a running acceleration.

        Raises OSError before any machine is started.
        """
        state = self.state()
        try:
            self._book.write(state)
            self._unwritten = None
        except OSError as error:
            if self._gateways is None and self._phase == "starting":
                raise
            if self._unwritten is None:
                self._report(f"the state cannot be recorded, so `status` shows an old one: {error.strerror}")
            self._unwritten = error
        return state

    def state(self) -> AccelerationState:
        """Return the present state."""
        return AccelerationState(
            self.id,
            self._phase,
            self._began_s,
            time.time(),
            self._counts.states(self._placed.wires, self._shown_paths(), self._listening),
            tuple(self._proxy(name, region) for name, region in self._placed.regions.items()),
            self._meter.machines_usd,
            self._meter.egress_usd,
            self._meter.usd_max,
            self._ends_unix_s(),
            self._reason,
            self._answered,
            self._wish_error,
            self._meter.ledger,
            sky=self._sky,
            process=self._process,
            pools=tuple(pools_of(self._statuses)),
            assumed_s=self._assumed_s,
        )

    def _ends_unix_s(self) -> float | None:
        """Return the end by this machine's clock, which may have been set meanwhile; None without one."""
        if self._over_s is None or self._ends_s is None:
            return None
        ends_s = time.time() + self._over_s - elapsed_s()
        if abs(ends_s - self._ends_s) > CLOCK_SET_S:
            self._ends_s = ends_s
        return self._ends_s

    def _shown_paths(self) -> dict[str, tuple[tuple[str, ...], str | None]]:
        """Return the path of each flow, and why it is not the placed one or not in use."""
        lost = {wire.name: wire.entrance for wire in self._placed.wires if wire.entrance in self._health.unhealthy}
        return {
            name: (path, f"{lost[name]}: {self._health.unhealthy[lost[name]]}" if name in lost else reason)
            for name, (path, reason) in self._paths.items()
        }

    def _proxy(self, name: str, region: str) -> ProxyState:
        error = self._health.unhealthy.get(name)
        health: ProxyHealth = (
            "replacing" if self._course.replacing == name else "healthy" if error is None else "unhealthy"
        )
        usd, bytes_per_s = self._meter.proxy_usd(name), self._meter.bytes_per_s(name)
        state = ProxyState(name, region, health, usd=usd, bytes_per_s=bytes_per_s, error=error)
        return proxy_state(self._proxy_counts.state(state), self._statuses.get(name), self._kernels.get(name))


def _failure(look: SplitStatus | str) -> str | None:
    """Return why a proxy cannot take connections; None if it can."""
    if isinstance(look, str):
        return look
    return None if look.state == "running" else f"its split proxy is {look.state}"
