"""Machines that start while the source is being listed: only where the rest of the list cannot change them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.engine.test_choice import FAR, HOSTS, A, B, request
from tradewind.catalog.load import load_catalog
from tradewind.engine.early import FAR_BYTES, STEP, may_plan_early, planned_early
from tradewind.engine.engine import Engine
from tradewind.engine.ground import Ground
from tradewind.engine.launch_spec import single_launch
from tradewind.engine.placed import placed
from tradewind.engine.proposal import Proposal
from tradewind.engine.report import job_cost
from tradewind.errors import InfeasibleGoal
from tradewind.fleet.provider import ANY_TYPE, Offer
from tradewind.fleet.providers import LOCAL
from tradewind.fleet.site_catalog import Supply, site_catalog
from tradewind.model.event import Progress
from tradewind.model.goal import Deadline, MaxCost, MinThroughput
from tradewind.model.ledger import Ledger
from tradewind.model.records import replace
from tradewind.model.region import Region
from tradewind.model.sites import FleetTable, Sites

MACHINES = 4


def ground() -> Ground:
    """Return four hosts in each of two regions. Each moves 10 Gbit/s and starts in 50 s."""
    supplies = {
        region: Supply(
            (Offer(str(region), ANY_TYPE, usd_per_s=1 / 3600, egress_gbps=10, ingress_gbps=10, boot_s=50),), MACHINES
        )
        for region in (A, B)
    }
    return Ground({"kind": "ssh"}, site_catalog(supplies, load_catalog()), MACHINES)


def early(tmp_path: Path, volume_gb: float, **settings: Any) -> Proposal | None:
    asked = request(**{"via": "fleet", "agreed": True, **settings})
    single = single_launch(str(A), LOCAL)
    listed = Proposal("p", asked, single.plan, asked.options, single, round(volume_gb * 1e9), 1000)
    with Engine(state_dir=str(tmp_path)) as engine:
        return planned_early(engine.control, asked, listed, ground(), (A, B))


@pytest.mark.parametrize(
    ("settings", "may"),
    [
        ({}, True),
        ({"agreed": False}, False),
        ({"goal": MinThroughput(5.0)}, True),
        ({"goal": Deadline(600.0)}, False),
        ({"goal": MaxCost(1.0)}, False),
        ({"ceiling_usd": 5.0}, False),
        ({"ceiling_usd_per_gb": 0.1}, False),
        ({"options": replace(FAR, dry_run=True)}, False),
    ],
)
def test_only_an_agreement_to_any_cost_lets_machines_start_before_the_volume_is_known(
    settings: dict[str, Any], may: bool
) -> None:
    assert may_plan_early(request(**{"agreed": True, **settings})) is may


def test_machines_start_once_more_volume_needs_the_same(tmp_path: Path) -> None:
    """For little data one machine is as good as four, because all of them take 50 s to start."""
    for volume_gb in (0.0, 0.0005, 0.02, 0.1, 10.0):
        assert early(tmp_path, volume_gb) is None
    made = early(tmp_path, 10_000.0)
    assert made is not None and made.launch.is_early
    assert len(made.plan.machines) == 2 * MACHINES
    assert made.notes[-1] == (
        "the source is still being listed, 1,000 objects and 10.0 TB so far; "
        "the rest does not change the machines, so they start now"
    )


def test_under_a_ceiling_the_volume_decides_the_machines_and_whether_the_job_is_possible() -> None:
    """So no machine can start before it is known: a job that is refused must not cost anything."""
    ends = Region("aws", "us-east-1"), Region("aws", "eu-west-1")
    cloud = cloud_ground(ends, 8)
    asked = request(via="fleet", agreed=True, ceiling_usd=20.0)
    single = single_launch(str(ends[0]), LOCAL)

    def machines(volume_gb: int) -> int:
        listed = Proposal("p", asked, single.plan, asked.options, single, volume_gb * 10**9, volume_gb * 100)
        return len(placed(asked, listed, cloud, ends).plan.machines)

    assert [machines(volume_gb) for volume_gb in (1, 10, 50, 100, 900)] == [2, 6, 12, 16, 16]
    with pytest.raises(InfeasibleGoal, match=r"the cheapest plan costs \$21"):
        machines(1000)


def cloud_ground(ends: tuple[Region, Region], machines: int) -> Ground:
    """Return so many machines of each type that the catalog has in two regions of AWS."""
    base, supplies = load_catalog(), {}
    for end in ends:
        known = [each for each in base.machine_offers(end) if not each.spot]
        offers = tuple(Offer(str(end), each.machine.name, usd_per_s=each.usd_per_s) for each in known)
        supplies[end] = Supply(offers, machines)
    return Ground({"kind": "aws"}, site_catalog(supplies, base), machines)


def test_a_rate_that_a_cheaper_type_reaches_for_little_data_waits_for_the_volume(tmp_path: Path) -> None:
    """In AWS the cheapest plan for 0.1 Gbit/s has another type of machine for 1 TB than for 0.5 MB and 1 GB."""
    ends = Region("aws", "us-east-1"), Region("aws", "eu-west-1")
    cloud = cloud_ground(ends, 1)
    for gbps, is_early in ((0.1, False), (2.0, True)):
        asked = request(via="fleet", agreed=True, goal=MinThroughput(gbps))
        single = single_launch(str(ends[0]), LOCAL)
        listed = Proposal("p", asked, single.plan, asked.options, single, 512_000, 512)
        with Engine(state_dir=str(tmp_path)) as engine:
            assert (planned_early(engine.control, asked, listed, cloud, ends) is not None) is is_early


def test_where_only_one_machine_is_allowed_the_first_objects_decide(tmp_path: Path) -> None:
    made = early(tmp_path, 0.0005, machines_per_region=1)
    assert made is not None and len(made.plan.machines) == 2


def test_a_rate_decides_the_machines_and_an_impossible_one_waits_for_the_end_of_the_list(tmp_path: Path) -> None:
    made = early(tmp_path, 100.0, goal=MinThroughput(15.0))
    assert made is not None and len(made.plan.machines) == 4
    assert early(tmp_path, 100.0, goal=MinThroughput(1000.0)) is None


def test_with_auto_machines_do_not_start_while_this_machine_is_faster_for_what_is_listed(tmp_path: Path) -> None:
    fast, slow = (Sites(HOSTS.hosts, fleet=FleetTable(home_gbps=rate)) for rate in (1000.0, 0.1))
    assert early(tmp_path, 10_000.0, via="auto", sites=fast) is None
    assert early(tmp_path, 10_000.0, via="auto", sites=slow) is not None


@pytest.mark.parametrize("volume_gb", [0.01, 10_000.0])
def test_the_predicted_cost_follows_what_is_listed(tmp_path: Path, volume_gb: float) -> None:
    """It is that of a plan which is made at the end of the list: starting machines costs the same for any volume."""
    made = early(tmp_path, volume_gb, machines_per_region=1)
    assert made is not None
    for factor in (0.0, 1.0, 3.0, 100.0):
        listed_bytes = round(volume_gb * 1e9 * factor)
        cost = job_cost(Ledger(made.launch.prices), made.plan, Progress(bytes_total=listed_bytes), None, 0.0)
        objects = round(1000 * max(1.0, factor))
        whole = placed(made.request, replace(made, volume_bytes=listed_bytes, objects=objects), ground(), (A, B))
        assert cost.predicted_usd == pytest.approx(whole.cost_usd if factor else made.cost_usd)


@pytest.mark.parametrize("volume_gb", [0.0015, 1.0, 20.0, 999.0, 10_000.0])
def test_plans_are_compared_for_volumes_at_most_a_step_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, volume_gb: float
) -> None:
    """Otherwise machines could start that a volume in a wider gap does not need."""
    seen: list[int] = []

    def noted(asked: Any, listed: Proposal, *others: Any) -> Proposal:
        assert listed.volume_bytes is not None
        seen.append(listed.volume_bytes)
        return placed(asked, listed, *others)

    monkeypatch.setattr("tradewind.engine.early.placed", noted)
    monkeypatch.setattr("tradewind.engine.early._needs_the_same", lambda *_: True)
    assert early(tmp_path, volume_gb) is not None
    seen.sort()
    assert all(large <= STEP * small for small, large in pairwise(seen))
    assert seen[-1] >= 0.99 * FAR_BYTES
