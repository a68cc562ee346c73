"""Questions to the configured providers, and what a plan does without an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.clouds.gcp.cloud import Cloud as EngineState
from testbed.clouds.gcp.server import ComputeEngine
from tests.fleet.gcp_stage import REGION, GcpStage
from tradewind.engine.ground import HOME_FOUND, ground_of_sites, launch_document, with_present_home
from tradewind.engine.job_control import JobControl
from tradewind.engine.survey import SiteMember, Survey, members_of, survey
from tradewind.errors import TradewindError, UsageError
from tradewind.fleet.provider import Offer
from tradewind.fleet.providers import LOCAL
from tradewind.model.hosts import SshHost, SshHosts
from tradewind.model.region import Region
from tradewind.model.sites import Cloud, FleetTable, Sites


def test_a_region_with_hosts_belongs_to_them_and_a_cloud_without_regions_has_all() -> None:
    hosts = SshHosts((SshHost("h", "aws:us-east-1", "h"),))
    clouds = (Cloud("aws", ("aws:us-east-1", "aws:eu-west-1"), {}), Cloud("gcp", (), {"project": "p"}))
    known = [Region("aws", "us-west-2"), Region("gcp", "us-east1"), Region("gcp", "us-west1")]
    members = {member.name: member for member in members_of(Sites(hosts, clouds), known)}
    assert {name: member.regions for name, member in members.items()} == {
        "ssh": ("aws:us-east-1",),
        "aws": ("aws:eu-west-1",),
        "gcp": ("gcp:us-east1", "gcp:us-west1"),
    }
    assert members["gcp"].document == {"kind": "gcp", "programs": [], "project": "p"}
    only = members_of(Sites(hosts, (Cloud("aws", ("aws:us-east-1",), {}),)), known)
    assert [member.name for member in only] == ["ssh"]


def test_a_plan_does_without_a_provider_that_fails_unless_it_is_needed(tmp_path: Path) -> None:
    control = JobControl(state_dir=str(tmp_path))
    members = [SiteMember("here", ("site:a",), LOCAL), SiteMember("newer", ("site:b",), {"kind": "unheard-of"})]
    found = survey(control, members)
    assert set(found.supplies()) == {Region("site", "a")} and found.left == {"site:a": None}
    assert list(found.notes(["site:a"])) == ["the plan does without newer: unknown provider unheard-of"]
    with pytest.raises(TradewindError, match="unknown provider unheard-of"):
        list(found.notes(["site:a", "site:b"]))


def test_a_plan_between_hosts_does_without_a_cloud_whose_machines_could_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration does not say from where they download the gateway program."""
    control = JobControl(state_dir=str(tmp_path), gateway="gateway")
    hosts = SshHosts((SshHost("a", "site:a", "a"), SshHost("b", "site:b", "b")))
    sites = Sites(hosts, (Cloud("aws", ("aws:us-east-1",), {}),))
    regions = "site:a", "site:b", "aws:us-east-1"
    offers = tuple(Offer(region, "any", usd_per_s=0.0) for region in regions)
    found = Survey(offers, dict.fromkeys(regions), (), ())
    monkeypatch.setattr("tradewind.engine.ground.survey", lambda *_: found)
    ground = ground_of_sites(control, sites, [Region("site", "a"), Region("site", "b")])
    assert [note.partition(":")[0] for note in ground.notes] == ["the plan does without aws"]
    assert ground.provider["kind"] == "ssh" and len(ground.catalog.places) == 2
    with pytest.raises(UsageError, match="cannot download the gateway program"):
        ground_of_sites(control, sites, [Region("site", "a"), Region("aws", "us-east-1")])


def test_a_resumed_job_admits_the_present_address_of_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where it was looked up before; a configured one stays."""
    monkeypatch.setattr("tradewind.engine.programs.home_network", lambda _: "198.51.100.1/32")
    found = {"kind": "aws", "home_cidr": "203.0.113.7/32", HOME_FOUND: True}
    configured = {**found, HOME_FOUND: False}
    members = {"kind": "mixed", "members": [{"provider": found}, {"provider": configured}, {"provider": LOCAL}]}
    now = {**found, "home_cidr": "198.51.100.1/32"}
    assert with_present_home(members) == {**members, "members": [{"provider": now}, *members["members"][1:]]}
    monkeypatch.setattr("tradewind.engine.programs.home_network", refuse)
    assert with_present_home(configured) == configured
    with pytest.raises(UsageError):
        with_present_home(found)


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_private_machines_know_the_configured_address_of_home(monkeypatch: pytest.MonkeyPatch, cloud: str) -> None:
    """The one that the internet sees is not looked up for them."""
    monkeypatch.setattr("tradewind.engine.programs.home_network", refuse)
    monkeypatch.setattr("tradewind.engine.programs.program_documents", lambda *_: [])
    private = SiteMember(cloud, (), {"kind": cloud, "public_address": False})
    for home in (None, "10.1.2.3/32"):
        document = launch_document(private, Sites(fleet=FleetTable(home_cidr=home)), "")
        assert document.get("home_cidr") == home
    own = SiteMember(cloud, (), {**private.document, "home_cidr": "10.9.9.9/32"})
    assert launch_document(own, Sites(fleet=FleetTable(home_cidr=home)), "")["home_cidr"] == "10.9.9.9/32"


def refuse(_: object) -> str:
    raise UsageError("no address")


@pytest.mark.parametrize("spot", [False, True])
def test_spot_machines_are_offered_to_plans_only_where_the_configuration_wants_them(tmp_path: Path, spot: bool) -> None:
    with ComputeEngine(EngineState()) as api:
        document = GcpStage(tmp_path, api).document(spot=spot)
        found = survey(JobControl(state_dir=str(tmp_path)), [SiteMember("gcp", (REGION,), document)])
    assert {offer.spot for offer in found.offers} == ({False, True} if spot else {False})
