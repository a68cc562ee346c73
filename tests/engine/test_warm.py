"""Warm fleets before anything is started: what can be kept, which plan is better, and a fleet that is gone."""

from __future__ import annotations

import time
from argparse import Namespace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.worlds import late_binary
from tradewind.catalog.load import load_catalog
from tradewind.cli.fleet import _report_ends
from tradewind.engine.fleets import Fleets
from tradewind.engine.gateways import JobGateways, WarmChoice
from tradewind.engine.job_control import JobControl
from tradewind.engine.ledger import LedgerBook
from tradewind.engine.provisioning import plan_gateways
from tradewind.engine.warm import WarmUp, require_kept, why_not_warm, why_other_tier
from tradewind.errors import FleetTaken, GatewayError, StateError, UsageError
from tradewind.fleet.journal import FleetJournal, new_fleet_id
from tradewind.fleet.provider import ANY_TYPE, FLEET_TAG, LaunchOrder, Lease, Offer
from tradewind.fleet.providers import make_provider
from tradewind.fleet.settings import FleetSettings
from tradewind.fleet.site_catalog import Supply, site_catalog
from tradewind.fleet.warm import Keeping, WarmBook, WarmMachine
from tradewind.gateway.binary import find_gateway
from tradewind.model.files import private_folder
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MinThroughput
from tradewind.model.kubernetes import KubeCluster, KubeSettings
from tradewind.model.ledger import Ledger, MachineUse, RunCount
from tradewind.model.network_tier import NetworkTier, NetworkTierChoice
from tradewind.model.plan import Plan, PlannedGateway, PlannedRoute
from tradewind.model.records import replace
from tradewind.model.region import Region
from tradewind.model.sites import NO_SITES, Cloud, Sites
from tradewind.planner.network import PlanningLimits

A, B = Region("site", "a"), Region("site", "b")


def clusters(**settings: Any) -> dict[str, Any]:
    made = KubeSettings((KubeCluster("lab", "site:a", "an image", **settings),), home="192.0.2.1")
    return {"kind": "kubernetes", **made.document()}


def hosts(*, inbound: bool) -> dict[str, Any]:
    host = {"name": "a", "region": "site:a", "address": "192.0.2.1", "inbound": inbound}
    return {"kind": "ssh", "hosts": [host]}


def mixed(document: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "mixed", "members": [{"name": "one", "regions": ["site:a"], "provider": document}]}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (clusters(network="out"), "machines in site:a call home"),
        (mixed(clusters(network="out")), "machines in site:a call home"),
        (hosts(inbound=False), "machines in site:a call home"),
        (clusters(longest_h=3), "machines in site:a end after 3 h"),
        (mixed(clusters(longest_h=3)), "machines in site:a end after 3 h"),
    ],
)
def test_machines_that_cannot_be_kept_are_refused_before_they_are_ordered(
    tmp_path: Path, document: dict[str, Any], words: str
) -> None:
    """Nothing listens at the addresses of these providers, so each call of one would fail in another way."""
    provider = make_provider(document, "no program", FleetJournal(tmp_path))
    with pytest.raises(UsageError, match=words) as caught:
        require_kept(provider, [A], 4 * 3600.0)
    assert "\n" not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize("document", [clusters(longest_h=24), clusters(network="service"), hosts(inbound=True)])
def test_machines_that_home_reaches_can_be_kept(tmp_path: Path, document: dict[str, Any]) -> None:
    for each in (document, mixed(document)):
        require_kept(make_provider(each, "no program", FleetJournal(tmp_path)), [A], 4 * 3600.0)


@cache
def plan_of(gbps: float, usd_per_hour: float, boot_s: float = 0.0) -> Plan:
    offers = [
        Offer(str(region), ANY_TYPE, usd_per_s=usd_per_hour / 3600, egress_gbps=gbps, ingress_gbps=gbps, boot_s=boot_s)
        for region in (A, B)
    ]
    catalog = site_catalog({A: Supply((offers[0],)), B: Supply((offers[1],))}, load_catalog())
    return plan_gateways(catalog, A, B, 100.0, Fastest(), PlanningLimits(1))


@pytest.mark.parametrize(
    ("goal", "warm", "rented", "words"),
    [
        # 100 GB take 80 s at 10 Gbit/s and 800 s at 1 Gbit/s.
        (None, (10, 1), (10, 1, 60), None),
        (None, (5, 1), (10, 1, 60), None),
        (None, (1, 1), (10, 1, 60), "it takes 13 min 20 s, and new machines take 2 min 20 s with their start"),
        (Fastest(), (1, 1), (10, 1, 60), "it takes 13 min"),
        (Deadline(900), (1, 9), (10, 1, 60), None),
        (MinThroughput(1), (1, 9), (10, 1, 60), None),
        (Cheapest(), (1, 9), (10, 1, 60), None),
    ],
)
def test_a_warm_fleet_is_left_where_rented_machines_are_clearly_better(
    goal: Goal | None, warm: tuple[float, float], rented: tuple[float, float, float], words: str | None
) -> None:
    found = why_not_warm(goal, plan_of(*warm), plan_of(*rented))
    assert found is None if words is None else found is not None and words in found


@pytest.mark.parametrize(
    ("configured", "machine", "tier", "wanted"),
    [
        ("PREMIUM", "premium", None, None),
        ("PREMIUM", "premium", "best", None),
        ("PREMIUM", "premium", "standard", "standard"),
        ("STANDARD", "standard", None, None),
        ("STANDARD", "standard", "premium", "premium"),
        # The configuration has changed since the fleet was started.
        ("STANDARD", "premium", None, "standard"),
        ("PREMIUM", None, "standard", None),
    ],
)
def test_a_warm_fleet_in_another_network_tier_is_not_used(
    configured: str, machine: NetworkTier | None, tier: NetworkTierChoice | None, wanted: str | None
) -> None:
    sites = Sites(clouds=(Cloud("gcp", ("gcp:us-east1", "gcp:us-central1"), {"network_tier": configured}),))
    fleet = [WarmMachine("gcp:us-east1", network_tier=machine), WarmMachine("aws:us-east-1")]
    found = why_other_tier(fleet, sites, load_catalog(), tier)
    if wanted is None:
        assert found is None
    else:
        words = f"its machines in gcp:us-east1 send in the {machine} network tier, not in the {wanted} one"
        assert found == words


def test_regions_that_have_only_the_premium_tier_are_right_in_each_case() -> None:
    catalog, fleet = load_catalog(), [WarmMachine("gcp:us-east1", network_tier="premium")]
    assert why_other_tier(fleet, NO_SITES, replace(catalog, standard_tiers={}), "standard") is None


def start(folder: Path, choice: WarmChoice, said: list[str]) -> JobGateways:
    plan = Plan((PlannedGateway("local", "site:a"),), (), (PlannedRoute(("local", "local"), 1.0),), lead="local")
    job = folder / "jobs" / "job"
    job.mkdir(parents=True, exist_ok=True)
    document = {"kind": "local"}
    journal = FleetJournal(folder)
    return JobGateways(
        find_gateway(), plan, str(job), journal, document, FleetSettings(), report=said.append, warm=choice
    )


@pytest.mark.parametrize("is_claimed", [True, False])
def test_a_new_job_rents_no_machines_instead_of_warm_ones_and_a_resumed_one_goes_on(
    tmp_path: Path, is_claimed: bool
) -> None:
    journal, other, said = FleetJournal(tmp_path), new_fleet_id(), list[str]()
    if is_claimed:
        journal.open(other, "warm", {"kind": "local"}, {"one": "site:a"})
        WarmBook(journal).keep(other, Keeping(60, 4e9, {"one": WarmMachine("site:a")}))
    with pytest.raises(FleetTaken, match=f"warm fleet {other} (is in use or )?has ended") as caught:
        start(tmp_path, WarmChoice(other, is_required=True), said)
    assert caught.value.hint == "nothing was started; plan the transfer again" and said == []
    assert [record.id for record in FleetJournal(tmp_path).records()] == ([other] if is_claimed else [])
    gateways = start(tmp_path, WarmChoice(other, is_required=False), said)
    try:
        assert gateways.fleet_id != other and gateways.living() == {"local"}
        (line,) = said
        assert line.endswith("has ended; other machines are rented")
    finally:
        gateways.kill()


def test_a_machine_that_no_job_used_costs_until_its_lease_ended(tmp_path: Path) -> None:
    """It ended by itself while a job used another one of the fleet, and no process has noted its end."""
    journal, fleet, now_s = FleetJournal(tmp_path), new_fleet_id(), time.time()
    names = ("used", "idle")
    journal.open(fleet, "warm", {"kind": "local"}, dict.fromkeys(names, "site:a"))
    machines = {name: WarmMachine("site:a", usd_per_s=0.01) for name in names}
    WarmBook(journal).keep(fleet, Keeping(300, now_s + 9000, machines))
    for name in names:
        journal.launched(fleet, name, "site:a")
        journal.leased(fleet, name, 600)
    journal.database.write("UPDATE machines SET launched_unix_s = ?", (now_s - 1000,))
    journal.database.write("UPDATE leases SET lapses_unix_s = ? WHERE machine = 'idle'", (now_s - 700,))
    WarmBook(journal).used(fleet, "a job", ["used"])
    journal.database.write("UPDATE warm_uses SET began_unix_s = ?", (now_s - 500,))
    journal.give_back(fleet)
    (end,) = Fleets(JobControl(state_dir=str(tmp_path)).store, None).end([fleet])
    assert end.receipt is not None and end.receipt.uses == 1
    assert end.receipt.machine_s == pytest.approx(1300, abs=30) and end.receipt.usd == pytest.approx(13, abs=0.3)
    assert end.receipt.idle_s == pytest.approx(800, abs=30)


def test_a_receipt_has_the_minimum_that_a_cloud_bills(tmp_path: Path) -> None:
    journal, fleet = FleetJournal(tmp_path), new_fleet_id()
    journal.open(fleet, "warm", {"kind": "local"}, {"one": "site:a"})
    machines = {"one": WarmMachine("site:a", usd_per_s=0.01, billed_s_min=60.0)}
    WarmBook(journal).keep(fleet, Keeping(300, time.time() + 9000, machines))
    journal.launched(fleet, "one", "site:a")
    journal.ready(fleet, "one", 600)
    journal.give_back(fleet)
    (end,) = Fleets(JobControl(state_dir=str(tmp_path)).store, None).end([fleet])
    assert end.receipt is not None and (end.receipt.usd, end.receipt.idle_usd) == (0.6, 0.6)
    made = WarmUp(JobControl(state_dir=str(tmp_path)), {}, machines, 30.0, 30.0)
    assert made.usd_most == 0.6


def test_a_machine_that_was_never_launched_is_not_in_the_receipt_of_its_fleet(tmp_path: Path) -> None:
    """`fleet up` was killed before its order reached the provider."""
    journal, fleet = FleetJournal(tmp_path), new_fleet_id()
    machines = {name: WarmMachine("site:a", usd_per_s=0.01, billed_s_min=60.0) for name in ("one", "two")}
    journal.open(fleet, "warm", {"kind": "local"}, dict.fromkeys(machines, "site:a"))
    WarmBook(journal).keep(fleet, Keeping(300, time.time() + 9000, machines))
    for name in machines:
        journal.launched(fleet, name, "site:a", 300)
    journal.ready(fleet, "one", 300)
    journal.give_back(fleet)
    (end,) = Fleets(JobControl(state_dir=str(tmp_path)).store, None).end([fleet])
    assert end.receipt is not None and end.receipt.usd == 0.6, "that of the other one"


def test_a_fleet_that_a_job_claims_before_its_turn_is_not_ended(tmp_path: Path) -> None:
    journal, fleet = FleetJournal(tmp_path), new_fleet_id()
    journal.open(fleet, "warm", {"kind": "local"}, {"one": "site:a"})
    WarmBook(journal).keep(fleet, Keeping(300, time.time() + 9000, {"one": WarmMachine("site:a")}))
    journal.leased(fleet, "one", 600)
    journal.give_back(fleet)
    fleets = Fleets(JobControl(state_dir=str(tmp_path)).store, None)
    ends, job = fleets.end_unused(), FleetJournal(tmp_path)
    job.take(fleet, {})
    assert list(ends) == [] and job.load(fleet).ownership == "in use"
    job.give_back(fleet)
    assert [end.id for end in fleets.end_unused()] == [fleet]


def test_a_fleet_none_of_whose_machines_can_be_kept_is_not_announced(tmp_path: Path) -> None:
    control, said = JobControl(state_dir=str(tmp_path), gateway=find_gateway()), list[str]()
    made = WarmUp(control, {"kind": "local"}, {"one": WarmMachine("site:a")}, 300.0, 900.0)
    with pytest.raises(GatewayError, match="no machine of the warm fleet could be kept"):
        made.start(said.append)
    assert list(FleetJournal(tmp_path).records()) == []
    assert "cannot be used again" in said[0]


def test_a_warm_machine_that_never_boots_is_not_waited_for_beyond_the_agreed_end(tmp_path: Path) -> None:
    control = JobControl(state_dir=str(tmp_path), gateway=late_binary(tmp_path, "one"))
    made = WarmUp(control, {"kind": "local"}, {"one": WarmMachine("site:a")}, 1.0, 1.0)
    with pytest.raises(GatewayError, match="machine one in site:a did not answer within 1 s"):
        made.start(lambda _: None)
    assert list(FleetJournal(tmp_path).records()) == []


def test_an_interrupt_while_machines_are_given_back_ends_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tradewind.fleet.keeping.Keeper.give_back", interrupted)
    control = JobControl(state_dir=str(tmp_path), gateway=find_gateway())
    made = WarmUp(control, {"kind": "local"}, {"one": WarmMachine("site:a")}, 300.0, 900.0)
    with pytest.raises(KeyboardInterrupt):
        made.start(lambda _: None)
    assert list(FleetJournal(tmp_path).records()) == []


def test_the_end_of_a_fleet_says_what_it_has_cost_its_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Machines of the job's other fleets do not count."""
    control, journal, fleet = JobControl(state_dir=str(tmp_path)), FleetJournal(tmp_path), new_fleet_id()
    journal.open(fleet, "job j1", {"kind": "local"}, {"one": "site:a"})
    book = LedgerBook(journal.database, "j1", str(private_folder(Path(control.store.path("j1")))))
    now_s = time.time()
    uses = tuple(MachineUse(1, of, "one", "site:a", now_s, now_s, 0.01, "list", 60.0) for of in (fleet, "another"))
    book.write(Ledger(machines=uses, runs=(RunCount(1),), heartbeat_s=now_s, alive_s_max=905.0))
    journal.give_back(fleet)
    (end,) = Fleets(control.store, find_gateway()).end([fleet])
    assert end.usd == pytest.approx(0.6)
    assert _report_ends(Namespace(json=False), [end]) == 0
    assert capsys.readouterr().out == f"{fleet}: 0 machines ended; its machines cost $0.60\n"


def test_a_ledger_that_cannot_be_read_does_not_keep_other_fleets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StateError("the database is locked")

    control, journal = JobControl(state_dir=str(tmp_path)), FleetJournal(tmp_path)
    fleets = [new_fleet_id(), new_fleet_id()]
    for fleet in fleets:
        journal.open(fleet, "job j1", {"kind": "local"}, {"one": "site:a"})
        journal.give_back(fleet)
    monkeypatch.setattr(Fleets, "_ledger", fail)
    ends = list(Fleets(control.store, find_gateway()).end(fleets))
    assert [(end.id, end.error, end.usd) for end in ends] == [(fleet, None, None) for fleet in fleets]


def test_down_ends_what_a_killed_job_left_on_a_warm_fleet(tmp_path: Path) -> None:
    """Its open charges, and a machine that it had added. The warm machines stay for the next job."""
    control, journal, fleet = JobControl(state_dir=str(tmp_path)), FleetJournal(tmp_path), new_fleet_id()
    kept = {"one": WarmMachine("site:a", usd_per_s=0.01)}
    journal.open(fleet, "warm", {"kind": "local"}, {"one": "site:a", "two": "site:a"})
    WarmBook(journal).keep(fleet, Keeping(300, time.time() + 9000, kept))
    WarmBook(journal).used(fleet, "job j1", ["one"])
    journal.leased(fleet, "one", 600)
    book = LedgerBook(journal.database, "j1", str(private_folder(Path(control.store.path("j1")))))
    uses = tuple(MachineUse(1, fleet, name, "site:a", time.time() - 100, None, 0.01) for name in ("one", "two"))
    book.write(Ledger(machines=uses, runs=(RunCount(1),), heartbeat_s=time.time(), alive_s_max=905.0))
    provider = make_provider({"kind": "local"}, find_gateway(), journal)
    orders = [LaunchOrder(fleet, name, "site:a", name, 1, Lease(60, "owner")) for name in ("one", "two")]
    machines = [result.machine for result in provider.launch(orders)]
    try:
        journal.give_back(fleet)
        (end,) = Fleets(control.store, find_gateway()).end_abandoned()
        assert (end.error, end.machines, end.job_id, end.is_kept) == (None, 1, "j1", True)
        assert [one.name for one in provider.machines({FLEET_TAG: fleet}) if not one.ended] == ["one"]
        assert journal.load(fleet).is_warm and journal.load(fleet).machines == {"one": "site:a"}
        ledger = book.read()
        assert ledger is not None and all(use.ended_s is not None for use in ledger.machines)
        assert list(Fleets(control.store, find_gateway()).end_abandoned()) == [], "there is nothing more to end"
    finally:
        provider.terminate([machine.id for machine in machines if machine is not None])
