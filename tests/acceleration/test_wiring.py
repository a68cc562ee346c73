"""Wiring of placed flows: names, programs, paths around unhealthy proxies, and the comparison with the direct path."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind.acceleration.comparison import TRIAL_EVERY_S, TRIAL_S, Comparison, PathRate
from tradewind.acceleration.failures import AWAY_S, FAILED_MAX, FailedConnections
from tradewind.acceleration.health import (
    FAILURES_UNTIL_UNHEALTHY,
    HOP_FAILURES,
    SUCCESSES_UNTIL_HEALTHY,
    Health,
    cut_off,
    paths_now,
    unreached,
)
from tradewind.acceleration.services import service_ports
from tradewind.acceleration.wiring import (
    HOME,
    Wire,
    entrance_program,
    fleet_plan,
    groups_of,
    is_entrance,
    joined_name,
    listener_key,
    proxy_program,
    sharing,
    wires_of,
)
from tradewind.engine.acceleration_flows import FlowCounts
from tradewind.errors import ConfigError
from tradewind.model.flows import flows_from_document
from tradewind.model.records import replace
from tradewind.model.split import SplitHop, SplitStatus, SplitTraffic
from tradewind.placement.plan import FlowPlan, PlacedProxy, PlacementPlan

REGIONS = {"aws-a-1": "aws:a", "aws-b-1": "aws:b", "aws-a-2": "aws:a"}
FLOW = {"name": "up", "source": "here", "destination": "10.0.0.9:80", "size": "1 GB"}


def placed(*flows: dict[str, Any], path: tuple[PlacedProxy, ...] = ()) -> tuple[Wire, ...]:
    found = flows_from_document({"budget": "1 USD", "flow": list(flows)}, "f.toml").flows
    groups = groups_of(found, "f.toml")
    plans = tuple(FlowPlan(joined_name(group), path, 10.0, 80.0, 40.0, 1.0) for group in groups)
    return wires_of(found, PlacementPlan("auto", 1, 1, 1, 1, None, 0, plans, ()), "f.toml")


def wire(name: str, target: str, *through: str) -> Wire:
    return Wire(name, target, "forward", "127.0.0.1:0", through, 80.0, 20.0)


def test_a_path_runs_from_this_machine_to_the_other_end() -> None:
    path = PlacedProxy("aws:a", 0), PlacedProxy("aws:b", 0)
    (up,) = placed(FLOW, path=path)
    assert (up.target, up.through, up.predicted_mbps, up.direct_mbps) == ("10.0.0.9:80", ("aws-a-1", "aws-b-1"), 80, 20)
    (down,) = placed({**FLOW, "source": "10.0.0.9:80", "destination": "here"}, path=path)
    assert (down.target, down.through) == ("10.0.0.9:80", ("aws-b-1", "aws-a-1"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"source": "a.example:1"}, "not clear which end opens the connections"),
        ({"source": "a.example"}, "the region of a.example, which opens the connections, is not known"),
        ({"source": "site:x"}, "needs an address at which its programs connect there"),
        ({"source": "site:x", "way_in": "run"}, "only for programs of this machine"),
        ({"source": "site:x", "listen": "0.0.0.0:80"}, "anybody could use it"),
        ({"source": "site:x", "listen": "backup:8443"}, "everybody in the cluster could use the Service"),
        ({"source": "site:x", "listen": "Backup:8443", "clients": ["10.0.0.0/8"]}, "has no IP address"),
        ({"listen": "backup:8443", "clients": ["10.0.0.0/8"]}, "has no IP address"),
        ({"way_in": "transparent", "listen": "127.0.0.1:80"}, "has no listener to configure"),
        ({"way_in": "run", "clients": ["10.0.0.0/8"]}, "has no listener to configure"),
        ({"listen": "0.0.0.0:80"}, "anybody could use it"),
        ({"listen": "0.0.0.0:80", "way_in": "socks5", "clients": ["10.0.0.0/8"]}, "anybody could use it"),
        ({"listen": "host:80"}, "has no IP address"),
        ({"tokens": {"ann": "0" * 64}}, "does not support tokens"),
        ({"destination": "10.0.0.9"}, "has no port"),
    ],
)
def test_flows_that_this_machine_cannot_carry_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        placed({**FLOW, **changes})
    assert refused.value.hint


def test_other_machines_connect_with_networks_or_tokens() -> None:
    networks = placed({**FLOW, "listen": "0.0.0.0:80", "clients": ["10.0.0.0/8"]})
    (listener,) = entrance_program(HOME, networks, {"up": ()}, {}, 1.0).listeners
    assert (listener.listen, listener.clients, listener.tokens) == ("0.0.0.0:80", ("10.0.0.0/8",), None)
    tokens = placed({**FLOW, "listen": "0.0.0.0:80", "way_in": "socks5", "tokens": {"ann": "0" * 64}})
    (listener,) = entrance_program(HOME, tokens, {"up": ()}, {}, 1.0).listeners
    assert (listener.way, listener.tokens) == ("socks5", {"ann": "0" * 64})


def test_flows_to_one_destination_take_their_own_paths_if_listeners_tell_them_apart() -> None:
    down = {**FLOW, "name": "down", "source": FLOW["destination"], "destination": "here", "size": "3 GB"}
    path = PlacedProxy("aws:a", 0), PlacedProxy("aws:b", 0)
    wires = placed(FLOW, {**FLOW, "name": "second"}, {**down, "way_in": "socks5"}, path=path)
    assert [(each.name, each.through) for each in wires] == [
        ("up", ("aws-a-1", "aws-b-1")),
        ("second", ("aws-a-1", "aws-b-1")),
        ("down", ("aws-b-1", "aws-a-1")),
    ]
    assert not any(sharing(each, wires) for each in wires)
    paths = {each.name: each.through for each in wires} | {"second": ()}
    home = entrance_program(HOME, wires, paths, {"aws-a-1": "10.0.0.1:5", "aws-b-1": "10.0.0.2:5"}, 1.0, 7)
    assert [(listener.way, [route.through for route in listener.routes]) for listener in home.listeners] == [
        ("forward", [("aws-a-1", "aws-b-1")]),
        ("forward", [()]),
        ("socks5", [("aws-b-1", "aws-a-1")]),
    ]
    assert len({listener.name for listener in home.listeners}) == 3
    assert (home.allow, home.routes, home.limits.pool) == (("10.0.0.9:80",), (), 7)
    again = entrance_program(HOME, wires[1:], paths, {"aws-a-1": "10.0.0.1:5", "aws-b-1": "10.0.0.2:5"}, 1.0)
    assert [each.name for each in again.listeners] == [each.name for each in home.listeners[1:]]


@pytest.mark.parametrize(
    ("ways", "shared"),
    [
        (({"way_in": "sni"}, {"way_in": "sni"}), True),
        (({"way_in": "socks5"}, {"way_in": "socks5", "listen": "127.0.0.1:9"}), False),
        (({"way_in": "socks5", "tokens": {"a": "0" * 64}}, {"way_in": "socks5", "tokens": {"b": "0" * 64}}), False),
        (({"way_in": "run"}, {"way_in": "run"}), True),
        (({"way_in": "run"}, {"way_in": "transparent"}), False),
        (({"listen": "127.0.0.1:9"}, {"listen": "127.0.0.1:9"}), True),
        (({}, {}), False),
    ],
)
def test_flows_that_nothing_tells_apart_take_one_path(ways: tuple[dict[str, Any], ...], shared: bool) -> None:
    big = {**FLOW, "name": "down", "source": FLOW["destination"], "destination": "here", "size": "3 GB"}
    path = PlacedProxy("aws:a", 0), PlacedProxy("aws:b", 0)
    wires = placed({**FLOW, **ways[0]}, {**big, **ways[1]}, path=path)
    up, down = wires
    assert sharing(up, wires) == (("down",) if shared else ())
    # The largest of those that share is a download, so the path begins at its end.
    assert up.through == (("aws-b-1", "aws-a-1") if shared else ("aws-a-1", "aws-b-1"))
    assert down.through == ("aws-b-1", "aws-a-1")


def test_flows_are_counted_by_listener_and_those_that_share_one_together() -> None:
    wires = (*(replace(wire(name, "h:1", "aws-a-1"), listen="127.0.0.1:9") for name in "xy"), wire("z", "h:1"))
    ours = listener_key(wires[0]).name
    counts = FlowCounts(flows_from_document({"budget": "1 USD", "flow": [FLOW]}, "f.toml"), 0.0)
    for second, moved in ((1.0, 1_000_000), (2.0, 2_000_000)):
        traffic = (SplitTraffic(("aws-a-1",), 1, moved, 0, "h:1", ours),)
        counts.count(wires, {HOME: SplitStatus("running", (), 0, 1, 0, 0, 0, {}, moved, 0, traffic, {})}, second)
    x, y, z = counts.states(wires, {}, {})
    assert (x.shared_with, y.shared_with, z.shared_with) == (("y",), ("x",), ())
    assert x.bytes_up == y.bytes_up == 2_000_000 and z.bytes_up == 0
    assert x.achieved_mbps == y.achieved_mbps == pytest.approx(8.0)


def test_a_proxy_serves_only_the_destinations_of_its_flows() -> None:
    wires = wire("x", "h:1", "aws-a-1", "aws-b-1"), wire("y", "h:2", "aws-a-1")
    paths = {(each.name, each.through) for each in wires}
    addresses = {"aws-a-1": "10.0.0.1:5", "aws-b-1": "10.0.0.2:5"}
    entry, last = (proxy_program(name, wires, paths, addresses, 1.0) for name in addresses)
    assert (set(entry.allow), entry.proxies) == ({"h:1", "h:2"}, {"aws-b-1": "10.0.0.2:5"})
    assert (last.allow, last.proxies) == (("h:1",), {})
    home = entrance_program(HOME, wires, {each.name: each.through for each in wires}, addresses, 1.0)
    routes = [route for listener in home.listeners for route in listener.routes]
    assert [(route.destination, route.through) for route in routes] == [(w.target, w.through) for w in wires]
    assert (home.allow, home.proxies) == (("h:1", "h:2"), addresses)


def test_flows_of_another_host_enter_at_a_gateway_there() -> None:
    there = {**FLOW, "name": "there", "source": "site:x", "listen": "127.0.0.1:9"}
    back = {
        **there,
        "name": "back",
        "source": "10.0.0.9:81",
        "destination": "web.example",
        "destination_region": "site:x",
    }
    path = PlacedProxy("aws:a", 0), PlacedProxy("aws:b", 0)
    up, out, download = wires = placed(FLOW, there, {**back, "listen": "127.0.0.1:10"}, path=path)
    assert [(each.entrance, each.entrance_region) for each in (up, out)] == [
        (HOME, None),
        ("site-x-entrance", "site:x"),
    ]
    assert (out.target, out.through) == ("10.0.0.9:80", ("aws-a-1", "aws-b-1"))
    assert (download.entrance, download.target) == (out.entrance, "10.0.0.9:81")
    assert download.through == ("aws-b-1", "aws-a-1")
    assert is_entrance(out.entrance) and not any(map(is_entrance, (HOME, *REGIONS)))
    addresses = {"aws-a-1": "10.0.0.1:5", "aws-b-1": "10.0.0.2:5"}
    paths = {each.name: each.through for each in wires}
    program = entrance_program(out.entrance, wires, paths, addresses, 1.0)
    assert [listener.listen for listener in program.listeners] == ["127.0.0.1:9", "127.0.0.1:10"]
    assert program.allow == ("10.0.0.9:80", "10.0.0.9:81") and program.probes == ("aws-a-1", "aws-b-1")
    assert entrance_program(HOME, wires, paths, addresses, 1.0).allow == ("10.0.0.9:80",)


def test_flows_of_a_cluster_enter_at_a_service() -> None:
    flow = {**FLOW, "source": "site:x", "clients": ["10.0.0.0/8"]}
    (low,) = placed({**flow, "listen": "backup:443"})
    program = entrance_program("site-x-entrance", [low], {"up": ()}, {}, 10.0)
    assert (low.listen, program.listeners[0].listen) == ("backup:443", "0.0.0.0:20443")
    assert service_ports(["backup:443", "backup:8443", "other:80", "127.0.0.1:8080"]) == {
        "backup": {443: 20443, 8443: 8443},
        "other": {80: 20080},
    }


def test_two_listeners_of_a_host_have_two_addresses() -> None:
    both = {**FLOW, "listen": "127.0.0.1:8443"}, {**FLOW, "name": "b", "destination": "b:1", "listen": "127.0.0.1:8443"}
    with pytest.raises(ConfigError, match=r"flows up and b cannot both listen at 127\.0\.0\.1:8443"):
        placed(*both)
    shared = ({**flow, "way_in": "socks5"} for flow in both)
    assert len(placed(*shared)) == 2
    flow = {**FLOW, "source": "site:x", "clients": ["10.0.0.0/8"], "listen": "backup:8443"}
    with pytest.raises(ConfigError, match="cannot both listen at other:8443"):
        placed(flow, {**flow, "name": "b", "listen": "other:8443"})


def test_a_proxy_serves_each_caller_only_for_its_own_flows() -> None:
    there = replace(wire("there", "h:2", "aws-a-1"), entrance="site-x-entrance")
    wires = wire("x", "h:1", "aws-a-1", "aws-b-1"), there
    paths = {(each.name, each.through) for each in wires}
    addresses = {"aws-a-1": "10.0.0.1:5", "aws-b-1": "10.0.0.2:5"}
    entry, last = (proxy_program(name, wires, paths, addresses, 1.0).listeners[0].callers for name in addresses)
    assert entry == {HOME: ("h:1",), "site-x-entrance": ("h:2",)}
    assert last == {"aws-a-1": ("h:1",)}


def test_an_entrance_that_cannot_connect_avoids_the_proxy_alone() -> None:
    there = replace(wire("there", "h:2", "aws-a-1"), entrance="site-x-entrance")
    wires = wire("x", "h:1", "aws-a-1"), there
    fine = SplitHop(1, 1.0, 1.0)
    broken = replace(fine, failures=HOP_FAILURES, failure="no route")

    def status(hop: SplitHop) -> SplitStatus:
        return SplitStatus("running", (), 0, 0, 0, 0, 0, {}, 0, 0, (), {"aws-a-1": hop})

    looks: dict[str, SplitStatus | str] = {HOME: status(fine), "site-x-entrance": status(broken)}
    cut = cut_off(wires, looks)
    assert (unreached(wires, looks), cut) == ({}, {("site-x-entrance", "aws-a-1"): "no route"})
    found = paths_now(wires, {}, (), REGIONS, cut)
    assert found["x"] == (("aws-a-1",), None)
    assert found["there"] == ((), "aws-a-1: site-x-entrance cannot connect to it: no route")
    assert set(unreached(wires, {HOME: status(broken), "site-x-entrance": status(broken)})) == {"aws-a-1"}
    assert set(unreached(wires, {HOME: status(broken), "site-x-entrance": "no answer"})) == {"aws-a-1"}


def test_each_gateway_probes_its_next_proxies_and_asks_for_bbr() -> None:
    wires = wire("x", "h:1", "aws-a-1", "aws-b-1"), wire("y", "h:2", "aws-a-2"), wire("z", "h:3")
    paths = {(each.name, each.through) for each in wires}
    addresses = {"aws-a-1": "10.0.0.1:5", "aws-b-1": "10.0.0.2:5", "aws-a-2": "10.0.0.3:5"}
    probes = {name: proxy_program(name, wires, paths, addresses, 1.0, 0, "bbr").probes for name in addresses}
    assert probes == {"aws-a-1": ("aws-b-1",), "aws-b-1": (), "aws-a-2": ()}
    # Also while its flow goes direct, so that its recovery is seen.
    home = entrance_program(HOME, wires, {"x": (), "y": ("aws-a-2",), "z": ()}, addresses, 1.0, 0, "bbr")
    assert (home.probes, home.congestion_control) == (("aws-a-1", "aws-a-2"), "bbr")
    assert set(home.probes) <= home.proxies.keys()


def test_rates_of_clients_and_destinations_are_limited_where_flows_enter() -> None:
    document = {"budget": "1 USD", "client_rate": "80Mbit/s", "destination_rate": "1Gbit/s", "flow": [FLOW]}
    flows = flows_from_document(document, "f.toml")
    limits = entrance_program(
        HOME,
        (wire("x", "h:1"),),
        {"x": ()},
        {},
        1.0,
        client_bytes_per_s=flows.client_bytes_per_s,
        destination_bytes_per_s=flows.destination_bytes_per_s,
    ).limits
    assert limits.bytes_per_second_per_client_max == 10_000_000
    assert limits.bytes_per_second_per_destination_max == 125_000_000
    for key in ("client_rate", "destination_rate"):
        with pytest.raises(ConfigError, match=key):
            flows_from_document({**document, key: "8kbit/s"}, "f.toml")


def test_the_fleet_has_a_hop_for_each_pair_that_connects() -> None:
    plan = fleet_plan([(HOME, "aws-a-1", "aws-b-1"), (HOME, "aws-a-1"), (HOME,)], REGIONS, "site:x")
    assert {(hop.start, hop.end) for hop in plan.hops} == {(HOME, "aws-a-1"), ("aws-a-1", "aws-b-1")}
    assert (plan.lead, [gateway.name for gateway in plan.machines]) == (HOME, list(REGIONS))
    assert fleet_plan([(HOME,)], {}, "site:x").hops == ()


def test_health_has_hysteresis() -> None:
    health = Health(["p"])
    for _ in range(FAILURES_UNTIL_UNHEALTHY - 1):
        health.look("p", "silent")
    assert not health.unhealthy
    health.look("p", "silent")
    assert health.unhealthy == {"p": "silent"}
    for _ in range(SUCCESSES_UNTIL_HEALTHY - 1):
        health.look("p", None)
    assert health.unhealthy
    health.look("p", None)
    assert not health.unhealthy


def test_a_proxy_is_unreached_if_a_neighbour_on_a_path_cannot_connect() -> None:
    wires = wire("x", "h:1", "aws-a-1", "aws-b-1"), wire("y", "h:2", "aws-a-2")
    fine = SplitHop(1, 1.0, 1.0)
    broken = replace(fine, failures=HOP_FAILURES, failure="connection refused")

    def status(**hops: SplitHop) -> SplitStatus:
        named = {name.replace("_", "-"): hop for name, hop in hops.items()}
        return SplitStatus("running", (), 0, 0, 0, 0, 0, {}, 0, 0, (), named)

    looks: dict[str, SplitStatus | str] = {
        HOME: status(aws_a_1=fine, aws_b_1=broken),
        "aws-a-1": status(aws_b_1=fine),
        "aws-a-2": "no answer",
    }
    assert unreached(wires, looks) == {}, "home is no neighbour of the exit"
    looks["aws-a-1"] = status(aws_b_1=broken)
    assert unreached(wires, looks) == {"aws-b-1": "aws-a-1 cannot connect to it: connection refused"}
    once = replace(broken, failures=HOP_FAILURES - 1)
    looks = {HOME: status(aws_a_1=broken, aws_a_2=once), "aws-a-1": "no answer"}
    assert unreached(wires, looks) == {"aws-a-1": "home cannot connect to it: connection refused"}


def test_flows_go_direct_for_a_while_if_their_connections_fail_on_proxies() -> None:
    failures = FailedConnections()
    failures.count(FAILED_MAX - 1, 0, 1.0)
    assert not failures.are_too_many(1.0)
    failures.count(FAILED_MAX, 1, 2.0)
    assert not failures.are_too_many(2.0), "one was established meanwhile"
    failures.count(2 * FAILED_MAX, 1, 3.0)
    assert failures.are_too_many(3.0) and not failures.are_too_many(3.0 + AWAY_S)


def test_failed_connections_of_a_flow_are_counted_and_lead_it_aside() -> None:
    wires = wire("x", "h:1", "aws-a-1"), wire("y", "h:2", "aws-a-1")
    counts = FlowCounts(flows_from_document({"budget": "1 USD", "flow": [FLOW]}, "f.toml"), 0.0)
    ours = listener_key(wires[0]).name
    traffic = (SplitTraffic(("aws-a-1",), 0, 0, 0, "h:1", ours, failed=FAILED_MAX),)
    status = SplitStatus("running", (), 0, 1, 0, 0, 0, {}, 0, 0, traffic, {})
    assert counts.count(wires, {HOME: status}, 1.0)
    assert counts.aside == {"x": f"its last {FAILED_MAX} connections over proxies failed; direct for 60 s"}
    assert [each.failed for each in counts.states(wires, {}, {})] == [FAILED_MAX, 0]
    assert counts.count(wires, {HOME: status}, 1.0 + AWAY_S) and not counts.aside


def test_a_flow_has_the_time_of_its_transfers_as_predicted_and_achieved() -> None:
    (up,) = placed({**FLOW, "every": "3d"})
    assert (up.period_bytes, up.predicted_s) == (10e9, 10.0)
    counts = FlowCounts(flows_from_document({"budget": "1 USD", "flow": [FLOW]}, "f.toml"), 0.0)
    traffic = (SplitTraffic((), 1, 5_000_000, 0, up.target, listener_key(up).name),)
    counts.count([up], {HOME: SplitStatus("running", (), 0, 1, 0, 0, 0, {}, 0, 0, traffic, {})}, 1.0)
    (state,) = counts.states([up], {}, {})
    assert state.predicted_s == 10.0 and state.achieved_s == pytest.approx(2000.0)


def test_flows_avoid_unhealthy_proxies() -> None:
    wires = wire("x", "h:1", "aws-a-1"), wire("y", "h:2", "aws-a-2"), wire("z", "h:3", "aws-b-1")
    assert paths_now(wires, {}, (), REGIONS)["x"] == (("aws-a-1",), None)
    found = paths_now(wires, {"aws-a-1": "silent", "aws-b-1": "dead"}, (), REGIONS)
    assert found["x"] == (("aws-a-2",), "aws-a-1: silent")
    assert found["y"] == (("aws-a-2",), None)
    assert found["z"] == ((), "aws-b-1: dead")


def move(path: PathRate, moved_bytes: int) -> None:
    """Look at a path for 10 s, once a second, while it moves bytes."""
    begin = path.total_bytes
    for second in range(1, 11):
        path.count(begin + moved_bytes * second // 10, 1.0)


def test_proxies_that_gain_too_little_are_bypassed_until_they_gain() -> None:
    compared = Comparison(0.0)
    move(compared.proxied, 10_000_000)
    assert not compared.at(TRIAL_EVERY_S - 1)
    assert compared.at(TRIAL_EVERY_S), "a trial of the direct path"
    move(compared.direct, 10_000_000)
    assert compared.at(TRIAL_EVERY_S + TRIAL_S)
    assert compared.bypass == "proxies gain too little: 8 Mbit/s with proxies, 8 Mbit/s without"
    assert not compared.at(2 * TRIAL_EVERY_S + 1), "a trial of the proxies"
    move(compared.proxied, 100_000_000)
    assert not compared.at(2 * TRIAL_EVERY_S + TRIAL_S + 2)
    assert compared.bypass is None


def test_paths_are_not_judged_by_transfers_that_end_before_three_looks() -> None:
    """On a busy host a look comes late. The path was idle for most of the time since the last one."""
    compared = Comparison(0.0)
    for path in (compared.proxied, compared.direct):
        path.count(2_000_000, 2.0)
    assert not compared.at(1.0) and compared.bypass is None
    for _ in range(2):
        compared.direct.count(compared.direct.total_bytes + 2_000_000, 2.0)
        compared.proxied.count(compared.proxied.total_bytes + 2_000_000, 2.0)
    assert compared.at(2.0) and compared.bypass is not None


def test_an_idle_flow_has_no_trials() -> None:
    assert not Comparison(0.0).at(TRIAL_EVERY_S + 1)
