from dataclasses import replace

import pytest

from tradewind.engine.compile import LEAD_CONNECTIONS, RunSettings, compile_programs, push_order
from tradewind.errors import GatewayError
from tradewind.model.job import JobSpec, ObjectSelection, PrefixSelection, Target
from tradewind.model.plan import Deployment, GatewayAddress, Plan, PlannedGateway, PlannedHop, PlannedRoute, local_plan
from tradewind.model.program import CopyScope, DialSpec, HopSpec, ObjectScope, PrefixScope
from tradewind.model.store import StoreSpec

JOB = JobSpec(
    StoreSpec("s3://source"),
    PrefixSelection(""),
    (Target(StoreSpec("gs://one"), ""), Target(StoreSpec("gs://two"), "")),
)
KEY = "ab" * 32


def two_routes() -> Deployment:
    names = ("lead", "src", "north", "south", "dst")
    hops = (
        PlannedHop("src", "north", 4),
        PlannedHop("north", "dst", 5),
        PlannedHop("src", "south", 6),
        PlannedHop("south", "dst", 7),
    )
    routes = (PlannedRoute(("src", "north", "dst"), 0.7, 0.02), PlannedRoute(("src", "south", "dst"), 0.3))
    addresses = {name: GatewayAddress(f"unix:/{name}", f"127.0.0.1:{index}") for index, name in enumerate(names, 1)}
    plan = Plan(tuple(PlannedGateway(name) for name in names), hops, routes)
    return Deployment(plan, addresses, {("north", "dst"): "127.0.0.1:999"})


def test_each_gateway_gets_its_own_part() -> None:
    programs = compile_programs(two_routes(), JOB, RunSettings("job-1", 9, KEY))
    north = programs["north"]
    assert [route.nodes for route in north.routes] == [("lead", "src", "north", "dst")]
    assert north.hops == (HopSpec("dst", 5, "127.0.0.1:999"),)
    assert programs["src"].hops == (HopSpec("north", 4, "127.0.0.1:3"), HopSpec("south", 6, "127.0.0.1:4"))
    assert programs["lead"].hops == (HopSpec("src", LEAD_CONNECTIONS, "127.0.0.1:2"),)
    assert programs["dst"].hops == ()
    assert {program.limits.store_requests_max for program in programs.values()} == {9}


def test_requests_at_first_are_those_of_the_settings() -> None:
    settings = RunSettings("job-1", 9, KEY, read_requests_start=30, write_requests_start=5)
    for program in compile_programs(two_routes(), JOB, settings).values():
        assert (program.limits.read_requests_start, program.limits.write_requests_start) == (30, 5)
    for program in compile_programs(two_routes(), JOB, RunSettings("job-1", 9, KEY)).values():
        assert (program.limits.read_requests_start, program.limits.write_requests_start) == (16, 16)


def without_data_port(deployment: Deployment, *names: str) -> Deployment:
    closed = {name: replace(deployment.addresses[name], data=None) for name in names}
    return replace(deployment, addresses={**deployment.addresses, **closed}, detours={})


def test_the_downstream_end_dials_if_only_it_can() -> None:
    programs = compile_programs(without_data_port(two_routes(), "dst"), JOB, RunSettings("job-1"))
    assert programs["north"].hops == (HopSpec("dst", 5),)
    assert programs["south"].hops == (HopSpec("dst", 7),)
    assert programs["dst"].dials == (DialSpec("north", "127.0.0.1:3", 5), DialSpec("south", "127.0.0.1:4", 7))
    assert programs["src"].dials == programs["north"].dials == ()


@pytest.mark.parametrize("other, dialled", [("vpc", True), ("another", False)])
def test_machines_without_inbound_connections_reach_each_other_in_one_network(other: str, dialled: bool) -> None:
    regions = {"src": "aws:a", "dst": "aws:b"}
    plan = Plan(
        tuple(PlannedGateway(name, region) for name, region in regions.items()),
        (PlannedHop("src", "dst", 1),),
        (PlannedRoute(("src", "dst"), 1.0),),
        lead="src",
    )
    addresses = {
        name: GatewayAddress("unix:/x", f"10.0.0.1:{index}", inbound=False, network=network)
        for index, (name, network) in enumerate({"src": "vpc", "dst": other}.items(), 1)
    }
    deployment = Deployment(plan, addresses)
    if dialled:
        assert deployment.upstream_dials("src", "dst") and deployment.address("src", "dst") == "10.0.0.1:2"
    else:
        with pytest.raises(GatewayError, match="neither accepts connections"):
            deployment.upstream_dials("src", "dst")


def test_a_hop_that_neither_end_can_dial_is_refused() -> None:
    with pytest.raises(GatewayError, match="no hop from north to dst: neither accepts connections"):
        compile_programs(without_data_port(two_routes(), "north", "dst"), JOB, RunSettings("job-1"))


def test_a_short_stall_shortens_longer_timeouts_and_a_long_one_changes_none() -> None:
    def limits(stall_s: int) -> set[tuple[int, int, int]]:
        programs = compile_programs(two_routes(), replace(JOB, stall_s=stall_s), RunSettings("job-1"))
        made = [program.limits for program in programs.values()]
        return {(each.peer_silence_s, each.store_reach_s, each.store_idle_s) for each in made}

    assert limits(3600) == limits(60) == {(15, 45, 30)}
    assert limits(20) == {(5, 15, 10)}
    assert limits(1) == {(2, 1, 5)}


def test_stores_and_key_go_only_where_they_are_needed() -> None:
    programs = compile_programs(two_routes(), JOB, RunSettings("job-1", None, KEY))
    assert {name for name, program in programs.items() if program.lead is not None} == {"lead"}
    assert {name for name, program in programs.items() if program.source is not None} == {"src"}
    assert {name for name, program in programs.items() if program.sinks} == {"dst"}
    assert [store.url for store in programs["dst"].sinks] == ["gs://one", "gs://two"]
    assert {name for name, program in programs.items() if program.seal_key_hex} == {"src", "dst"}
    assert all(KEY not in repr(program) for program in programs.values())


def test_sources_and_sinks_get_the_jobs_keys() -> None:
    targets = (Target(StoreSpec("gs://one"), "a/"), Target(StoreSpec("gs://two"), ""))
    tree = compile_programs(
        two_routes(), JobSpec(StoreSpec("az://account/source"), PrefixSelection("x/"), targets), RunSettings("job-1")
    )
    assert tree["src"].reads == PrefixScope("x/")
    assert tree["dst"].writes == (PrefixScope("a/"), PrefixScope(""))
    assert tree["dst"].copies == CopyScope("source", PrefixScope("x/"))
    assert {name for name, program in tree.items() if program.reads or program.writes} == {"src", "dst"}
    one = JobSpec(StoreSpec("s3://source"), ObjectSelection("x"), (Target(StoreSpec("gs://one"), "y"),))
    programs = compile_programs(two_routes(), one, RunSettings("job-1"))
    assert programs["src"].reads == ObjectScope("x")
    assert programs["dst"].writes == (ObjectScope("y"),)


def test_sinks_get_programs_first_and_the_lead_last() -> None:
    order = push_order(two_routes().plan)
    assert order == ("dst", "north", "south", "src", "lead")


def test_local_mode_is_not_a_special_case() -> None:
    deployment = Deployment(local_plan(), {"local": GatewayAddress("unix:/x")})
    programs = compile_programs(deployment, JOB, RunSettings("job-1"))
    (program,) = programs.values()
    assert program.routes[0].nodes == ("local", "local", "local")
    assert program.hops == ()
    assert program.lead == JOB
    assert program.source == JOB.source
    assert len(program.sinks) == 2
