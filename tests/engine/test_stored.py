"""Storing plans and proposals in the database."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tradewind.catalog.load import load_catalog
from tradewind.engine.ground import HOME_FOUND
from tradewind.engine.job_control import JobControl
from tradewind.engine.kept_proposal import proposal_again
from tradewind.engine.launch_spec import LaunchSpec, local_launch, planned_launch, stored_launch
from tradewind.engine.provisioning import plan_gateways
from tradewind.engine.replan import PlanRequest
from tradewind.engine.request import Options
from tradewind.engine.stored import (
    PROPOSAL_S_MAX,
    KeptProposal,
    KeptRequest,
    ProposalStore,
    changed_prices,
    plan_document,
    plan_from_document,
)
from tradewind.errors import UsageError
from tradewind.model.catalog import Catalog, Link
from tradewind.model.goal import Cheapest, Deadline
from tradewind.model.origin import Origin
from tradewind.model.plan import Plan, local_plan
from tradewind.model.price import EgressPrice, PriceTier
from tradewind.model.region import Region
from tradewind.planner.network import PlanningLimits
from tradewind.state.database import Database

SOURCE, SINK = Region.parse("azure:canadacentral"), Region.parse("gcp:asia-northeast1")
LIMITS = PlanningLimits(machines_per_region=2, per_region={SOURCE: 1}, egress_sent_gb={(SOURCE, SINK): 1.0})
TIERED = replace(LIMITS, network_tiers="best", network_tier_of={SOURCE: "standard"})
NEW = Origin("imported", "a test", "")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    known = load_catalog()
    return replace(known, standard_links={(SOURCE, SINK): Link(3.0, NEW)})


@pytest.fixture(scope="module")
def plan(catalog: Catalog) -> Plan:
    return plan_gateways(catalog, SOURCE, SINK, 100.0, Cheapest(), LIMITS)


@pytest.fixture
def store(tmp_path: Path) -> ProposalStore:
    return ProposalStore(Database(str(tmp_path)))


def kept(launch: LaunchSpec) -> KeptProposal:
    options = Options(recursive=True)
    request = KeptRequest(
        ("/a",), ("s3://b/",), options, "cp", None, None, None, Deadline(5.0), 1.0, None, None, replan=True, tier="best"
    )
    return KeptProposal(request, replace(options, max_cost_usd=0.5), launch, 10**9, 3, ("a note",))


def planned(plan: Plan, catalog: Catalog) -> LaunchSpec:
    question = PlanRequest(catalog, SOURCE, SINK, Deadline(5.0), TIERED, 1 << 24, 1.0, None, 7)
    return planned_launch(plan, {"kind": "sky", "sky": "/x"}, ceiling_usd=1.0, plan_request=question, replan=True)


def test_a_plan_survives_storage(plan: Plan) -> None:
    again = plan_from_document(plan_document(plan))
    assert again == plan and again.overlay is not None
    assert again.overlay.cost == plan.overlay.cost  # type: ignore[union-attr]
    assert plan_from_document(plan_document(local_plan())) == local_plan()
    for text in ("[]", "{}", "7", "{"):
        with pytest.raises(ValueError, match=r"."):
            plan_from_document(text)


def test_another_process_can_read_a_proposal(store: ProposalStore, plan: Plan, catalog: Catalog) -> None:
    made = {"one": kept(planned(plan, catalog)), "two": kept(planned(plan, catalog)), "local": kept(local_launch())}
    for proposal_id, proposal in made.items():
        store.save(proposal_id, proposal)
    other = ProposalStore(Database(store._database.state_dir))
    for proposal_id, proposal in made.items():
        assert other.load(proposal_id) == proposal
    assert store._database.rows("SELECT count(*) FROM catalogs") == [(1,)], "two plans share one catalog"
    store._database.write("UPDATE proposals SET expires_unix_ms = 1")
    store.save("last", kept(local_launch()))
    assert store._database.rows("SELECT count(*) FROM catalogs") == [(0,)]


def test_a_started_or_expired_proposal_is_refused(store: ProposalStore) -> None:
    with pytest.raises(UsageError, match="no proposal p-1"):
        store.load("p-1")
    store.save("p-1", kept(local_launch()))
    assert PROPOSAL_S_MAX > 0
    store._database.write("UPDATE proposals SET expires_unix_ms = 1")
    with pytest.raises(UsageError, match="p-1 has expired"):
        store.load("p-1")
    store.save("p-2", kept(local_launch()))
    with pytest.raises(UsageError, match="no proposal p-1"):
        store.load("p-1")
    store._database.write("UPDATE proposals SET job = 'a-job'")
    with pytest.raises(UsageError, match="was started as job a-job"):
        store.load("p-2")
    assert store.launch_of("a-job") == local_launch()
    assert store.launch_of("another") is None


def test_a_proposal_from_before_there_were_warm_fleets_is_read(store: ProposalStore) -> None:
    store.save("p-1", kept(local_launch()))
    document = json.loads(store._database.row("SELECT document FROM proposals", ())[0])  # type: ignore[index]
    document["launch"].pop("warm", None)
    for name in ("keeping", "states_prices"):
        document["launch"]["settings"].pop(name, None)
    document["launch"]["settings"] |= {"heals": True, "grows": False}  # Settings that are not needed any more.
    store._database.write("UPDATE proposals SET document = ?", (json.dumps(document),))
    assert store.load("p-1").launch == local_launch()


def test_a_resumed_job_names_the_warm_fleet_of_its_first_run(
    plan: Plan, catalog: Catalog, store: ProposalStore
) -> None:
    launch = replace(planned(plan, catalog), warm="a fleet")
    store.save("p-1", kept(launch))
    store._database.write("UPDATE proposals SET job = 'a-job'")
    proposed = store.launch_of("a-job")
    assert stored_launch(launch.document, launch.provider, plan=plan, proposed=proposed).warm == "a fleet"


@pytest.mark.parametrize("document", ["{}", "[]", "not JSON", '{"launch": 1}', '{"launch": {"plan_request": {}}}'])
def test_an_unreadable_proposal_is_reported(store: ProposalStore, document: str) -> None:
    store.save("p-1", kept(local_launch()))
    store._database.write("UPDATE proposals SET document = ?", (document,))
    with pytest.raises(UsageError, match="p-1 is unreadable"):
        store.load("p-1")
    store._database.write("UPDATE proposals SET job = 'a-job'")
    assert store.launch_of("a-job") is None


def test_only_prices_that_a_plan_uses_are_compared(plan: Plan, catalog: Catalog) -> None:
    assert plan.overlay is not None
    assert changed_prices(plan, catalog, catalog) == []
    assert changed_prices(local_plan(), catalog, catalog) == []
    price = EgressPrice((PriceTier(0.0, 7.0),), NEW)
    pairs = {(edge.src, edge.dst): price for edge in plan.overlay.edges}
    dearer = replace(catalog, prices=replace(catalog.prices, pairs=pairs))
    assert changed_prices(plan, catalog, dearer) == [f"egress {src} → {dst}" for src, dst in pairs]
    other = {(Region.parse("aws:us-east-1"), Region.parse("aws:us-west-2")): price}
    assert changed_prices(plan, catalog, replace(catalog, prices=replace(catalog.prices, pairs=other))) == []
    machines = plan.overlay.machines[0]
    offers = tuple(replace(offer, usd_per_hour=99.0) for offer in catalog.machine_offers(machines.region))
    dearer = replace(catalog, region_offers={**catalog.region_offers, machines.region: offers})
    assert changed_prices(plan, catalog, dearer) == [f"machine {machines.offer.name} in {machines.region}"]
    stores = {name: replace(limits, put_usd_per_1000=9.0) for name, limits in catalog.stores.items()}
    assert sorted(changed_prices(plan, catalog, replace(catalog, stores=stores))) == [
        "requests of azure",
        "requests of gcp",
    ]


def test_a_newer_figure_of_the_same_price_changes_nothing(plan: Plan, catalog: Catalog) -> None:
    document = json.loads(plan_document(plan))
    assert document["overlay"]["machines"][0]["offer"]["origin"]["date"]
    machines = plan.overlay.machines[0]  # type: ignore[union-attr]
    offers = tuple(replace(offer, origin=NEW) for offer in catalog.machine_offers(machines.region))
    refreshed = replace(catalog, region_offers={**catalog.region_offers, machines.region: offers})
    assert changed_prices(plan, catalog, refreshed) == []


def test_a_proposal_of_another_process_admits_the_present_address_of_home(
    store: ProposalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day may have passed, and this machine may be in another network."""
    monkeypatch.setattr("tradewind.engine.programs.home_network", lambda _: "198.51.100.1/32")
    provider = {"kind": "aws", "home_cidr": "203.0.113.7/32", HOME_FOUND: True}
    proposal = kept(LaunchSpec(local_plan(), provider=provider))
    store.save("p-1", replace(proposal, request=replace(proposal.request, goal=None, ceiling_usd=None, replan=False)))
    again = proposal_again(JobControl(state_dir=str(tmp_path)), "p-1")
    assert again.launch.provider == {**provider, "home_cidr": "198.51.100.1/32"}
