"""Flows files become placement problems with the catalog's prices and round trips."""

from typing import Any

import pytest

from tradewind.catalog.load import load_catalog
from tradewind.engine.flows import problem_document, proxy_regions
from tradewind.errors import ConfigError
from tradewind.fleet.provider import ANY_TYPE, Offer
from tradewind.fleet.site_catalog import Supply, site_catalog
from tradewind.model.flows import FlowsFile, flows_from_document
from tradewind.model.records import replace
from tradewind.model.region import Region
from tradewind.model.sites import Cloud, Sites
from tradewind.placement.place import place
from tradewind.placement.problem import problem_from_document

CATALOG = load_catalog()
VIRGINIA, IRELAND, SINGAPORE = "aws:us-east-1", "aws:eu-west-1", "aws:ap-southeast-1"


def flows(*entries: dict[str, Any], **changes: Any) -> FlowsFile:
    made = [{"name": f"f{number}", "size": "2 GB", **entry} for number, entry in enumerate(entries)]
    table = {"budget": "20 USD", "period": "1d", "regions": [VIRGINIA, SINGAPORE], "flow": made, **changes}
    return flows_from_document(table, "flows.toml")


def compiled(made: FlowsFile) -> dict[str, Any]:
    return problem_document(made, CATALOG, proxy_regions(made, CATALOG, None, "flows.toml"), "flows.toml")


HOSTS = {
    "source": "a.example:1",
    "source_region": VIRGINIA,
    "destination": "b.example:2",
    "destination_at": [1.35, 103.8],
}


def test_sizes_and_repetitions_add_up_to_the_bytes_of_the_period() -> None:
    sizes = [{"size": "1 GB", "count": 3}, {"size": "500 MB"}]
    entry = {**HOSTS, "size": None, "sizes": sizes, "every": "6h"}
    del entry["size"]
    made = flows_from_document(
        {"budget": "1 USD", "period": "1d", "regions": [VIRGINIA], "flow": [{"name": "f", **entry}]}, "flows.toml"
    )
    assert compiled(made)["flows"][0]["size_bytes"] == 4 * 3.5e9


def test_machines_cost_their_hours_in_the_period() -> None:
    of_a_day, of_6_h = compiled(flows(HOSTS)), compiled(flows(HOSTS, machine_time="6h"))
    cheapest = min(offer.usd_per_hour for offer in CATALOG.machine_offers(Region.parse(VIRGINIA)) if not offer.spot)
    assert of_a_day["regions"][0]["setup_cents"] == pytest.approx(cheapest * 24 * 100)
    assert of_6_h["regions"][0]["setup_cents"] == pytest.approx(cheapest * 6 * 100)
    named = compiled(flows(HOSTS, regions=[VIRGINIA], machine_types=["m5.8xlarge"]))
    assert named["regions"][0]["capacity_mbps"] == 5000
    with pytest.raises(ConfigError, match="no machine type for proxies in aws:us-east-1"):
        compiled(flows(HOSTS, machine_types=["m5.none"]))


def test_egress_has_the_highest_price_of_any_target() -> None:
    # Between two regions of AWS a GB costs 2 cents; a host elsewhere costs the price to the internet.
    regions = {"source": IRELAND, "destination": SINGAPORE}
    assert compiled(flows(regions))["regions"][0]["egress_cents_per_gb"] == pytest.approx(2.0)
    assert compiled(flows(regions, HOSTS))["regions"][0]["egress_cents_per_gb"] == pytest.approx(9.0)
    anywhere = {"source": IRELAND, "destination": "b.example:2", "rtt_ms": 80}
    anywhere["destination_rtt_ms"] = {VIRGINIA: 10, SINGAPORE: 200}
    assert compiled(flows(anywhere))["regions"][0]["egress_cents_per_gb"] == pytest.approx(9.0)


def test_round_trips_come_from_the_file_then_the_grid_then_the_distance() -> None:
    entry = {**HOSTS, "source_rtt_ms": {SINGAPORE: 250}}
    problem = compiled(flows(entry))
    grid = CATALOG.grid.link(Region.parse(VIRGINIA), Region.parse(SINGAPORE))
    assert grid is not None
    assert problem["flows"][0]["rtt_src_to_region_ms"] == [1.0, 250]
    assert problem["rtt_ms"][0] == [1.0, grid.rtt_ms]
    to_region = problem["flows"][0]["rtt_region_to_dst_ms"]
    assert to_region[0] == pytest.approx(grid.rtt_ms, rel=0.02)
    assert to_region[1] < 5
    assert problem["flows"][0]["rtt_direct_ms"] == pytest.approx(grid.rtt_ms, rel=0.02)
    assert compiled(flows({**entry, "rtt_ms": 77}))["flows"][0]["rtt_direct_ms"] == 77


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"source_region": None}, "flow f0: rtt_ms is missing"),
        ({"source_region": "aws:us-est-1"}, "flow f0: unknown region aws:us-est-1"),
        ({"source_region": None, "rtt_ms": 90}, "flow f0: source_rtt_ms has no round trip to aws:us-east-1"),
    ],
)
def test_a_missing_round_trip_is_named(changes: dict[str, Any], words: str) -> None:
    entry = {key: value for key, value in {**HOSTS, **changes}.items() if value is not None}
    with pytest.raises(ConfigError, match=words):
        compiled(flows(entry))


def test_regions_default_to_those_of_the_configured_clouds() -> None:
    made = flows(HOSTS, regions=[])
    sites = Sites(clouds=(Cloud("aws", (IRELAND,), {}),))
    assert proxy_regions(made, CATALOG, sites, "flows.toml") == (Region.parse(IRELAND),)
    with pytest.raises(ConfigError, match="regions is missing, and no cloud is configured"):
        proxy_regions(made, CATALOG, None, "flows.toml")
    with pytest.raises(ConfigError, match="unknown region aws:us-east-9"):
        proxy_regions(flows(HOSTS, regions=["aws:us-east-9"]), CATALOG, None, "flows.toml")


def test_a_compiled_problem_is_placed_within_its_budget() -> None:
    problem = problem_from_document(compiled(flows(HOSTS, machine_time="1h")), "flows.toml")
    plan = place(problem, "2p")
    assert plan.acceleration > 2
    assert 0 < plan.cost_cents <= 2000


def test_hosts_without_a_place_need_round_trips_and_send_for_free() -> None:
    hosts = [Region("site", name) for name in ("a", "b")]
    offer = Offer("site:a", ANY_TYPE, price_source="the configuration")
    catalog = site_catalog({host: Supply((offer,)) for host in hosts}, CATALOG)
    catalog = replace(catalog, places={**CATALOG.places, **catalog.places})
    entry = {
        "source": "here",
        "source_rtt_ms": {"site:a": 10, "site:b": 90},
        "destination": "b.example:2",
        "rtt_ms": 200,
    }
    there = {"destination_rtt_ms": {"site:a": 95, "site:b": 10}}
    problem = problem_document(flows({**entry, **there}), catalog, hosts, "flows.toml")
    assert problem["rtt_ms"] == [[1.0, 100.0], [100.0, 1.0]]
    assert [region["egress_cents_per_gb"] for region in problem["regions"]] == [0.0, 0.0]
    with pytest.raises(ConfigError, match="destination_rtt_ms has no round trip to site:a"):
        problem_document(flows({**entry, "destination_region": IRELAND}), catalog, hosts, "flows.toml")
    apart = {"source_rtt_ms": {"site:a": 10}, "destination_rtt_ms": {"site:b": 10}}
    with pytest.raises(ConfigError, match="no round trip between site:a and site:b is known"):
        problem_document(flows({**entry, **apart}), catalog, hosts, "flows.toml")


@pytest.mark.parametrize("compared", [{"compare_time": "2s"}, {"compare_every": "15s"}])
def test_a_comparison_is_long_enough_and_leaves_time_for_the_proxies(compared: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="compare_time must be at least 3 s and at most half of compare_every"):
        flows(HOSTS, **compared)
    made = flows(HOSTS, compare_every="20s", compare_time="5s")
    assert (made.compare_every_s, made.compare_s) == (20, 5)


def test_slow_start_and_the_proxies_congestion_control_become_options_of_the_problem() -> None:
    plain = compiled(flows(HOSTS))
    assert "slow_start" not in plain and "proxy_congestion_control" not in plain
    made = compiled(flows({**HOSTS, "loss": 0.001}, slow_start=True, proxy_congestion_control="cubic"))
    problem = problem_from_document(made, "flows.toml")
    assert problem.slow_start and problem.proxy_congestion_control == "cubic"
    slower = place(problem, "f-fct").total_fct_s
    assert slower > place(replace(problem, slow_start=False), "f-fct").total_fct_s
    with pytest.raises(ConfigError, match="proxy_congestion_control must be"):
        flows(HOSTS, proxy_congestion_control="htcp")


def test_loss_and_shared_last_miles_become_options_of_the_problem() -> None:
    lossy = {**HOSTS, "loss": 0.001, "congestion_control": "reno", "source_rate": "1Gbit/s"}
    slower = {**HOSTS, "destination": "c.example:2", "source_rate": "500Mbit/s"}
    plain, shared = compiled(flows(lossy, slower)), compiled(flows(lossy, slower, shared_last_miles=True))
    assert "shared_last_miles" not in plain and "src_host" not in plain["flows"][0]
    assert (plain["flows"][0]["loss"], plain["flows"][0]["congestion_control"]) == (0.001, "reno")
    assert "loss" not in plain["flows"][1]
    # The lowest rate that a flow gives for a host holds for all its flows.
    assert [(flow["src_host"], flow["src_last_mile_mbps"]) for flow in shared["flows"]] == [("a.example", 500)] * 2
    problem = problem_from_document(shared, "flows.toml")
    plan = place(problem, "1p")
    assert sum(flow.rate_mbps for flow in plan.flows) <= 500 * (1 + 1e-9)


def test_flows_between_regions_have_no_host_and_share_nothing() -> None:
    between = {"source": VIRGINIA, "destination": SINGAPORE, "source_rate": "1Gbit/s"}
    assert "shared_last_miles" not in compiled(flows(between, shared_last_miles=True))
    with pytest.raises(ConfigError, match="shared_last_miles must be true or false"):
        flows(HOSTS, shared_last_miles="yes")
