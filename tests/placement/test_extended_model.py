"""Loss and shared last miles in placement: by hand, by properties, and against every placement of small problems."""

from __future__ import annotations

import hashlib
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.placement.every_placement import least_total_s
from tests.placement.problems import document, problem
from tradewind.errors import ConfigError
from tradewind.model.flows import CONTROLS, CongestionControl
from tradewind.model.records import replace
from tradewind.placement.check import placement_violations
from tradewind.placement.check_shares import last_mile_shares_mbps
from tradewind.placement.explain import reasons_of
from tradewind.placement.loss import loss_limits_mbps
from tradewind.placement.paths import paths_of
from tradewind.placement.place import ALGORITHMS, place
from tradewind.placement.problem import PlacementProblem, document_of, problem_from_document
from tradewind.placement.tcp import loss_limited_mbps

#: Rates, times and prices of eight problems without options, before there were any.
PAPER_SHA256 = "002b63c509730762afa5993a0faaea68d41ebb62901aa3127af5195ed4a4336f"


def extended(seed: int, flows: int, regions: int, **changes: Any) -> PlacementProblem:
    """Return a random problem with all options: two hosts send, one of them with loss, and two receive."""
    made = document(seed, flows, regions, shared_last_miles=True, proxy_congestion_control="cubic", **changes)
    for number, flow in enumerate(made["flows"]):
        sender, receiver = number % 2, number // 2 % 2
        flow |= {"src_host": f"s{sender}", "src_last_mile_mbps": (1000, 600)[sender]}
        flow |= {"dst_host": f"d{receiver}", "dst_last_mile_mbps": (800, None)[receiver]}
        flow |= {"loss": (0.0, 1e-4)[sender], "congestion_control": ("cubic", "reno")[receiver]}
    return problem_from_document(made, "problem")


def two_flows(*flows: dict[str, Any], **changes: Any) -> PlacementProblem:
    """Return flows of one host with 1,000 Mbit/s, over 200 ms, or twice 100 ms through a proxy."""
    base = {"size_bytes": 1e9, "src_last_mile_mbps": 1000, "rtt_direct_ms": 200, "src_host": "a"}
    base |= {"rtt_src_to_region_ms": [100], "rtt_region_to_dst_ms": [100]}
    region = {"name": "r", "capacity_mbps": 5000, "setup_cents": 10, "egress_cents_per_gb": 0, "max_instances": 1}
    made = [{**base, "id": f"f{number}", **flow} for number, flow in enumerate(flows)]
    table = {"regions": [region], "rtt_ms": [[0]], "flows": made, "budget_cents": 100, "edge_window_bytes": 50e6}
    return problem_from_document({**table, "shared_last_miles": True, **changes}, "problem")


SMALL = [extended(seed, flows=4, regions=3, slow_start=seed % 2 == 1) for seed in range(8)]


@pytest.mark.parametrize("number", range(len(SMALL)))
def test_every_algorithm_plans_with_all_options(number: int) -> None:
    least_s = least_total_s(SMALL[number])
    for algorithm in ALGORITHMS:
        plan = place(SMALL[number], algorithm)
        assert placement_violations(plan, SMALL[number]) == []
        assert least_s * (1 - 1e-6) <= plan.total_fct_s <= plan.direct_total_fct_s * (1 + 1e-9)
        if algorithm in ("exact", "auto"):
            allowed = 1e-6 if algorithm == "exact" else 2e-3
            assert plan.gap is not None and plan.total_fct_s * (1 - plan.gap) <= least_s * (1 + 1e-6)
            assert plan.total_fct_s <= least_s * (1 + allowed)


def test_without_options_all_figures_are_those_of_the_paper() -> None:
    digest = hashlib.sha256()
    for seed in range(8):
        paths = paths_of(problem(seed, flows=6, regions=5))
        for figures in (paths.rate_mbps, paths.fct_s, paths.egress_cents):
            digest.update(figures.tobytes())
    assert digest.hexdigest() == PAPER_SHA256


def test_options_that_change_nothing_change_no_figure() -> None:
    plain = document(4, flows=6, regions=5)
    hosts = [{**flow, "src_host": flow["id"], "congestion_control": "reno", "loss": 0} for flow in plain["flows"]]
    alone = problem_from_document({**plain, "flows": hosts, "shared_last_miles": True}, "problem")
    for one, other in zip(figures_of(alone), figures_of(problem_from_document(plain, "problem")), strict=True):
        assert one.tobytes() == other.tobytes()


def figures_of(problem: PlacementProblem) -> tuple[Any, Any]:
    """Return the rates and times of all paths."""
    paths = paths_of(problem)
    return paths.rate_mbps, paths.fct_s


@settings(max_examples=50)
@given(
    st.sampled_from(CONTROLS),
    st.lists(
        st.tuples(st.just(0.0) | st.floats(1e-6, 500), st.just(0.0) | st.floats(1e-12, 0.1)), min_size=1, max_size=20
    ),
)
def test_arrays_of_hops_have_the_rates_of_single_hops(
    control: CongestionControl, hops: list[tuple[float, float]]
) -> None:
    rtt_ms, loss = np.array(hops).T
    expected = [loss_limited_mbps(control, *hop) for hop in hops]
    assert loss_limits_mbps(control, rtt_ms, loss).tolist() == pytest.approx(expected, rel=1e-12)


def test_loss_limits_the_hops_by_their_part_of_the_round_trip() -> None:
    made = two_flows({"loss": 0.01, "congestion_control": "reno"}, shared_last_miles=False)
    direct, split = paths_of(made).rate_mbps[0].tolist()
    assert direct == pytest.approx(loss_limited_mbps("reno", 200, 0.01))
    # Proxies send with bbr, which loss does not limit: the first half of the path decides.
    assert split == pytest.approx(loss_limited_mbps("reno", 100, 1 - math.sqrt(0.99)))
    by_cubic = two_flows({"loss": 0.01, "congestion_control": "bbr"}, proxy_congestion_control="cubic")
    assert paths_of(by_cubic).rate_mbps[0].tolist() == pytest.approx(
        [1000, loss_limited_mbps("cubic", 100, 1 - math.sqrt(0.99))]
    )


@pytest.mark.parametrize("seed", range(4))
def test_more_loss_never_makes_a_path_faster(seed: int) -> None:
    made = problem(seed, flows=4, regions=4, proxy_congestion_control="reno")
    rates = [
        paths_of(replace(made, flows=tuple(replace(flow, loss=loss) for flow in made.flows))).rate_mbps
        for loss in (0.0, 1e-6, 1e-4, 1e-2, 0.1)
    ]
    assert all((later <= earlier).all() for earlier, later in itertools.pairwise(rates))


def test_flows_of_a_host_share_its_last_mile() -> None:
    assert paths_of(two_flows({}, {})).rate_mbps.tolist() == [[500, 500], [500, 500]]
    # A flow that its own window limits to 100 Mbit/s leaves 900 to the other one.
    slow = {"window_bytes": 1.25e6}
    assert paths_of(two_flows({}, slow)).rate_mbps.tolist() == [[900, 900], [50, 100]]
    assert paths_of(two_flows({}, {"src_host": "b"})).rate_mbps.tolist() == [[1000, 1000], [1000, 1000]]
    assert paths_of(two_flows({}, {}, shared_last_miles=False)).rate_mbps.tolist() == [[1000, 1000]] * 2


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 9))
def test_shares_fill_a_last_mile_and_never_exceed_it(seed: int, flows: int) -> None:
    made = extended(seed, flows, regions=3)
    alone = paths_of(replace(made, shared_last_miles=False)).rate_mbps.max(axis=1)
    paths = paths_of(made)
    for alone_mbps, share, checked in zip(alone, paths.last_mile_mbps, last_mile_shares_mbps(made), strict=True):
        assert min(alone_mbps, checked) == pytest.approx(min(alone_mbps, share), rel=1e-9)
    for side in ("src", "dst"):
        for host in {getattr(flow, f"{side}_host") for flow in made.flows}:
            own = [number for number, flow in enumerate(made.flows) if getattr(flow, f"{side}_host") == host]
            last_mile = getattr(made.flows[own[0]], f"{side}_last_mile_mbps")
            assert paths.rate_mbps[own].max(axis=1).sum() <= last_mile * (1 + 1e-9)


def test_explain_names_loss_and_shares() -> None:
    made = two_flows({}, {"loss": 0.01}, budget_cents=0)
    limits = [reason.limit for reason in reasons_of(place(made, "f-fct"), made)]
    assert limits == ["its share of the last mile", "the loss on the path to the destination"]
    shared = two_flows({}, {})
    assert [reason.limit for reason in reasons_of(place(shared, "f-fct"), shared)] == ["its share of the last mile"] * 2
    lossy = two_flows({"loss": 0.01}, shared_last_miles=False)
    assert reasons_of(place(lossy, "f-fct"), lossy)[0].limit == "the loss on the path to the first proxy"


def test_the_check_refuses_plans_that_ignore_loss_or_shares() -> None:
    plan = place(two_flows({}, {}, shared_last_miles=False), "f-fct")
    shared = placement_violations(plan, two_flows({}, {}))
    assert "f0: planned at 1000.0 Mbit/s, and its slowest hop carries 500.0" in shared
    lossy = two_flows({"loss": 0.01}, {}, shared_last_miles=False)
    assert any(line.startswith("f0: planned at 1000.0 Mbit/s") for line in placement_violations(plan, lossy))


def test_documents_keep_all_options() -> None:
    made = document_of(SMALL[0])
    assert document_of(problem_from_document(made, "again")) == made


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loss": 0.2}, "loss must be a part of all packets, from 0 to 0.1, not 0.2"),
        ({"loss": True}, "loss must be a part of all packets"),
        ({"congestion_control": "vegas"}, "congestion_control must be one of reno, cubic, bbr, not 'vegas'"),
        ({"window_bytes": 0}, "window_bytes must be a number, more than 0"),
        ({"src_host": ""}, "src_host must be text"),
        ({"src_last_mile_mbps": 900}, r"flows\[1\]: src_last_mile_mbps differs from that of flows\[0\].* src_host 'a'"),
    ],
)
def test_faults_are_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        two_flows({}, change)


def test_sharing_needs_a_host() -> None:
    with pytest.raises(ConfigError, match="shared_last_miles needs src_host or dst_host"):
        problem(1, flows=2, regions=1, shared_last_miles=True)
