"""Providers for tests of fleets, and plans for them."""

from __future__ import annotations

import json
import secrets
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tradewind.fleet.fleet import Fleet
from tradewind.fleet.home import start_owner
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.process_table import MACHINE_VARIABLE
from tradewind.fleet.provider import FLEET_TAG, KEY_TAG, NAME_TAG, Home, LaunchOrder, Lease, Machine, Provider
from tradewind.fleet.providers import make_provider
from tradewind.fleet.settings import FleetSettings
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.owner import Join, JoinToken
from tradewind.model.files import private_folder
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute

GONE_S = 60.0
"""Maximum time until a gateway that must end is gone, on a busy host."""


class Enrolment:
    """An owner that enrols the gateways of a test's orders, and forwards control to them."""

    def __init__(self, binary: str, folder: Path) -> None:
        self._folder = private_folder(folder)
        self._owner = start_owner(binary, self._folder, Home(), folder / "logs")
        self._tokens: dict[str, JoinToken] = {}

    def join(self, name: str, key: str) -> Join:
        """Return the join data of an order; a repeated order has the same."""
        return self._owner.join(name, self._tokens.setdefault(key, JoinToken.new()))

    def reach(self, machine: Machine) -> str | None:
        """Let a machine enrol, and return the address of its control API; None while its own is unknown."""
        if machine.control is None:
            return None
        self._owner.add(machine.name, self._tokens[machine.tags[KEY_TAG]], dial=machine.control)
        return f"unix:{self._folder}/control/{machine.name}"

    def close(self) -> None:
        """End the owner."""
        self._owner.close(0.0)


@dataclass(frozen=True)
class World:
    """A provider with machines in two regions, at least two of them in the first."""

    journal: FleetJournal
    provider: Provider
    regions: tuple[str, str]
    binary: str
    most: int | None = None
    """Maximum machines of one fleet in the first region; None if there is no limit."""
    start_s: int = 0
    """Time that the start of a fleet takes beyond that of processes. Short leases are longer by it."""
    owner: str = field(default_factory=lambda: f"owner-{secrets.token_hex(4)}")
    """Owner of the machines. It differs in each world, because other tests may run machines at the same time."""
    enrolment: Enrolment | None = None
    """Enrols the gateways of orders, where they answer only to their fleet's owner."""
    without_program: Callable[[], Provider] | None = None
    """Makes a provider whose machines have no usable program; None if that depends on the binary alone."""
    without_boot: Callable[[str], Provider] | None = None
    """Makes a provider whose machines of this name never boot; None if a binary can do that."""

    def fleet_id(self, name: str = "test") -> str:
        return f"{name}-{self.owner}"

    def living(self, fleet: str = "test") -> list[Machine]:
        return living(self.provider, self.fleet_id(fleet))

    def fleet(self, lease_s: int = 600, ready_s: float = 60.0) -> Fleet:
        settings = FleetSettings(lease_s=lease_s, ready_s=ready_s)
        plan = plan_between(*self.regions)
        return Fleet(self.provider, self.journal, plan, self.binary, purpose="a test", settings=settings)

    def again(self, state: Path | None = None, binary: str | None = None) -> Provider:
        """Return the provider as another process makes it from its document; with `state`, in an empty state folder."""
        journal = self.journal if state is None else FleetJournal(state)
        return make_provider(self.provider.document(), binary or self.binary, journal)

    def order(self, name: str, key: str | None = None, fleet: str = "test", lease_s: int = 600) -> LaunchOrder:
        lease, fleet_id, key = Lease(lease_s, self.owner), self.fleet_id(fleet), key or f"{fleet}-{name}"
        join = None if self.enrolment is None else self.enrolment.join(name, key)
        return LaunchOrder(fleet_id, name, self.regions[0], key, 1, lease, peers=("lead",), join=join)

    def reach(self, machine: Machine) -> str | None:
        """Return the address of a machine's control API; None while it is unknown."""
        return machine.control if self.enrolment is None else self.enrolment.reach(machine)


def living(provider: Provider, fleet_id: str) -> list[Machine]:
    return [machine for machine in provider.machines({FLEET_TAG: fleet_id}) if not machine.ended]


def wait_until(condition: Callable[[], bool], timeout_s: float = GONE_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "the condition never held"
        time.sleep(0.02)


def plan_between(src: str, dst: str) -> Plan:
    """Return a plan of a source and a sink, with a lead at the source."""
    gateways = (PlannedGateway("lead", src), PlannedGateway("source", src), PlannedGateway("sink", dst))
    return Plan(gateways, (PlannedHop("source", "sink", 2),), (PlannedRoute(("source", "sink"), 1.0),))


def late_binary(folder: Path, late: str) -> str:
    """Return a gateway program that does nothing for the gateway `late`, like a machine that never boots."""
    script, nothing = folder / "gateway", folder / "nothing"
    nothing.touch()
    real = find_gateway()
    named = json.dumps({NAME_TAG: late}).strip("{}")
    mark = f"${MACHINE_VARIABLE}$(cat mark.json 2>/dev/null)"  # In the environment, or in the machine's folder.
    test = f"case \"{mark}\" in *'{named}'*) exec tail -f {nothing};; esac"
    script.write_text(f'#!/bin/sh\n{test}\nexec {real} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


def failing_binary(folder: Path, name: str) -> str:
    """Return a gateway program that fails once for the gateway `name`, like a spot machine that is taken back."""
    script, real = folder / "gateway", find_gateway()
    named = json.dumps({NAME_TAG: name}).strip("{}")
    mark = f"${MACHINE_VARIABLE}$(cat mark.json 2>/dev/null)"  # In the environment, or in the machine's folder.
    test = f"case \"{mark}\" in *'{named}'*) mkdir {folder}/failed 2>/dev/null && exit 1;; esac"
    script.write_text(f'#!/bin/sh\n{test}\nexec {real} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


def leftovers(text: str) -> list[str]:
    """Return the command lines of living processes that contain `text`."""
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
