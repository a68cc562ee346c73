"""The calls of a provider."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fleet.worlds import World, living, wait_until
from tradewind.errors import GatewayError
from tradewind.fleet.provider import FLEET_TAG, NAME_TAG, OWNER_TAG, Accountable, Leftover, Machine
from tradewind.fleet.providers import KINDS
from tradewind.fleet.readiness import Readiness
from tradewind.gateway.client import GatewayClient
from tradewind.model.latch import Latch
from tradewind.model.plan import GatewayAddress


def launched(world: World, *names: str, fleet: str = "test", lease_s: int = 600) -> list[Machine]:
    orders = [world.order(name, fleet=fleet, lease_s=lease_s) for name in names]
    machines = [result.machine for result in world.provider.launch(orders)]
    assert all(machine is not None for machine in machines)
    return [machine for machine in machines if machine is not None]


def answering(world: World, machines: list[Machine]) -> dict[str, GatewayAddress]:
    found = {}

    def ready(machine: Machine, address: GatewayAddress, booted_ago_s: float | None) -> None:
        found[machine.name] = address

    listed = lambda: world.provider.machines({FLEET_TAG: world.fleet_id()})  # noqa: E731
    Readiness(world.provider, listed, Latch(), world.reach).wait(machines, time.monotonic() + 60.0, ready)
    return found


def test_its_kind_is_the_name_of_its_file(world: World) -> None:
    assert world.provider.kind in KINDS
    assert world.provider.document()["kind"] == world.provider.kind
    assert world.again().document() == world.provider.document()


def test_offers_state_price_billing_and_zones(world: World) -> None:
    offers = world.provider.offers(world.regions)
    assert {offer.region for offer in offers} == set(world.regions)
    for offer in offers:
        assert offer.usd_per_s >= 0 and offer.price_source
        assert offer.billing.unit_s > 0 and offer.billing.least_s >= 0
        assert offer.egress_gbps > 0 and offer.ingress_gbps > 0 and offer.boot_s >= 0
        assert offer.zones


def test_the_quota_is_what_can_be_launched(world: World) -> None:
    quota = world.provider.quota(world.regions[0])
    assert (None if quota is None else quota.left) == world.most


def test_one_call_launches_many_machines_and_all_answer(world: World) -> None:
    began_s = time.time()
    machines = launched(world, "one", "two")
    assert len({machine.id for machine in machines}) == 2
    for machine, name in zip(machines, ("one", "two"), strict=True):
        assert (machine.name, machine.region, machine.ended) == (name, world.regions[0], False)
        assert machine.addresses
        assert machine.launched_unix_s is None or began_s - 1 <= machine.launched_unix_s <= time.time()
        assert machine.lease is not None and (machine.lease.seconds, machine.lease.owner) == (600, world.owner)
    addresses = answering(world, machines)
    assert set(addresses) == {"one", "two"}
    assert all(address.data is not None for address in addresses.values())


def test_a_repeated_order_launches_one_machine(world: World) -> None:
    (first,) = launched(world, "one")
    assert launched(world, "one") == [first]
    other = world.again()
    (again,) = other.launch([world.order("one")])
    assert again.machine is not None and again.machine.id == first.id
    assert [machine.id for machine in living(other, world.fleet_id())] == [first.id]


def test_one_refusal_does_not_affect_other_orders(world: World) -> None:
    launched(world, "one")
    refused, accepted = world.provider.launch([world.order("one", key="another"), world.order("two")])
    assert refused.machine is None and refused.refusal is not None
    assert refused.refusal.kind == "bad request" and "another machine one" in refused.refusal.reason
    assert accepted.machine is not None and accepted.refusal is None
    assert [machine.name for machine in world.living()] == ["one", "two"]


def test_machines_beyond_the_quota_are_refused(world: World) -> None:
    if world.most is None:
        pytest.skip("it has no quota")
    orders = [world.order(f"m-{number}") for number in range(world.most + 1)]
    results = world.provider.launch(orders)
    refusals = [result.refusal for result in results if result.refusal is not None]
    assert len(world.living()) == world.most
    assert [refusal.kind for refusal in refusals] == ["quota"]
    assert world.regions[0] in refusals[0].reason


def test_a_missing_program_is_a_bad_request(world: World, tmp_path: Path) -> None:
    provider = world.without_program() if world.without_program else world.again(binary=str(tmp_path / "nothing"))
    (result,) = provider.launch([world.order("one")])
    if result.machine is None:
        assert result.refusal is not None and result.refusal.kind == "bad request"
        return
    with pytest.raises(GatewayError, match="one did not start"):
        Readiness(provider, lambda: living(provider, world.fleet_id()), Latch(), world.reach).wait(
            [result.machine], time.monotonic() + 60.0, lambda *_: None
        )
    provider.terminate([result.machine.id])


def test_machines_are_found_by_their_tags_without_local_state(world: World, tmp_path: Path) -> None:
    """As on another computer of the same user, the state folder is empty."""
    machines = launched(world, "one", "two")
    launched(world, "one", fleet="other")
    stranger = world.again(tmp_path / "empty")
    assert [machine.id for machine in living(stranger, world.fleet_id())] == [machine.id for machine in machines]
    (found,) = stranger.machines({FLEET_TAG: world.fleet_id(), NAME_TAG: "two"})
    # How this process reaches it is its own affair.
    assert found == replace(machines[1], control=found.control, data_at_home=found.data_at_home)
    assert found.tags[OWNER_TAG] == world.owner
    assert stranger.machines({FLEET_TAG: "nobody"}) == ()
    stranger.terminate([machine.id for machine in machines])
    assert world.living() == []


def test_machines_of_other_names_and_fleets_are_not_listed(world: World) -> None:
    of_a, of_b = launched(world, "x", "y", fleet="a"), launched(world, "x", "y", fleet="b")
    assert len({machine.id for machine in (*of_a, *of_b)}) == 4
    world.provider.terminate([machine.id for machine in of_a])
    assert world.living("a") == []
    assert [machine.name for machine in world.living("b")] == ["x", "y"]


def test_a_termination_can_be_repeated_and_removes_all_resources(world: World) -> None:
    machines = launched(world, "one", "two")
    ids = [machine.id for machine in machines]
    answering(world, machines)
    first = world.provider.terminate(ids, grace_s=10.0)
    assert [answer.id for answer in first] == ids
    assert [answer.refusal for answer in first] == [None, None]
    assert world.living() == []
    assert [answer.refusal for answer in world.provider.terminate(ids)] == [None, None]
    assert [answer.refusal for answer in world.again().terminate([*ids, "no-such-machine"])] == [None, None, None]
    assert [found for found in world.provider.leftovers() if found.tags.get(FLEET_TAG) == world.fleet_id()] == []


def is_of(world: World, left: Leftover) -> bool:
    """Return whether something that is left is of the fleet of this test."""
    return left.tags.get(FLEET_TAG) == world.fleet_id()


def test_leftovers_include_everything_and_can_be_terminated(world: World, tmp_path: Path) -> None:
    launched(world, "one", "two")
    stranger = world.again(tmp_path / "empty")
    found = [left for left in stranger.leftovers() if is_of(world, left)]
    assert {left.tags[NAME_TAG] for left in found if NAME_TAG in left.tags} == {"one", "two"}
    if isinstance(stranger, Accountable) and stranger.leaves:
        assert {left.id for left in stranger.left_of(world.fleet_id())} == {left.id for left in found}
        assert stranger.left_of("another-fleet") == ()
    stranger.terminate([left.id for left in found])
    assert [left for left in stranger.leftovers() if is_of(world, left)] == []


def test_a_machine_ends_when_its_lease_expires(world: World) -> None:
    machines = launched(world, "short", lease_s=1)
    launched(world, "long")
    wait_until(lambda: [machine.name for machine in world.living()] == ["long"])
    # Its remains are no machine: that would count as in use, and never be swept.
    left = [one for one in world.provider.leftovers() if is_of(world, one) and one.tags.get(NAME_TAG) == "short"]
    assert "machine" not in {one.kind for one in left}
    assert world.provider.terminate([machines[0].id])[0].refusal is None
    assert machines[0].id not in {one.id for one in world.provider.leftovers()}


def test_a_renewed_lease_keeps_a_machine(world: World) -> None:
    (machine,) = launched(world, "one", lease_s=3 + world.start_s)
    control = answering(world, [machine])["one"].control
    GatewayClient(control).renew_lease(600)
    launched(world, "two", lease_s=4 + world.start_s)  # It ends later than the first lease of the other one.
    wait_until(lambda: [machine.name for machine in world.living()] == ["one"])


def test_a_host_stores_files_and_runs_commands(world: World) -> None:
    (machine,) = launched(world, "one")
    answering(world, [machine])
    host = world.provider.host(machine)
    if host is None:
        pytest.skip("it gives no access to its machines")
    try:
        path = host.put("greeting", b"#!/bin/sh\necho hello $1; exit 3\n")
    except GatewayError as error:
        pytest.skip(str(error))
    assert host.run([path, "there"], 60.0) == (3, "hello there\n")
    assert host.run(["no-such-command"], 60.0)[0] != 0


def test_a_host_describes_its_gateway(world: World) -> None:
    (machine,) = launched(world, "one")
    answering(world, [machine])
    host = world.provider.host(machine)
    if host is None:
        pytest.skip("it gives no access to its machines")
    assert host.ending(0.0) is None
    assert isinstance(host.log_tail(100), str)
    world.provider.terminate([machine.id])
    assert host.ending(60.0)
