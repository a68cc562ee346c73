"""`--via auto`: when machines are rented, and the one line that says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tradewind.catalog.load import load_catalog
from tradewind.engine import proposal as proposals
from tradewind.engine.choice import Sides, home_rate, why_not_fleet, why_not_worth
from tradewind.engine.engine import Engine
from tradewind.engine.jobs import JobRecord
from tradewind.engine.launch_spec import planned_launch
from tradewind.engine.proposal import Proposal, Request, propose
from tradewind.engine.provisioning import plan_gateways
from tradewind.engine.request import Options
from tradewind.engine.sides import Side
from tradewind.errors import InfeasibleGoal
from tradewind.fleet.provider import ANY_TYPE, Offer
from tradewind.fleet.site_catalog import Supply, site_catalog
from tradewind.model.event import Progress, Summary
from tradewind.model.goal import Deadline, Fastest, MinThroughput
from tradewind.model.hosts import SshHost, SshHosts
from tradewind.model.records import replace
from tradewind.model.region import Region
from tradewind.model.sites import Cloud, FleetTable, Sites
from tradewind.model.store import Access
from tradewind.model.url import parse_url
from tradewind.planner.network import PlanningLimits

A, B = Region("site", "a"), Region("site", "b")
#: Both sides in one store, and in two.
NEAR = Options(source=Access("http://near"), destination=Access("http://near"))
FAR = Options(source=Access("http://near"), destination=Access("http://far"))
HOSTS = Sites(SshHosts((SshHost("a", "site:a", "a"), SshHost("b", "site:b", "b"))))


def request(**settings: Any) -> Request:
    return Request("s3://a/x", "s3://b/x", **{"sites": HOSTS, "options": FAR, **settings})


def proposal(asked: Request, volume_gb: float, usd_per_hour: float = 0.0) -> Proposal:
    """Return a proposal for two hosts that move 10 Gbit/s and start in 50 s."""
    offers = [
        Offer(str(region), ANY_TYPE, usd_per_s=usd_per_hour / 3600, egress_gbps=10, ingress_gbps=10, boot_s=50)
        for region in (A, B)
    ]
    catalog = site_catalog({A: Supply((offers[0],)), B: Supply((offers[1],))}, load_catalog())
    plan = plan_gateways(catalog, A, B, volume_gb, Fastest(), PlanningLimits(1))
    launch = planned_launch(plan, {"kind": "ssh"})
    return Proposal("p", asked, plan, asked.options, launch, round(volume_gb * 1e9), 1)


@pytest.mark.parametrize(
    ("settings", "moved_by"),
    [
        ({}, "auto"),
        ({"sites": Sites()}, "local"),
        ({"sites": Sites(fleet=FleetTable(home_gbps=1.0))}, "local"),
        ({"topology": "x"}, "local"),
        ({"sky": "x"}, "sky"),
        ({"via": "local"}, "local"),
    ],
)
def test_the_default_is_auto_where_something_is_configured(settings: dict[str, Any], moved_by: str) -> None:
    assert request(**settings).moved_by == moved_by


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (request(), None),
        (Request("/data", "s3://b/x", sites=HOSTS), "/data is on this machine"),
        (Request("s3://a/x", "mem:", sites=HOSTS), "mem: is on this machine"),
        (Request("s3://a/x", ("s3://b/x", "s3://c/x"), sites=HOSTS), "there are several destinations"),
        (Request(("s3://a/x", "s3://a/y"), "s3://b/", sites=HOSTS), "there are several sources"),
        (Request("s3://a/x", "s3://b/x", via="auto"), "no host or cloud is configured"),
        (request(options=NEAR), "the store copies by itself"),
        (request(options=replace(NEAR, server_side_copy=False)), None),
        (request(options=replace(NEAR, destination=Access("http://near", profile="other"))), None),
        (Request("s3://a/x", "gs://b/x", sites=HOSTS), None),
        (Request("gs://a/x", "gs://b/x", sites=HOSTS), "the store copies by itself"),
        (Request("az://account/a/x", "az://account/b/x", sites=HOSTS), "the store copies by itself"),
        (Request("r2://account/a/x", "r2://account/b/x", sites=HOSTS), "the store copies by itself"),
        (Request("az://account/a/x", "az://other/b/x", sites=HOSTS), "the store copies by itself"),
        (Request("r2://account/a/x", "r2://other/b/x", sites=HOSTS), None),
        (request(options=replace(NEAR, source=replace(NEAR.source, path_style=False))), None),
    ],
)
def test_what_a_fleet_cannot_move_is_known_without_asking_anybody(
    asked: Request, words: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials").write_text("[other]\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    found = why_not_fleet(asked)
    assert found is None if words is None else words in (found or "")


@pytest.mark.parametrize(
    ("source", "destination", "words"),
    [
        (A, B, None),
        (A, A, "both sides are in site:a"),
        (A, None, "unknown (--dst-region)"),
        (A, Region("aws", "us-east-1"), None),
        (A, Region("gcp", "x"), "the configuration has no machine in gcp:x"),
    ],
)
def test_machines_are_needed_in_both_regions(source: Region, destination: Region | None, words: str | None) -> None:
    place = parse_url("s3://b/k", cwd="/")
    sides = Sides(Side(place, source, "as said"), Side(place, destination, "unknown"))
    assert sides.why_not(Sites(HOSTS.hosts, (Cloud("aws", (), {}),))) == words


def test_machines_pay_for_much_data_and_not_for_little(tmp_path: Path) -> None:
    with Engine(state_dir=str(tmp_path)) as engine:
        small, large = proposal(request(), 1.0), proposal(request(), 1000.0)
        reason, _ = why_not_worth(engine.control, request(), small)
        assert reason == (
            "machines take 50.8 s with their start, for $0.00, to move 1.00 GB; "
            "this machine takes 8.0 s at 1 Gbit/s (assumed)"
        )
        reason, better = why_not_worth(engine.control, request(), large)
        assert reason is None
        assert better.startswith("14 min 10 s with their start, for $0.00; this machine takes 2 h 13 min at 1 Gbit/s")


def test_a_goal_that_this_machine_misses_is_left_to_machines_even_if_they_are_hardly_faster(tmp_path: Path) -> None:
    """Two hosts move 1000 GB in 850 s, this machine in 889 s."""
    fast = Sites(HOSTS.hosts, fleet=FleetTable(home_gbps=9.0))
    made = proposal(request(), 1000.0)
    with Engine(state_dir=str(tmp_path)) as engine:
        for missed in (Deadline(870.0), MinThroughput(9.5)):
            assert why_not_worth(engine.control, request(sites=fast, goal=missed), made)[0] is None
        for kept in (Deadline(900.0), MinThroughput(8.5)):
            assert why_not_worth(engine.control, request(sites=fast, goal=kept), made)[0] is not None


@pytest.mark.parametrize(
    ("settings", "note"),
    [
        ({"ceiling_usd": 5.0}, "--max-cost applies only to a plan, not to a transfer by this machine alone"),
        ({"ceiling_usd_per_gb": 0.1}, "--max-cost applies only to a plan, not to a transfer by this machine alone"),
        (
            {"goal": Deadline(60.0)},
            "this machine alone moves the bytes, so --deadline chooses no path: a job that ends later has exit code 9",
        ),
    ],
)
def test_a_goal_that_this_machine_does_not_keep_is_not_dropped_silently(
    tmp_path: Path, settings: dict[str, Any], note: str
) -> None:
    with Engine(state_dir=str(tmp_path)) as engine:
        for destination in ("/data", ("s3://b/x", "s3://c/x")):
            made = propose(engine.control, Request("s3://a/x", destination, sites=HOSTS, **settings))
            assert made.plan.overlay is None
            assert note in made.notes
        assert propose(engine.control, Request("s3://a/x", "/data", sites=HOSTS)).notes == ()


def test_a_copy_without_a_goal_is_not_refused_where_no_plan_is_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def infeasible(*_: object) -> Proposal:
        raise InfeasibleGoal("no links are known", hint=None, nearest=None)

    place = parse_url("s3://b/k", cwd="/")
    sides = Sides(Side(place, A, "as said"), Side(place, B, "as said"))
    monkeypatch.setattr("tradewind.engine.choice.fleet_sides", lambda *_: sides)
    monkeypatch.setattr(proposals, "_at_sites", infeasible)
    with Engine(state_dir=str(tmp_path)) as engine:
        assert "no links are known" in propose(engine.control, request()).notes[0]
        for settings in ({"goal": Deadline(1.0)}, {"ceiling_usd": 0.01}):
            with pytest.raises(InfeasibleGoal):
                propose(engine.control, request(**settings))


def test_the_rate_of_this_machine_may_be_configured(tmp_path: Path) -> None:
    fast = Sites(HOSTS.hosts, fleet=FleetTable(home_gbps=9.0))
    with Engine(state_dir=str(tmp_path)) as engine:
        assert home_rate(engine.control, fast) == (9.0, "home_rate of the configuration")
        reason, _ = why_not_worth(engine.control, request(sites=fast), proposal(request(), 1000.0))
        assert reason is not None and "at 9 Gbit/s (home_rate of the configuration)" in reason


@pytest.mark.parametrize(
    ("source", "proofs", "learned"),
    [
        ("s3://a/x", {"md5 → md5": 2}, True),
        ("s3://a/x", {"md5 → md5": 1, "store-copy": 1}, False),
        ("s3://a/x", {"length": 1}, False),
        ("s3://a/x", {"md5 → md5": 1, "earlier run": 1}, True),
        ("file:///data", {"length → md5": 1}, False),
    ],
)
def test_the_rate_of_this_machine_is_learned_from_bytes_that_passed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, proofs: dict[str, int], learned: bool
) -> None:
    progress = Progress(bytes_done=10**10, elapsed_s=16.0)
    spec: dict[str, Any] = {"source": {"url": source}, "targets": [{"store": {"url": "s3://b/x"}}]}
    summary = Summary("done", progress, proofs=proofs)
    record = JobRecord("1", "done", "", (), 0, "cp", progress, summary, {"spec": spec, "topology": None})
    with Engine(state_dir=str(tmp_path)) as engine:
        monkeypatch.setattr(engine.control.store, "latest_done", lambda _: [record])
        rate, because = home_rate(engine.control, HOSTS)
        assert (rate, because) == ((5.0, "its best rate so far") if learned else (1.0, "assumed"))
        # Slowed by the user, it would make rented machines look faster.
        spec["rate_limit_bytes_per_s"] = 700_000_000
        assert home_rate(engine.control, HOSTS) == (1.0, "assumed")


def test_nothing_is_spent_without_a_question_or_a_ceiling(tmp_path: Path) -> None:
    with Engine(state_dir=str(tmp_path)) as engine:
        made = proposal(request(), 1000.0, usd_per_hour=100.0)
        reason, _ = why_not_worth(engine.control, request(unasked_usd=1.0), made)
        assert reason is not None and "and more than $1.00 needs a confirmation (-y, or --max-cost)" in reason
        for allowed in (request(), request(unasked_usd=1.0, ceiling_usd=100.0), request(unasked_usd=1000.0)):
            assert why_not_worth(engine.control, allowed, made)[0] is None


def test_a_confirmation_is_needed_above_the_configured_cost() -> None:
    made = proposal(request(), 1000.0, usd_per_hour=100.0)
    assert made.cost_usd > 1.0 and made.needs_confirmation
    generous = Sites(HOSTS.hosts, fleet=FleetTable(confirm_above_usd=1000.0))
    assert not proposal(request(sites=generous), 1000.0, usd_per_hour=100.0).needs_confirmation
    assert not proposal(request(options=Options(dry_run=True)), 1000.0, usd_per_hour=100.0).needs_confirmation
    assert not proposal(request(options=Options(destination=Access()), ceiling_usd=50.0), 1000.0).needs_confirmation
