"""All that Tradewind has on the configured hosts, found by its tags: the state folder may be empty or another one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from tradewind.errors import TradewindError
from tradewind.fleet.calls import InFlight
from tradewind.fleet.ending import terminate
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.owner import OwnerState, owner_state
from tradewind.fleet.provider import FLEET_TAG, Leftover, Machine, Provider
from tradewind.fleet.providers import make_provider
from tradewind.gateway.process import STOP_S
from tradewind.model.hosts import SshHosts
from tradewind.model.records import dataclass

__all__ = ["Everywhere", "Found", "Swept"]


@dataclass(frozen=True, slots=True)
class Found:
    """A living machine. `owner` says whether the process that started it still lives."""

    host: str
    machine: Machine
    owner: OwnerState

    @property
    def fleet(self) -> str:
        """Id of its fleet."""
        return self.machine.tags.get(FLEET_TAG, "unknown")

    @property
    def age_s(self) -> float:
        """Time since its launch [s]."""
        return max(0.0, time.time() - (self.machine.launched_unix_s or time.time()))

    def document(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "host": self.host,
            "region": self.machine.region,
            "fleet": self.fleet,
            "machine": self.machine.name,
            "owner": self.owner,
            "launched_unix_s": self.machine.launched_unix_s,
        }


@dataclass(frozen=True, slots=True)
class Swept:
    """One thing that was ended or removed, or why that failed."""

    what: str
    error: TradewindError | None = None


class Everywhere:
    """The hosts of a configuration. One that cannot be reached is reported, and does not hide the others."""

    def __init__(self, hosts: SshHosts, journal: FleetJournal, gateway: str) -> None:
        self._providers: dict[str, Provider] = {}
        for host in hosts.hosts:
            document = {"kind": "ssh", **SshHosts((host,), hosts.ssh_config).document()}
            self._providers[host.name] = make_provider(document, gateway, journal)

    def found(self) -> Iterator[Found | tuple[str, TradewindError]]:
        """Yield the living machines of each host, or the host and the error of asking it."""
        for host, provider in self._providers.items():
            try:
                machines = provider.machines({})
            except TradewindError as error:
                yield host, error
                continue
            for machine in machines:
                if not machine.ended:
                    yield Found(host, machine, owner_state(machine.lease.owner if machine.lease else ""))

    def sweep(self, wanted: Sequence[Found]) -> Iterator[Swept]:
        """End these machines, and remove copied programs from hosts on which no machine is left."""
        for host, provider in self._providers.items():
            ids = [found.machine.id for found in wanted if found.host == host]
            names = ", ".join(f"{found.machine.name} of {found.fleet}" for found in wanted if found.host == host)
            try:
                if ids:
                    terminate(provider, ids, STOP_S, InFlight())
                    yield Swept(f"{host}: ended {names}")
                left = provider.leftovers()
                if any(one.kind == "machine" for one in left):
                    continue
                for one in left:
                    yield from _removed(provider, host, one)
            except TradewindError as error:
                yield Swept(host, error)


def _removed(provider: Provider, host: str, one: Leftover) -> Iterator[Swept]:
    terminate(provider, [one.id], 0.0, InFlight())
    yield Swept(f"{host}: removed a copied {one.kind}")
