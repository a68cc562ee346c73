import json
from pathlib import Path
from typing import Any

import pytest

from tradewind.engine.topology import DEFAULT_CONNECTIONS, read_topology, topology_from_document
from tradewind.errors import TopologyError
from tradewind.model.plan import PlannedHop


def document(**changes: Any) -> dict[str, Any]:
    return {
        "gateways": {"a": {"role": "source"}, "r": {"role": "relay"}, "b": {"role": "sink"}},
        "routes": [
            {"nodes": ["a", "r", "b"], "share": 0.75, "usd_per_gb": 0.02},
            {"nodes": ["a", "b"], "share": 0.25},
        ],
        **changes,
    }


def test_a_topology_is_converted_to_a_plan() -> None:
    plan = topology_from_document(document()).plan
    assert [gateway.name for gateway in plan.gateways] == ["lead", "a", "r", "b"]
    assert [route.nodes for route in plan.routes] == [("a", "r", "b"), ("a", "b")]
    assert {hop.connections for hop in plan.hops} == {DEFAULT_CONNECTIONS}
    assert plan.mean_usd_per_gb == pytest.approx(0.015)


def test_hops_may_have_their_own_connections_and_addresses() -> None:
    hops = [{"from": "a", "to": "r", "connections": 64}, {"from": "r", "to": "b", "address": "127.0.0.1:9"}]
    made = topology_from_document(document(connections=2, hops=[*hops, {"from": "lead", "to": "a", "connections": 3}]))
    assert PlannedHop("a", "r", 64) in made.plan.hops
    assert PlannedHop("a", "b", 2) in made.plan.hops
    assert PlannedHop("lead", "a", 3) in made.plan.hops
    assert made.detours == {("r", "b"): "127.0.0.1:9"}


def test_gateways_may_have_limits_and_a_port() -> None:
    gateways = {
        **document()["gateways"],
        "r": {"role": ["relay"], "listen": "127.0.0.1:7", "limits": {"memory_bytes": 8 << 20}},
    }
    made = topology_from_document(document(gateways=gateways, plain=True))
    assert made.listen == {"r": "127.0.0.1:7"}
    assert made.plan.gateways[2].limits.memory_bytes == 8 << 20
    assert made.plain


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"gateways": []}, "must be an object"),
        ({"routes": {}}, "must be a list"),
        ({"speed": 1}, "unknown entry 'speed'"),
        ({"gateways": {"a": {"role": "source"}, "b": {"role": "boss"}}}, "role"),
        ({"gateways": {"lead": {"role": "source"}, "b": {"role": "sink"}}}, "reserved"),
        ({"routes": [{"nodes": ["a", "b"], "share": 1}]}, "gateway r is on no route"),
        ({"routes": [{"nodes": ["b", "a"], "share": 1}]}, "would be a source"),
        ({"routes": [{"nodes": ["a", "c"], "share": 1}]}, "no gateway 'c'"),
        ({"routes": [{"nodes": ["a", "b"], "share": "all"}]}, "must be a number"),
        ({"routes": [{"nodes": ["a", "b"]}]}, "no 'share'"),
        ({"hops": [{"from": "b", "to": "a"}]}, "on no route"),
        ({"connections": 65}, "connections"),
    ],
)
def test_mistakes_are_reported_by_name(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TopologyError, match=complaint):
        topology_from_document(document(**change))


@pytest.mark.parametrize(
    ("key", "value", "range_"),
    [
        ("memory_bytes", 1e300, "8388608 to 1099511627776"),
        ("memory_bytes", 10**400, "8388608 to 1099511627776"),
        ("memory_bytes", float("inf"), "8388608 to 1099511627776"),
        ("memory_bytes", float("nan"), "8388608 to 1099511627776"),
        ("memory_bytes", 5, "8388608 to 1099511627776"),
        ("store_requests_max", 0, "1 to 1024"),
        ("store_tries_max", 101, "1 to 100"),
        ("request_s", 86_401, "1 to 86400"),
    ],
)
def test_limits_that_gateways_refuse_are_refused_before_a_fleet_is_started(key: str, value: float, range_: str) -> None:
    gateways = {**document()["gateways"], "r": {"role": "relay", "limits": {key: value}}}
    with pytest.raises(TopologyError, match=f"gateway r: {key} is ") as refused:
        topology_from_document(document(gateways=gateways))
    assert refused.value.hint == f"{key} is {range_}"


def test_the_file_is_named_in_the_error(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    with pytest.raises(TopologyError, match=r"t\.json"):
        read_topology(str(file))
    file.write_text("{")
    with pytest.raises(TopologyError, match="not JSON"):
        read_topology(str(file))
    file.write_text(json.dumps(document(speed=1)))
    with pytest.raises(TopologyError, match=r"t\.json: .*speed"):
        read_topology(str(file))


def test_an_endless_topology_is_refused_without_filling_the_memory() -> None:
    with pytest.raises(TopologyError, match="/dev/zero: longer than 4 MiB"):
        read_topology("/dev/zero")
