"""Learning link rates from transfers: which hop's rate is the link's own, and when nothing is learned."""

from __future__ import annotations

import datetime
import fcntl
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.servers.process import free_port
from tradewind.catalog import learned
from tradewind.catalog.learned import (
    LEARNED_FILE,
    SAMPLES_PER_LINK_MAX,
    Sample,
    learned_figures,
    read_samples,
    store_samples,
)
from tradewind.catalog.load import load_catalog
from tradewind.engine import learning
from tradewind.engine.client import Client
from tradewind.engine.learning import RouteWatch, measurable_hops, record_samples, samples_of
from tradewind.engine.request import Options
from tradewind.engine.topology import topology_from_document
from tradewind.model.job import JobSpec, PrefixSelection, Target
from tradewind.model.plan import Deployment, GatewayAddress, Plan
from tradewind.model.region import Region
from tradewind.model.store import StoreSpec

TODAY = datetime.date(2026, 11, 21)
DATE = TODAY.isoformat()
IRELAND, FRANKFURT, TOKYO = Region("aws", "eu-west-1"), Region("gcp", "europe-west3"), Region("aws", "ap-northeast-1")
SPEC = JobSpec(StoreSpec("file:///from"), PrefixSelection(""), (Target(StoreSpec("file:///to"), ""),))


def plan_of(connections: int = 64, regions: Mapping[str, str] | None = None) -> Plan:
    """Return a plan with two routes: over a relay in Frankfurt, and direct to Tokyo."""
    places = regions or {"a": str(IRELAND), "r": str(FRANKFURT), "b": str(TOKYO)}
    roles = {"a": "source", "r": "relay", "b": "sink"}
    document: dict[str, Any] = {
        "connections": connections,
        "gateways": {name: {"role": role, "region": places[name]} for name, role in roles.items()},
        "routes": [{"nodes": ["a", "r", "b"], "share": 0.5}, {"nodes": ["a", "b"], "share": 0.5}],
    }
    return topology_from_document(document).plan


def deployed(plan: Plan, host: str = "203.0.113.7") -> Deployment:
    return Deployment(plan, {gateway.name: GatewayAddress("", f"{host}:7000") for gateway in plan.gateways})


def watched(relayed_gb: float, straight_gb: float, seconds: float = 100.0) -> RouteWatch:
    watch = RouteWatch()
    for part in (0.0, 0.5, 1.0):
        routes = [
            {"name": "a → r → b", "bytes": int(relayed_gb * part * 1e9)},
            {"name": "a → b", "bytes": int(straight_gb * part * 1e9)},
        ]
        watch.see({"elapsed_s": 20 + seconds * part, "hops": routes})
    return watch


def taught(plan: Plan, watch: RouteWatch, spec: JobSpec = SPEC) -> dict[tuple[Region, Region], Sample]:
    hops = measurable_hops(plan, deployed(plan))
    samples = samples_of(load_catalog(), spec, plan, hops, watch, source="job test", date=DATE)
    return {(sample.src, sample.dst): sample for sample in samples}


def test_a_rate_counts_only_the_time_in_which_the_route_was_used() -> None:
    sample = taught(plan_of(), watched(10, 50))[IRELAND, TOKYO]
    assert sample.gbps == pytest.approx(50 * 8 / 100)
    assert (sample.bytes, sample.seconds, sample.connections) == (50_000_000_000, 100.0, 64)
    assert (sample.source, sample.date) == ("job test", DATE)


def test_the_hop_with_the_lowest_known_rate_is_the_bottleneck() -> None:
    samples = taught(plan_of(), watched(10, 50))
    believed = load_catalog().grid
    first, second = believed.link(IRELAND, FRANKFURT), believed.link(FRANKFURT, TOKYO)
    assert first is not None
    assert second is not None
    assert {pair: sample.at_least for pair, sample in samples.items()} == {
        (IRELAND, FRANKFURT): first.gbps > second.gbps,
        (FRANKFURT, TOKYO): first.gbps <= second.gbps,
        (IRELAND, TOKYO): False,
    }


def test_rates_of_fewer_connections_are_scaled_to_64_within_limits() -> None:
    assert taught(plan_of(32), watched(0, 25))[IRELAND, TOKYO].gbps == pytest.approx(4.0)
    few = taught(plan_of(8), watched(0, 25))[IRELAND, TOKYO]
    assert few.gbps == pytest.approx(2.0)
    assert few.at_least


def test_no_rate_exceeds_a_machines_cap() -> None:
    fastest = max(offer.machine.egress_gbps for offer in load_catalog().machine_offers(IRELAND))
    assert taught(plan_of(), watched(0, 5000))[IRELAND, TOKYO].gbps == fastest


def test_a_rate_limited_transfer_gives_lower_bounds() -> None:
    samples = taught(plan_of(), watched(10, 50), replace(SPEC, rate_limit_bytes_per_s=1_000_000))
    assert all(sample.at_least for sample in samples.values())


@pytest.mark.parametrize(
    "watch", [watched(0.1, 0.1), watched(50, 50, seconds=5.0), RouteWatch()], ids=["few bytes", "short", "nothing"]
)
def test_small_transfers_teach_nothing(watch: RouteWatch) -> None:
    assert taught(plan_of(), watch) == {}


@pytest.mark.parametrize(
    "regions",
    [
        {"a": "site:local", "r": "site:local", "b": "site:local"},
        {"a": "aws:eu-west-1", "r": "aws:eu-west-1", "b": "aws:eu-west-1"},
        {"a": "site:lab", "r": "site:attic", "b": "site:cellar"},
        {"a": "nowhere", "r": "at", "b": "all"},
    ],
)
def test_unknown_regions_teach_nothing(regions: Mapping[str, str]) -> None:
    assert taught(plan_of(regions=regions), watched(50, 50)) == {}


def test_with_an_unknown_hop_no_other_hop_is_the_bottleneck() -> None:
    plan = plan_of(regions={"a": str(IRELAND), "r": str(FRANKFURT), "b": "site:lab"})
    samples = taught(plan, watched(50, 50))
    assert [(pair, sample.at_least) for pair, sample in samples.items()] == [((IRELAND, FRANKFURT), True)]


def test_hops_on_this_machine_teach_nothing_unless_they_have_detours() -> None:
    plan = plan_of()
    here = deployed(plan, "127.0.0.1")
    assert measurable_hops(plan, here) == {}
    detoured = Deployment(plan, here.addresses, {("a", "b"): "127.0.0.1:9"})
    assert measurable_hops(plan, detoured) == {("a", "b"): (IRELAND, TOKYO)}


def test_shortened_transfers_teach_nothing(tmp_path: Path) -> None:
    plan = plan_of()
    hops = measurable_hops(plan, deployed(plan))
    for spec in (replace(SPEC, compress=True), replace(SPEC, deduplicate=True)):
        assert record_samples(tmp_path, "x", spec, plan, hops, watched(50, 50), date=DATE) == 0
    assert record_samples(tmp_path, "x", SPEC, plan, hops, watched(50, 50), date=DATE) == 3
    assert load_catalog(tmp_path, today=TODAY).grid.link(IRELAND, TOKYO) is not None


def sample_of(gbps: float, age_days: int = 0, *, at_least: bool = False, dst: Region = TOKYO) -> Sample:
    date = (TODAY - datetime.timedelta(days=age_days)).isoformat()
    return Sample(IRELAND, dst, gbps, at_least, 64, 10**9, 20.0, "m5.8xlarge", f"job {gbps}", date)


def test_several_lessons_are_averaged_and_older_ones_weigh_less() -> None:
    figure = learned_figures([sample_of(4.0), sample_of(1.0, 180)], TODAY)[IRELAND, TOKYO]
    assert figure.gbps == pytest.approx((4.0 + 0.5 * 1.0) / 1.5)
    assert figure.origin.date == DATE
    assert "mean of 2 transfers" in figure.origin.method
    assert "1.00 GB in 20.0 s over 64 connections, m5.8xlarge" in figure.origin.method


def test_a_lower_bound_counts_if_it_is_above_the_other_lessons() -> None:
    pair = (IRELAND, TOKYO)
    assert learned_figures([sample_of(4.0), sample_of(2.0, at_least=True)], TODAY)[pair].gbps == 4.0
    assert learned_figures([sample_of(4.0), sample_of(6.0, at_least=True)], TODAY)[pair].gbps == 5.0
    alone = learned_figures([sample_of(2.0, at_least=True), sample_of(3.0, at_least=True)], TODAY)[pair]
    assert (alone.gbps, alone.at_least) == (3.0, True)


def test_lessons_are_stored_and_used(tmp_path: Path) -> None:
    assert store_samples(tmp_path, [sample_of(1.5)])
    link = load_catalog(tmp_path, today=TODAY).grid.link(IRELAND, TOKYO)
    assert link is not None
    assert (link.gbps, link.origin.kind, link.origin.source) == (1.5, "learned", "job 1.5")
    assert [part.origin.kind for part in link.parts] == ["learned", "modelled"]
    later = load_catalog(tmp_path, today=TODAY + datetime.timedelta(days=1000)).grid.link(IRELAND, TOKYO)
    assert later is not None
    assert later.origin.kind == "modelled"


def test_a_rate_of_the_standard_network_tier_is_not_that_of_the_premium_tier(tmp_path: Path) -> None:
    """Google and Azure have both tiers. The rate belongs to machines of that tier alone."""
    sample = replace(sample_of(0.7), src=FRANKFURT, network_tier="standard")
    assert store_samples(tmp_path, [sample, replace(sample, gbps=1.3, network_tier="premium")])
    assert sorted(each.network_tier for each in read_samples(tmp_path / LEARNED_FILE)) == ["premium", "standard"]
    catalog = load_catalog(tmp_path, today=TODAY)
    premium, standard = catalog.grid.links[FRANKFURT, TOKYO], catalog.standard_links[FRANKFURT, TOKYO]
    assert (premium.gbps, standard.gbps, standard.origin.kind) == (1.3, 0.7, "learned")
    assert catalog.with_standard_tier([FRANKFURT]).grid.links[FRANKFURT, TOKYO] == standard


def test_a_file_without_network_tiers_is_read(tmp_path: Path) -> None:
    (tmp_path / LEARNED_FILE).write_text(
        "src,dst,gbps,bound,connections,bytes,seconds,machine,source,date\n"
        f"{FRANKFURT},{TOKYO},1.5,exact,64,1000000000,20,m,job 1,{DATE}\n"
    )
    assert [sample.network_tier for sample in read_samples(tmp_path / LEARNED_FILE)] == [""]
    catalog = load_catalog(tmp_path, today=TODAY)
    assert catalog.grid.links[FRANKFURT, TOKYO].gbps == 1.5 and not catalog.standard_links


def test_the_file_is_bounded_and_keeps_the_newest_lessons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for gbps in range(1, SAMPLES_PER_LINK_MAX + 4):
        store_samples(tmp_path, [sample_of(float(gbps))])
    kept = sorted(sample.gbps for sample in read_samples(tmp_path / LEARNED_FILE))
    assert kept == [float(gbps) for gbps in range(4, SAMPLES_PER_LINK_MAX + 4)]
    monkeypatch.setattr(learned, "SAMPLES_MAX", 5)
    store_samples(tmp_path, [sample_of(99.0, dst=FRANKFURT)])
    kept_now = list(read_samples(tmp_path / LEARNED_FILE))
    assert len(kept_now) == 5
    assert 99.0 in [sample.gbps for sample in kept_now]


def test_an_unreadable_file_is_moved_aside(tmp_path: Path) -> None:
    (tmp_path / LEARNED_FILE).write_text("scrambled\n")
    assert store_samples(tmp_path, [sample_of(2.0)])
    assert [sample.gbps for sample in read_samples(tmp_path / LEARNED_FILE)] == [2.0]
    assert (tmp_path / "learned.unreadable").exists()


def test_the_wait_for_a_locked_file_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "LOCK_PAUSE_S", 0.0)
    with (tmp_path / ".learned.csv.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not store_samples(tmp_path, [sample_of(2.0)])
    assert not (tmp_path / LEARNED_FILE).exists()
    assert store_samples(tmp_path, [sample_of(2.0)])


def test_a_real_transfer_between_known_regions_teaches_its_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uses real gateways. The hop has a detour, as if a WAN were inserted between them."""
    monkeypatch.setattr(learning, "SAMPLE_BYTES_MIN", 1 << 20)
    monkeypatch.setattr(learning, "SAMPLE_S_MIN", 0.0)
    source = tmp_path / "from"
    source.mkdir()
    (source / "one").write_bytes(bytes(range(256)) * (32 << 12))
    port = free_port()
    document = {
        "connections": 16,
        "gateways": {
            "a": {"role": "source", "region": str(IRELAND)},
            "b": {"role": "sink", "region": str(TOKYO), "listen": f"127.0.0.1:{port}"},
        },
        "routes": [{"nodes": ["a", "b"], "share": 1}],
        "hops": [{"from": "a", "to": "b", "address": f"127.0.0.1:{port}"}],
    }
    topology = tmp_path / "topology.json"
    topology.write_text(json.dumps(document))
    client = Client(state_dir=str(tmp_path / "state"))
    result = client.copy(source, tmp_path / "to", Options(recursive=True), topology=str(topology))
    folder = tmp_path / "state" / "catalog"
    (sample,) = read_samples(folder / LEARNED_FILE)
    assert (sample.src, sample.dst, sample.connections, sample.bytes) == (IRELAND, TOKYO, 16, 32 << 20)
    assert (sample.source, sample.at_least) == (f"job {result.job_id}", False)
    link = load_catalog(folder).grid.link(IRELAND, TOKYO)
    assert link is not None
    assert link.origin.kind == "learned"


def test_a_real_transfer_on_this_machine_teaches_nothing(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1" * 1000)
    Client(state_dir=str(tmp_path / "state")).copy(tmp_path / "one", tmp_path / "two")
    assert not (tmp_path / "state" / "catalog").exists()
