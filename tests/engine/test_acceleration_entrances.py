"""Entrances of an acceleration while a machine of it is replaced, or does not take its paths."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.test_acceleration_ends import FLOWS, placed_flows
from tradewind.acceleration.wiring import HOME, Wire, fleet_plan
from tradewind.engine import acceleration_gateways, acceleration_life
from tradewind.engine.acceleration_flows import _group
from tradewind.engine.acceleration_gateways import AccelerationGateways
from tradewind.engine.acceleration_life import Acceleration
from tradewind.engine.acceleration_placing import client_hosts
from tradewind.engine.accelerations import TakenOver
from tradewind.errors import ConfigError, GatewayError, UsageError
from tradewind.model.flows import flows_from_document
from tradewind.model.plan import Deployment, GatewayAddress, Plan
from tradewind.model.records import replace
from tradewind.model.split import SplitProgram, SplitStatus, SplitTraffic
from tradewind.model.toml import parse_toml

FIRST, LAST, ENTRANCE = "aws-a-1", "aws-b-1", "site-web-entrance"
PROXIES, ENTRANCES = {FIRST: "aws:a", LAST: "aws:b"}, {ENTRANCE: "site:web"}
WIRES = (
    Wire("backup", "192.0.2.1:80", "forward", "127.0.0.1:0", (FIRST, LAST), 80.0, 20.0),
    Wire(
        "of web",
        "192.0.2.2:80",
        "forward",
        "127.0.0.1:8443",
        (FIRST, LAST),
        80.0,
        20.0,
        entrance=ENTRANCE,
        entrance_region="site:web",
    ),
)


class World:
    """A fleet whose gateways take every program, except those that `refuse`."""

    id = "f"

    def __init__(self) -> None:
        self.plan: Plan
        self.wants({**PROXIES, **ENTRANCES})
        self.addresses = {name: GatewayAddress(f"unix:{name}", f"{name}:443", inbound=True) for name in self.plan.names}
        self.programs: dict[str, SplitProgram] = {}
        self.refuse: dict[str, str] = {}

    def wants(self, regions: dict[str, str]) -> None:
        paths = [(wire.entrance, *wire.through) for wire in WIRES]
        self.plan = fleet_plan(paths, regions, "local:here")

    def deployment(self) -> Deployment:
        return Deployment(self.plan, self.addresses)

    def close(self, grace_s: float) -> None:
        pass

    def client(self, deployment: Deployment, name: str) -> Any:
        def put_split(program: SplitProgram, timeout_s: float = 0.0) -> SplitStatus:
            if name in self.refuse:
                raise GatewayError(self.refuse[name])
            self.programs[name] = program
            listening = tuple(each.listen for each in program.listeners)
            return SplitStatus("running", listening, 0, 0, 0, 0, 0, {}, 0, 0, (), {})

        assert deployment.addresses[name]
        return SimpleNamespace(put_split=put_split)

    def path(self, entrance: str) -> tuple[str, ...]:
        """Return the path of new connections there."""
        (listener,) = self.programs[entrance].listeners
        (route,) = listener.routes
        return tuple(route.through)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(acceleration_gateways, "GatewayClient", SimpleNamespace(of=made.client))
    return made


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def running(world: World, lines: list[str], tmp_path: Path) -> Acceleration:
    control: Any = SimpleNamespace(store=SimpleNamespace(state_dir=str(tmp_path)), gateway="")
    ground: Any = SimpleNamespace()
    placed = replace(placed_flows(), wires=WIRES, regions=PROXIES)
    made = Acceleration(control, ground, FLOWS, placed, report=lines.append)
    fleet: Any = world
    made._gateways = AccelerationGateways(fleet, ThreadPoolExecutor(1))
    made._addresses = {name: f"{name}:443" for name in PROXIES}
    made._route(strict=True)
    assert world.path(ENTRANCE) == world.path(HOME) == (FIRST, LAST)
    return made


@pytest.mark.parametrize("has_hops", [True, False], ids=["its hops are planned", "its hops are not planned"])
@pytest.mark.parametrize("gone", [FIRST, LAST, ENTRANCE])
def test_paths_change_while_a_machine_is_replaced(
    running: Acceleration, world: World, gone: str, has_hops: bool
) -> None:
    """Its former gateway has no address any more, and the next one has none yet."""
    del world.addresses[gone]
    if not has_hops:
        world.wants({name: region for name, region in {**PROXIES, **ENTRANCES}.items() if name != gone})
    world.programs.clear()
    running._route()
    assert running._health.unhealthy == {}
    assert world.path(HOME) == ((FIRST, LAST) if gone == ENTRANCE else ())
    assert (ENTRANCE in world.programs) == (gone != ENTRANCE)
    if gone != ENTRANCE:
        assert world.path(ENTRANCE) == ()


def test_an_entrance_that_does_not_take_its_paths_is_reported(
    running: Acceleration, world: World, lines: list[str]
) -> None:
    world.refuse[ENTRANCE] = "127.0.0.1:8443 is in use"
    for _ in range(3):
        running._route()
    assert lines == [f"entrance {ENTRANCE} gets no new connections: 127.0.0.1:8443 is in use"]
    assert running._due == "route"


def test_a_host_that_was_left_out_at_the_start_is_named_at_a_replan() -> None:
    """Hosts are asked when an acceleration starts: nothing is known of one that did not answer."""
    text = FLOWS.replace('"here"', '"site:web"') + 'listen = "127.0.0.1:8443"\n'
    flows = flows_from_document(parse_toml(text.encode(), "flows.toml"), "flows.toml")
    ground: Any = SimpleNamespace(
        provider={"kind": "ssh", "hosts": [{"region": "site:web"}]},
        catalog=SimpleNamespace(machine_offers=lambda _: ()),
    )
    with pytest.raises(ConfigError, match="flow backup: the host in site:web was not there when"):
        client_hosts(flows, ground, "flows.toml")


@pytest.mark.parametrize(
    ("listen", "kinds", "words"),
    [
        ("127.0.0.1:8443", ("kubernetes",), "is not a Service, and programs of a cluster reach no other address"),
        ("backup:8443", ("ssh",), "listen 'backup:8443' has no IP address"),
        ("backup:8443", ("kubernetes", "ssh"), "where the configuration has 1 host and 1 cluster"),
        ("backup:8443", ("kubernetes", "kubernetes"), "where the configuration has 2 clusters"),
    ],
)
def test_flows_enter_at_a_service_of_their_only_cluster(listen: str, kinds: tuple[str, ...], words: str) -> None:
    text = FLOWS.replace('"here"', '"site:web"') + f'listen = "{listen}"\nclients = ["10.0.0.0/8"]\n'
    flows = flows_from_document(parse_toml(text.encode(), "flows.toml"), "flows.toml")
    web = [{"region": "site:web"}]
    members = [{"provider": {"kind": kind, "hosts" if kind == "ssh" else "clusters": web}} for kind in kinds]
    offers = SimpleNamespace(machine_offers=lambda _: (object(),))
    ground: Any = SimpleNamespace(provider={"kind": "mixed", "members": members}, catalog=offers)
    with pytest.raises(ConfigError, match=words):
        client_hosts(flows, ground, "flows.toml")


def test_services_are_made_once_for_each_machine_and_keep_their_ports(world: World) -> None:
    made: list[Any] = []
    fleet: Any = SimpleNamespace(machine_id=lambda _: world.id, expose=lambda *words: made.append(words))
    gateways = AccelerationGateways(fleet, ThreadPoolExecutor(1))

    def at(*listens: str) -> list[Wire]:
        return [replace(WIRES[1], listen=listen) for listen in listens]

    gateways._expose(ENTRANCE, at("backup:443"))
    gateways._expose(ENTRANCE, at("backup:443", "other:8443"))
    gateways._expose(ENTRANCE, at("other:8443"))
    assert made == [(ENTRANCE, {"backup": {443: 20443}}), (ENTRANCE, {"other": {8443: 8443}})]
    with pytest.raises(GatewayError, match="the ports of the Service backup cannot change"):
        gateways._expose(ENTRANCE, at("backup:444"))
    world.id = "another machine"
    gateways._expose(ENTRANCE, at("backup:444"))
    assert made[2:] == [(ENTRANCE, {"backup": {444: 20444}})]


def test_a_replan_without_flows_of_this_machine_leaves_it_where_it_is(
    running: Acceleration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a sky such a placement would put it beside any host of a flow."""
    other = replace(running._placed, home="site:web", wires=WIRES[1:])
    monkeypatch.setattr(acceleration_life, "place_for", lambda *_: other)
    running._place(FLOWS)
    assert running._next == (replace(other, home=running._placed.home), FLOWS)
    monkeypatch.setattr(acceleration_life, "place_for", lambda *_: replace(other, wires=WIRES))
    with pytest.raises(UsageError, match="cannot be in another region"):
        running._place(FLOWS)


def test_the_bytes_of_a_flow_do_not_fall_when_its_entrance_or_proxy_is_replaced(
    running: Acceleration, world: World
) -> None:
    def carried() -> tuple[tuple[int, int], tuple[int, int]]:
        state = running.state()
        flow, proxy = state.flows[1], state.proxies[0]
        return (flow.bytes_down, flow.connections), (proxy.bytes_down, proxy.refused)

    def see(name: str, sent_bytes: int) -> None:
        running._see(name, status_of(world, sent_bytes))
        running._count_flows()

    for name in (ENTRANCE, FIRST):
        see(name, 100)
    assert carried() == ((100, 1), (100, 2))
    for name in (ENTRANCE, FIRST):
        running._renew(name)
    running._count_flows()
    assert carried() == ((100, 1), (100, 2)), "while it is replaced"
    for name in (ENTRANCE, FIRST):
        see(name, 150)
    assert carried() == ((250, 2), (250, 4))
    assert running._meter.ledger.runs[0].route_bytes[FIRST] == 250
    assert running._counts._comparisons[_group(WIRES[1])].proxied.busy_bytes == 250


def test_a_resumed_acceleration_counts_on(running: Acceleration, world: World, tmp_path: Path) -> None:
    for name in (ENTRANCE, FIRST):
        running._see(name, status_of(world, 100))
    running._count_flows()
    former = TakenOver(running.state(), FLOWS, running._lock, 0)
    again = Acceleration(running._control, running._ground, FLOWS, running._placed, former=former, report=print)
    assert again.state().flows[1].bytes_down == 100
    assert again.state().proxies[0].bytes_down == 100
    for name in (ENTRANCE, FIRST):
        again._see(name, status_of(world, 7))
    again._count_flows()
    assert again.state().flows[1].bytes_down == again.state().proxies[0].bytes_down == 107


def status_of(world: World, sent_bytes: int) -> SplitStatus:
    """Return the status of a gateway after one flow of the other host, and two refused connections."""
    (listener,) = world.programs[ENTRANCE].listeners
    traffic = SplitTraffic((FIRST, LAST), 1, 0, sent_bytes, WIRES[1].target, listener.name)
    return SplitStatus("running", (), 0, 1, 0, 0, 0, {"busy": 2}, 0, sent_bytes, (traffic,), {})
