"""What every provider must do, whatever its machines are. A provider's tests subclass `ProviderConformance`.

The machines run the real gateway program, and the clients that die are real processes.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tradewind.errors import GatewayError
from tradewind.fleet.fleet import Fleet, FleetSettings
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import Machine, MachineOrder, Provider
from tradewind.fleet.providers import make_provider
from tradewind.fleet.running import RunningProcess
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.client import GatewayClient
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute

GONE_S = 60.0
"""A gateway that is to end is gone after so long, however busy the machine."""

CLIENT = """
import json, sys, time
from pathlib import Path
from tradewind.fleet.fleet import Fleet, FleetSettings
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.providers import make_provider
from tests.fleet.conformance import plan_between
state, provider, regions, lease_s, binary = json.loads(sys.argv[1])
journal = FleetJournal(state)
fleet = Fleet(make_provider(provider, binary, journal), journal, plan_between(*regions), binary, purpose="a test",
              settings=FleetSettings(lease_s=lease_s))
print(json.dumps({"id": fleet.id, "machines": {name: machine.id for name, machine in fleet.machines.items()}}))
sys.stdout.flush()
time.sleep(600)
"""


@dataclass(frozen=True)
class World:
    """A provider, and two regions in which it has machines."""

    journal: FleetJournal
    provider: Provider
    regions: tuple[str, str]
    binary: str

    def fleet(self, lease_s: int = 600, ready_s: float = 60.0) -> Fleet:
        settings = FleetSettings(lease_s=lease_s, ready_s=ready_s)
        plan = plan_between(*self.regions)
        return Fleet(self.provider, self.journal, plan, self.binary, purpose="a test", settings=settings)

    def again(self, binary: str | None = None) -> Provider:
        """The provider as another process makes it, from what is written down."""
        return make_provider(self.provider.document(), binary or self.binary, self.journal)

    def order(self, name: str, token: str = "one", fleet_id: str = "test") -> MachineOrder:
        return MachineOrder(fleet_id, name, self.regions[0], token, lease_s=600, dialled=True)


def plan_between(src: str, dst: str) -> Plan:
    """A source and a sink, and a lead at the source."""
    gateways = (PlannedGateway("lead", src), PlannedGateway("source", src), PlannedGateway("sink", dst))
    return Plan(gateways, (PlannedHop("source", "sink", 2),), (PlannedRoute(("source", "sink"), 1.0),))


def late_binary(folder: Path, late: str) -> str:
    """A gateway program that does nothing where the gateway is called `late`: a machine that never boots."""
    script, nothing = folder / "gateway", folder / "nothing"
    nothing.touch()
    real = find_gateway()
    script.write_text(f'#!/bin/sh\ncase "$*" in *unix:*/{late}\\ *) exec tail -f {nothing};; esac\nexec {real} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


def process_of(machine_id: str) -> RunningProcess:
    pid, _, started = machine_id.partition("@")
    return RunningProcess(int(pid), int(started))


class ProviderConformance:
    """The law. Subclasses give the fixture `world`."""

    def test_a_fleet_answers_and_leaves_nothing(self, world: World) -> None:
        fleet = world.fleet()
        deployment = fleet.deployment()
        assert set(deployment.addresses) == {"lead", "source", "sink"}
        for address in deployment.addresses.values():
            assert GatewayClient(address.control).version()["contract"] == 1
        assert deployment.addresses["lead"].data is None
        assert deployment.dial("source", "sink") == deployment.addresses["sink"].data
        processes = [process_of(machine.id) for machine in fleet.machines.values()]
        assert {machine.name for machine in world.provider.machines(fleet.id)} == {"lead", "source", "sink"}
        fleet.close()
        assert not any(process.alive for process in processes)
        assert world.provider.machines(fleet.id) == ()
        assert list(world.journal.records()) == []
        fleet.close()

    def test_what_is_ordered_twice_is_there_once(self, world: World) -> None:
        first = world.provider.create(world.order("one"))
        try:
            assert world.provider.create(world.order("one")) == first
            other = world.again()
            assert other.create(world.order("one")) == first
            assert other.machines("test") == (first,)
            addresses = [provider.wait_ready(first, 60.0) for provider in (world.provider, other)]
            assert addresses[0].data == addresses[1].data
            assert all(GatewayClient(address.control).version()["contract"] == 1 for address in addresses)
            with pytest.raises(GatewayError, match="another machine one"):
                world.provider.create(world.order("one", token="another"))
        finally:
            world.provider.delete([first])
        assert not process_of(first.id).alive
        world.provider.delete([first])

    def test_another_process_can_end_what_it_did_not_start(self, world: World) -> None:
        machine = world.provider.create(world.order("one"))
        world.provider.wait_ready(machine, 60.0)
        other = world.again()
        other.delete(other.machines("test"))
        assert world.provider.machines("test") == ()
        world.provider.delete([machine])

    def test_a_machine_that_hangs_is_killed_and_the_others_are_gone_before(self, world: World) -> None:
        hung, well = (world.provider.create(world.order(name)) for name in ("a", "b"))
        gone: list[Machine] = []
        for machine in (hung, well):
            world.provider.wait_ready(machine, 60.0)
        assert hung.pid is not None
        os.kill(hung.pid, signal.SIGSTOP)
        world.provider.delete([hung, well], grace_s=2.0, on_gone=gone.append)
        assert gone == [well, hung]
        assert not any(process_of(machine.id).alive for machine in gone)

    def test_names_and_fleets_do_not_meet(self, world: World) -> None:
        machines = [
            world.provider.create(world.order(name, fleet_id=fleet_id))
            for fleet_id in ("a", "b")
            for name in ("x", "y")
        ]
        try:
            assert len({machine.id for machine in machines}) == 4
            for fleet_id in ("a", "b"):
                assert [machine.name for machine in world.provider.machines(fleet_id)] == ["x", "y"]
            assert world.provider.machines("c") == ()
        finally:
            world.provider.delete(machines, grace_s=0.0)

    def test_reconciling_orders_what_is_missing_and_nothing_twice(self, world: World) -> None:
        fleet = world.fleet()
        try:
            before = dict(fleet.machines)
            fleet.reconcile()
            assert fleet.machines == before
            world.provider.delete([before["sink"]], grace_s=0.0)
            fleet.reconcile()
            assert fleet.machines["sink"].id != before["sink"].id
            assert fleet.machines["source"] == before["source"]
        finally:
            fleet.close()

    @pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "stands still"])
    def test_machines_end_when_their_client(self, world: World, end: signal.Signals) -> None:
        """A dead client is noticed at once; one that stands still lets the leases lapse."""
        with client_of(world, lease_s=3) as (client, fleet_id, processes):
            client.send_signal(end)
            assert all(process.wait(GONE_S) for process in processes)
            assert world.provider.machines(fleet_id) == ()
        (record,) = world.journal.records()
        assert record.id == fleet_id and record.abandoned
        world.journal.close(fleet_id)

    def test_a_living_client_renews_its_leases(self, world: World) -> None:
        with client_of(world, lease_s=6) as (_, _, processes):
            assert not processes[0].wait(9.0)
            assert all(process.alive for process in processes)
        assert all(process.wait(GONE_S) for process in processes)

    def test_a_machine_that_never_boots_is_given_up_and_the_others_closed(self, world: World, tmp_path: Path) -> None:
        binary = late_binary(tmp_path, "sink")
        late = World(world.journal, world.again(binary), world.regions, binary)
        with pytest.raises(GatewayError, match=f"machine sink in {world.regions[1]} did not answer within 2 s"):
            late.fleet(ready_s=2.0)
        assert list(world.journal.records()) == []
        assert leftovers(str(tmp_path)) == []


@contextmanager
def client_of(world: World, lease_s: int) -> Iterator[tuple[subprocess.Popen[bytes], str, list[RunningProcess]]]:
    """Another process that holds a fleet; ends with the block."""
    argument = json.dumps(
        [str(world.journal.folder.parent), world.provider.document(), world.regions, lease_s, world.binary]
    )
    client = subprocess.Popen([sys.executable, "-c", CLIENT, argument], stdout=subprocess.PIPE)
    try:
        assert client.stdout is not None
        said = json.loads(client.stdout.readline())
        yield client, said["id"], [process_of(identity) for identity in said["machines"].values()]
    finally:
        client.kill()
        client.wait()
        assert client.stdout is not None
        client.stdout.close()


def leftovers(text: str) -> list[str]:
    """Command lines of living processes that name `text`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if text in line:
                found.append(line)
    return found
