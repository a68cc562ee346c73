"""A whole fleet of each provider, with real gateways, and clients that are really killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fleet.worlds import World, late_binary, leftovers, living, wait_until
from tradewind.errors import GatewayError
from tradewind.gateway.client import GatewayClient
from tradewind.model.program import CONTRACT_VERSION

CLIENT = """
import json, sys, time
from pathlib import Path
from tests.fleet.worlds import plan_between
from tradewind.fleet.fleet import Fleet
from tradewind.fleet.settings import FleetSettings
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.providers import make_provider
state, provider, regions, lease_s, binary = json.loads(sys.argv[1])
journal = FleetJournal(state)
fleet = Fleet(make_provider(provider, binary, journal), journal, plan_between(*regions), binary, purpose="a test",
              settings=FleetSettings(lease_s=lease_s))
print(fleet.id, flush=True)
time.sleep(600)
"""


def test_a_fleet_answers_and_leaves_nothing(world: World) -> None:
    fleet = world.fleet()
    deployment = fleet.deployment()
    assert set(deployment.addresses) == fleet.living() == {"lead", "source", "sink"}
    assert set(fleet.machines) == {"source", "sink"}, "the lead has no machine"
    states = fleet.gateway_states()
    assert {name for name, state in states.items() if state["enrolled"]} == set(deployment.addresses)
    assert not list(fleet.folder.rglob("*.pem")), "a key or certificate is on disk"
    for name in deployment.addresses:
        assert GatewayClient.of(deployment, name).version()["contract"] == CONTRACT_VERSION
    assert deployment.addresses["lead"].data is None
    assert deployment.address("source", "sink") == deployment.addresses["sink"].data
    assert [machine.name for machine in living(world.provider, fleet.id)] == ["sink", "source"]
    assert world.journal.intent(fleet.id).machines == {"source": world.regions[0], "sink": world.regions[1]}
    fleet.close()
    assert living(world.provider, fleet.id) == []
    assert list(world.journal.records()) == []
    assert leftovers(str(world.journal.folder)) == []
    fleet.close()


def test_reconciling_orders_missing_machines_once(world: World) -> None:
    fleet = world.fleet()
    try:
        before = dict(fleet.machines)
        fleet.reconcile()
        assert {name: machine.id for name, machine in fleet.machines.items()} == {
            name: machine.id for name, machine in before.items()
        }
        world.provider.terminate([before["sink"].id])
        assert fleet.living() == {"lead", "source"}
        fleet.reconcile()
        assert fleet.machines["sink"].id != before["sink"].id
        assert fleet.machines["source"].id == before["source"].id
    finally:
        fleet.close()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "stands still"])
def test_machines_end_when_their_client(world: World, end: signal.Signals) -> None:
    """The leases of a suspended client expire. Some providers notice a dead client earlier."""
    with client_of(world, lease_s=2 + world.start_s) as (client, fleet_id):
        client.send_signal(end)
        wait_until(lambda: living(world.provider, fleet_id) == [])
    (record,) = world.journal.records()
    assert record.id == fleet_id and record.abandoned
    world.journal.close(fleet_id)


def test_a_living_client_renews_its_leases(world: World) -> None:
    with client_of(world, lease_s=3 + world.start_s) as (_, fleet_id):
        witness = world.provider.launch([world.order("witness", fleet="another", lease_s=4 + world.start_s)])[0].machine
        assert witness is not None
        wait_until(lambda: world.living("another") == [])
        assert [machine.name for machine in living(world.provider, fleet_id)] == ["sink", "source"]
    wait_until(lambda: living(world.provider, fleet_id) == [])


def test_a_machine_that_never_boots_fails_the_fleet_and_the_others_are_ended(world: World, tmp_path: Path) -> None:
    if world.without_boot is None:
        binary = late_binary(tmp_path, "sink")
        late = World(world.journal, world.again(binary=binary), world.regions, binary)
    else:
        late = World(world.journal, world.without_boot("sink"), world.regions, world.binary)
    for ready_s in 2, 8, 32:  # On a busy host the others may be late, too, and be named first.
        with pytest.raises(GatewayError, match=rf"machine .* did not answer within {ready_s} s") as failed:
            late.fleet(ready_s=ready_s)
        assert list(world.journal.records()) == []
        assert leftovers(str(tmp_path)) == []
        named = str(failed.value).partition(" did not answer")[0]
        if named == f"machine sink in {world.regions[1]}":
            return
    pytest.fail(f"{named} did not answer")


@contextmanager
def client_of(world: World, lease_s: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run another process that owns a fleet within the context."""
    argument = json.dumps(
        [str(world.journal.folder.parent), world.provider.document(), world.regions, lease_s, world.binary]
    )
    client = subprocess.Popen([sys.executable, "-c", CLIENT, argument], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    try:
        yield client, client.stdout.readline().strip()
    finally:
        client.kill()
        client.wait()
        client.stdout.close()
