"""The supervisor of one acceleration: places flows, starts proxies, wires them, watches them, and ends them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tradewind.acceleration.comparison import Comparison
from tradewind.acceleration.health import Health, paths_now
from tradewind.acceleration.wiring import (
    HOME,
    Wire,
    fleet_plan,
    home_program,
    listener_key,
    listener_keys,
    proxy_program,
    proxy_regions_of,
    wires_of,
)
from tradewind.engine.acceleration_cost import AccelerationMeter
from tradewind.engine.accelerations import FLOWS_FILE, Accelerations, purpose_of
from tradewind.engine.advising import advise_flows
from tradewind.engine.flows import problem_document, proxy_regions
from tradewind.errors import CeilingReached, ConfigError, GatewayError, TradewindError, UsageError
from tradewind.fleet.fleet import LEASE_S, Fleet, FleetSettings
from tradewind.fleet.journal import FleetJournal, new_fleet_id
from tradewind.fleet.providers import make_provider
from tradewind.gateway.client import GatewayClient
from tradewind.model.acceleration import AccelerationPhase, AccelerationState, FlowState, ProxyHealth, ProxyState
from tradewind.model.flows import FlowsFile, flows_from_document
from tradewind.model.ledger import MachinePrice
from tradewind.model.records import dataclass, replace
from tradewind.model.region import Region
from tradewind.model.toml import parse_toml
from tradewind.placement.place import place
from tradewind.placement.plan import PlacementPlan
from tradewind.placement.problem import problem_from_document

if TYPE_CHECKING:
    from tradewind.engine.ground import Ground
    from tradewind.engine.job_control import JobControl
    from tradewind.model.catalog import Catalog
    from tradewind.model.split import SplitStatus
    from tradewind.placement.advice import Advice

__all__ = ["Acceleration", "PlacedFlows", "place_for"]

#: Interval at which proxies are looked at.
TICK_S = 1.0
#: Timeout of one look at a proxy.
LOOK_S = 5.0
#: Interval at which the provider is asked for dead machines.
LIVING_EVERY_S = 5.0
#: Time in which connections may end when the ceiling or `--for` ends an acceleration.
DRAIN_S = 10.0
#: Reserve before the ceiling: a drain, and the time until machines have ended.
RESERVE_S = DRAIN_S + 20.0
#: Leases under a ceiling: a supervisor that hangs cannot stop egress, so its proxies end soon.
CEILING_LEASE_S = 120
#: Most looks at a time.
WORKERS = 16
#: Kind of the provider in whose world `here` is a machine of a region.
SKY = "sky"
#: Region of this machine elsewhere. No machine is in it.
HERE_REGION = Region("local", "here")


@dataclass(frozen=True, slots=True)
class PlacedFlows:
    """Flows, their placement, and the prices of its regions."""

    flows: FlowsFile
    plan: PlacementPlan
    wires: tuple[Wire, ...]
    home: str
    regions: Mapping[str, str]
    """Region of each proxy, by name."""
    machines: Mapping[str, MachinePrice]
    """Price of a machine, by region."""
    egress_usd_per_gb: Mapping[str, float]
    advice: Advice | None = None
    """What was measured, and what tuning the ends gains for free; None in a sky."""

    @property
    def usd_per_hour(self) -> float:
        """Price of all machines."""
        return 3600 * sum(self.machines[region].usd_per_s for region in self.regions.values())


def place_for(text: str, where: str, ground: Ground) -> PlacedFlows:
    """Return the placement of a flows file's content on the machines of `ground`. Raises ConfigError, UsageError."""
    flows, catalog = flows_from_document(parse_toml(text.encode(), where), where), ground.catalog
    in_sky = ground.provider["kind"] == SKY
    regions = proxy_regions(flows, catalog, None, where) if in_sky else _offered_regions(flows, catalog, where)
    advice = None
    if not in_sky:
        # Before the placement: it uses the round trips that were measured.
        advice = advise_flows(replace(flows, regions=regions), where, catalog, None, "auto", None)
        known = {flow.name: flow.rtt_ms for flow in advice.flows}
        flows = replace(flows, flows=tuple(replace(flow, rtt_ms=known[flow.name]) for flow in flows.flows))
    problem = problem_from_document(problem_document(flows, catalog, regions, where), where)
    plan = place(problem, "auto", None)
    used = proxy_regions_of(plan)
    prices = {}
    for region in set(used.values()):
        offers = [offer for offer in catalog.machine_offers(Region.parse(region)) if not offer.spot]
        cheapest = min(offers, key=lambda offer: offer.usd_per_hour)
        prices[region] = MachinePrice(cheapest.usd_per_s, str(cheapest.origin), cheapest.machine.billed_s_min)
    egress = {region.name: region.egress_cents_per_gb / 100 for region in problem.regions}
    wires = wires_of(flows.flows, plan, where)
    home = _home(flows, where) if in_sky else str(HERE_REGION)
    return PlacedFlows(flows, plan, wires, home, used, prices, egress, advice)


def _offered_regions(flows: FlowsFile, catalog: Catalog, where: str) -> tuple[Region, ...]:
    """Return the regions of proxies: those of the file, else all with machines. Raises ConfigError."""
    offered = sorted(catalog.region_offers)
    for region in flows.regions:
        if region not in offered:
            known = ", ".join(map(str, offered)) or "none"
            raise ConfigError(f"{where}: regions: no machines are offered in {region}", hint=f"machines: {known}")
    return tuple(dict.fromkeys(flows.regions)) or tuple(offered)


def _home(flows: FlowsFile, where: str) -> str:
    """Return the region of this machine in a sky."""
    ends = [end for flow in flows.flows for end in (flow.source, flow.destination) if end.is_here]
    regions = {str(end.region) for end in ends if end.region is not None}
    if len(regions) != 1:
        raise ConfigError(
            f"{where}: `here` is {'nowhere' if not regions else 'in several regions'}",
            hint="in a sky, give each flow of this machine the same source_region or destination_region",
        )
    return regions.pop()


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
        report: Callable[[str], None],
    ) -> None:
        self.id = new_fleet_id()
        self._control, self._ground, self._placed, self._report = control, ground, placed, report
        self._book = Accelerations(control)
        self._began_s = time.time()
        self._ends_s = None if lasting_s is None else self._began_s + lasting_s
        self._meter = AccelerationMeter(placed.machines, placed.egress_usd_per_gb, usd_max)
        self._phase: AccelerationPhase = "starting"
        self._reason: str | None = None
        self._health = Health(placed.regions)
        self._paths: dict[str, tuple[tuple[str, ...], str | None]] = {}
        self._addresses: dict[str, str] = {}
        self._statuses: dict[str, SplitStatus] = {}
        self._comparisons: dict[str, Comparison] = {}
        self._carried: dict[str, tuple[int, int, int]] = {}
        #: Flows whose new connections go direct to compare, or because proxies gain too little.
        self._aside: dict[str, str] = {}
        self._listening: dict[str, str] = {}
        self._counted_s = self._living_s = time.monotonic()
        self._wish = 0
        self._wish_error: str | None = None
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="looks")
        self._growing: tuple[str, Future[Any]] | None = None
        self._fleet: Fleet | None = None
        self.folder = self._book.make(self.id, text)
        self._lock = self._book.hold(self.id)
        self._write()

    # --- start -------------------------------------------------------------------------------------------------------

    def start(self) -> AccelerationState:
        """Start the machines and wire them; return when the flows may connect. Raises GatewayError."""
        journal = FleetJournal(self._control.store.state_dir)
        binary = self._control.gateway
        least_s = self._meter.left_s(math.inf)
        lease_s = LEASE_S if self._meter.usd_max is None else CEILING_LEASE_S
        if least_s <= RESERVE_S:
            raise CeilingReached("no machines were started: the ceiling leaves too little for them")
        self._fleet = Fleet(
            make_provider(self._ground.provider, binary, journal),
            journal,
            self._plan(self._placed.regions),
            binary,
            purpose=purpose_of(self.id),
            settings=FleetSettings(lease_s=lease_s, heals=True, grows=True),
            report=self._report,
            meter=self._meter,
            logs=self.folder / "logs",
        )
        self._wire()
        self._phase = "running"
        return self._write()

    def _plan(self, regions: Mapping[str, str]) -> Any:
        return fleet_plan([wire.through for wire in self._placed.wires], regions, self._placed.home)

    def _client(self, name: str) -> GatewayClient:
        assert self._fleet is not None
        return GatewayClient.of(self._fleet.deployment(), name)

    def _wire(self) -> None:
        """Give each proxy its program, and home the routes of the flows. Proxies that refuse it become unhealthy."""
        assert self._fleet is not None
        wires = self._placed.wires
        there = self._fleet.deployment().addresses
        names = [name for name in self._placed.regions if name in there]
        possible = {(wire.name, other.through) for wire in wires for other in wires if other.through}
        for name in names:
            program = proxy_program(name, wires, possible, self._dialled(name, names), DRAIN_S)
            try:
                self._client(name).put_split(program, LOOK_S)
            except GatewayError as error:
                self._health.dead(name, str(error))
        self._addresses = self._dialled(HOME, names)
        self._route()

    def _dialled(self, caller: str, names: Collection[str]) -> dict[str, str]:
        """Return the addresses at which a gateway reaches proxies. Raises GatewayError if it cannot."""
        assert self._fleet is not None
        deployment = self._fleet.deployment()
        needed = {hop.end for hop in deployment.plan.hops if hop.start == caller}
        found = {}
        for name in names:
            try:
                if name != caller:
                    found[name] = deployment.address(caller, name)
            except KeyError:
                if name in needed:
                    raise GatewayError(
                        f"{caller} cannot connect to the proxy {name}: its machine accepts no connections",
                        hint="proxies need machines to which others can connect",
                    ) from None
        return found

    def _route(self) -> None:
        """Send home the paths of new connections."""
        wires = self._placed.wires
        missing = self._placed.regions.keys() - self._addresses.keys()
        self._paths = paths_now(wires, self._health.unhealthy, missing, self._placed.regions)
        for name in self._aside.keys() & self._paths.keys():
            self._paths[name] = (), self._aside[name]
        paths = {name: path for name, (path, _) in self._paths.items()}
        program = home_program(wires, paths, self._addresses, DRAIN_S)
        status = self._client(HOME).put_split(program)
        bound = dict(zip(listener_keys(wires), status.listening, strict=True))
        self._listening = {wire.name: bound[listener_key(wire)] for wire in wires}

    # --- watch -------------------------------------------------------------------------------------------------------

    def watch(self) -> AccelerationState:
        """Watch the proxies until the acceleration ends, and return its last state. Raises GatewayError."""
        while True:
            began_s = time.monotonic()
            wish = self._book.wish(self.id)
            if wish is not None and wish.number > self._wish:
                self._wish = wish.number
                if wish.down:
                    return self.down(wish.drain_s)
                self._wish_error = self._replan(wish.flows)
            self._tick()
            self._write()
            if self._ends_s is not None and time.time() >= self._ends_s:
                return self.down(DRAIN_S, "its time is over")
            if self._meter.left_s(2 * RESERVE_S) <= RESERVE_S:
                return self.down(DRAIN_S, "the ceiling is close")
            time.sleep(max(0.0, TICK_S - (time.monotonic() - began_s)))

    def _tick(self) -> None:
        assert self._fleet is not None
        names = [HOME, *(name for name in self._placed.regions if name in self._addresses)]
        looks = {name: self._pool.submit(self._look, name) for name in names}
        before = dict(self._health.unhealthy)
        for name, look in looks.items():
            found = look.result()
            if isinstance(found, str):
                if name == HOME:
                    raise GatewayError(f"the split proxy of this machine is gone: {found}")
                self._health.look(name, found)
                continue
            self._statuses[name] = found
            if name != HOME:
                self._health.look(name, None)
                self._meter.sent(name, self._placed.regions[name], found.bytes_up + found.bytes_down)
        self._meter.tick()
        self._count_flows()
        self._replace_dead()
        if self._health.unhealthy != before:
            for name in self._health.unhealthy.keys() - before.keys():
                self._report(f"proxy {name} gets no new connections: {self._health.unhealthy[name]}")
            for name in before.keys() - self._health.unhealthy.keys():
                self._report(f"proxy {name} is healthy again")
            self._route()

    def _look(self, name: str) -> SplitStatus | str:
        """Return the status of a proxy, or why there is none."""
        try:
            status = self._client(name).split_status(LOOK_S)
        except (TradewindError, KeyError) as error:
            return str(error)
        return status if status.state == "running" else f"its split proxy is {status.state}"

    def _count_flows(self) -> None:
        now_s = time.monotonic()
        elapsed_s, self._counted_s = now_s - self._counted_s, now_s
        if (home := self._statuses.get(HOME)) is None:
            return
        aside = {}
        for wire in self._placed.wires:
            mine = [each for each in home.traffic if each.destination == wire.target]
            self._carried[wire.target] = (
                sum(each.bytes_up for each in mine),
                sum(each.bytes_down for each in mine),
                sum(each.connections for each in mine),
            )
            comparison = self._comparisons.setdefault(wire.target, self._comparison(now_s))
            total = [0, 0]
            for each in mine:
                total[bool(each.through)] += each.bytes_up + each.bytes_down
            comparison.direct.count(total[0], elapsed_s)
            comparison.proxied.count(total[1], elapsed_s)
            if comparison.at(now_s) and wire.through:
                aside[wire.name] = comparison.bypass or "compared with the direct path for a moment"
        if aside != self._aside:
            self._aside = aside
            if self._phase == "running":
                self._route()

    def _comparison(self, now_s: float) -> Comparison:
        flows = self._placed.flows
        return Comparison(now_s, every_s=flows.compare_every_s, trial_s=flows.compare_s)

    def _replace_dead(self) -> None:
        """Start machines in place of dead ones, one at a time, beside the looks."""
        assert self._fleet is not None
        if self._growing is not None:
            name, growing = self._growing
            if not growing.done():
                return
            self._growing = None
            if (error := growing.exception()) is not None:
                self._report(f"proxy {name} was not replaced: {error}")
                return
            self._health.fresh(name)
            self._wire()
            self._report(f"proxy {name} has a new machine")
        now_s = time.monotonic()
        if not self._health.unhealthy or now_s - self._living_s < LIVING_EVERY_S:
            return
        self._living_s = now_s
        dead = [name for name in self._health.unhealthy if name not in self._fleet.living()]
        if dead:
            self._addresses.pop(dead[0], None)
            self._health.dead(dead[0], "its machine has ended")
            self._growing = dead[0], self._pool.submit(self._grow, dead[0])

    def _grow(self, name: str) -> None:
        assert self._fleet is not None
        rest = {other: region for other, region in self._placed.regions.items() if other != name}
        self._fleet.shrink(self._plan(rest))
        self._fleet.grow(self._plan(self._placed.regions))

    # --- replan and end ----------------------------------------------------------------------------------------------

    def _replan(self, text: str | None) -> str | None:
        """Place flows again and move to that placement. Return why that failed; then the former one stays."""
        assert self._fleet is not None
        before = self._placed
        try:
            text = text if text is not None else (self.folder / FLOWS_FILE).read_text(encoding="utf-8")
            placed = place_for(text, FLOWS_FILE, self._ground)
            if placed.home != before.home:
                raise UsageError("this machine cannot be in another region")
            if self._growing is not None:
                self._growing[1].exception()
                self._growing = None
            self._meter.add_prices(placed.machines, placed.egress_usd_per_gb)
            self._placed = placed
            self._fleet.grow(self._plan({**before.regions, **placed.regions}))
            for name in placed.regions.keys() - before.regions.keys():
                self._health.fresh(name)
            self._wire()
        except TradewindError as error:
            self._placed = before
            return str(error)
        self._book.make(self.id, text)
        gone = before.regions.keys() - placed.regions.keys()
        self._end_proxies(gone, DRAIN_S)
        self._fleet.shrink(self._plan(placed.regions))
        for name in gone:
            self._health.forget(name)
            self._addresses.pop(name, None)
            self._statuses.pop(name, None)
        return None

    def _end_proxies(self, names: Any, drain_s: float) -> None:
        """Drain proxies; those that do not answer are ended with their machines."""

        def end(name: str) -> None:
            try:
                status = self._client(name).end_split(math.ceil(drain_s))
            except (TradewindError, KeyError):
                return
            if name in self._placed.regions:
                self._meter.sent(name, self._placed.regions[name], status.bytes_up + status.bytes_down)
            self._statuses[name] = status

        list(self._pool.map(end, list(names)))

    def down(self, drain_s: float, reason: str | None = None) -> AccelerationState:
        """Let open connections end within `drain_s`, then end everything. Return the last state."""
        self._phase, self._reason = "draining", reason
        self._write()
        self._end_proxies([HOME], drain_s)
        self._end_proxies(self._placed.regions, 0)
        self._count_flows()
        return self.close()

    def close(self, failure: str | None = None) -> AccelerationState:
        """End what runs, and release the acceleration. May be called more than once."""
        fleet, self._fleet = self._fleet, None
        if fleet is not None:
            fleet.close(grace_s=0.0 if failure else 5.0)
        if self._phase not in ("ended", "failed"):
            self._phase = "ended" if failure is None else "failed"
            self._reason = failure or self._reason
            self._write()
        self._pool.shutdown(wait=False)
        self._lock.release()
        return self.state()

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
            tuple(self._flow(wire) for wire in self._placed.wires),
            tuple(self._proxy(name, region) for name, region in self._placed.regions.items()),
            self._meter.machines_usd,
            self._meter.egress_usd,
            self._meter.usd_max,
            self._ends_s,
            self._reason,
            self._wish,
            self._wish_error,
            self._meter.ledger,
        )

    def _flow(self, wire: Wire) -> FlowState:
        through, reason = self._paths.get(wire.name, (wire.through, None))
        compared = self._comparisons.get(wire.target) or self._comparison(0.0)
        up, down, connections = self._carried.get(wire.target, (0, 0, 0))
        return FlowState(
            wire.name,
            wire.target,
            self._listening.get(wire.name, wire.listen),
            wire.way,
            wire.through,
            through,
            wire.predicted_mbps,
            wire.direct_mbps,
            (compared.proxied if wire.through else compared.direct).mbps,
            compared.direct.mbps,
            up,
            down,
            connections,
            reason,
        )

    def _proxy(self, name: str, region: str) -> ProxyState:
        status, error = self._statuses.get(name), self._health.unhealthy.get(name)
        is_replacing = self._growing is not None and self._growing[0] == name
        health: ProxyHealth = "replacing" if is_replacing else "healthy" if error is None else "unhealthy"
        if status is None:
            return ProxyState(name, region, health, error=error)
        usd = self._meter.sent(name, region, status.bytes_up + status.bytes_down)
        refused = sum(status.refused.values())
        return ProxyState(name, region, health, status.open, status.bytes_up, status.bytes_down, refused, usd, error)
