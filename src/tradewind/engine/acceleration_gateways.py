"""The gateways of a running acceleration: their programs, their status and their end."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from tradewind.acceleration.services import service_ports
from tradewind.acceleration.wiring import HOME, Wire, entrance_program, proxy_program
from tradewind.engine.acceleration_course import DRAIN_S
from tradewind.errors import GatewayError, GatewayLost, TradewindError
from tradewind.fleet.process_table import HOME_VARIABLE, marked_processes
from tradewind.gateway.client import GatewayClient

if TYPE_CHECKING:
    from tradewind.fleet.fleet import Fleet
    from tradewind.model.flows import FlowsFile
    from tradewind.model.split import SplitStatus

__all__ = ["END_S", "LOOK_S", "AccelerationGateways"]

LOOK_S = 5.0
"""Timeout of one look at a proxy."""
END_S = 60.0
"""Timeout of the end of a proxy. A longer drain is answered within it, too."""


class AccelerationGateways:
    """The gateways of one fleet. `pool` runs looks at several of them at a time."""

    def __init__(self, fleet: Fleet, pool: Executor) -> None:
        self.fleet, self._pool = fleet, pool
        #: Services that lead to each entrance: its machine, and their ports.
        self._services: dict[str, tuple[str, dict[str, dict[int, int]]]] = {}

    @property
    def there(self) -> Collection[str]:
        """The gateways that have an address."""
        return self.fleet.deployment().addresses.keys()

    @property
    def home_pid(self) -> int:
        """The process of the gateway at home. Raises GatewayError if it has ended."""
        for process, mark in marked_processes(HOME_VARIABLE):
            if mark == {"fleet": self.fleet.id, "name": HOME}:
                return process.pid
        raise GatewayError("the split proxy of this machine is gone")

    def put_proxies(
        self, wires: Sequence[Wire], names: Sequence[str], flows: FlowsFile
    ) -> dict[str, SplitStatus | str]:
        """Give each proxy its program. Return its status, or why it refused that, by name. Raises GatewayError."""
        possible = {(wire.name, other.through) for wire in wires for other in wires if other.through}
        answers: dict[str, SplitStatus | str] = {}
        for name in names:
            dialled, control = self.dialled(name, names), flows.proxy_congestion_control
            program = proxy_program(name, wires, possible, dialled, DRAIN_S, flows.pool, control)
            try:
                answers[name] = self._client(name).put_split(program, LOOK_S)
            except GatewayError as error:
                answers[name] = _words(error)
        return answers

    def put_entrance(
        self,
        name: str,
        wires: Sequence[Wire],
        paths: Mapping[str, tuple[str, ...]],
        addresses: Mapping[str, str],
        flows: FlowsFile,
    ) -> SplitStatus:
        """Give an entrance the paths of new connections; return its status. Raises GatewayError."""
        self._expose(name, wires)
        program = entrance_program(
            name,
            wires,
            paths,
            addresses,
            DRAIN_S,
            flows.pool,
            flows.proxy_congestion_control,
            flows.client_bytes_per_s,
            flows.destination_bytes_per_s,
        )
        return self._client(name).put_split(program)

    def _expose(self, name: str, wires: Sequence[Wire]) -> None:
        """Make the Services at which the flows of an entrance enter, once for each of its machines. Raises
        GatewayError.
        """
        wanted = {} if name == HOME else service_ports(wire.listen for wire in wires if wire.entrance == name)
        if not wanted:
            return
        machine = self.fleet.machine_id(name)
        former, made = self._services.get(name, (machine, {}))
        made = made if former == machine else {}
        for service, ports in wanted.items():
            if made.get(service, ports) != ports:
                raise GatewayError(
                    f"the ports of the Service {service} cannot change while flows enter there",
                    hint="let other flows enter at a Service of another name, or `accelerate down`, then `up`",
                )
        if fresh := {service: ports for service, ports in wanted.items() if service not in made}:
            self.fleet.expose(name, fresh)
        self._services[name] = machine, {**made, **wanted}

    def dialled(self, caller: str, names: Collection[str]) -> dict[str, str]:
        """Return the addresses at which a gateway reaches proxies. Raises GatewayError if it cannot."""
        deployment = self.fleet.deployment()
        needed = {hop.end for hop in deployment.plan.hops if hop.start == caller}
        found = {}
        for name in names:
            try:
                if name != caller:
                    found[name] = deployment.address(caller, name)
            except KeyError:
                if name in needed:
                    raise GatewayError(
                        f"{caller} cannot connect to the proxy {name}: its machine accepts no connections",
                        hint="proxies need machines to which others can connect",
                    ) from None
        return found

    def look_at(self, names: Iterable[str]) -> dict[str, SplitStatus | str]:
        """Return the status of each gateway that has an address, or why it did not answer."""
        there = self.there
        looks = {name: self._pool.submit(self._look, name) for name in names if name in there}
        return {name: look.result() for name, look in looks.items()}

    def end(self, names: Iterable[str], drain_s: float, timeout_s: float = END_S) -> dict[str, SplitStatus]:
        """Drain split proxies; return their last status. One that does not answer is ended with its machine."""
        names = tuple(names)
        found = zip(names, self._pool.map(lambda name: self._end(name, drain_s, timeout_s), names), strict=True)
        return {name: status for name, status in found if status is not None}

    def _look(self, name: str) -> SplitStatus | str:
        try:
            return self._client(name).split_status(LOOK_S)
        except TradewindError as error:
            return _words(error)

    def _end(self, name: str, drain_s: float, timeout_s: float) -> SplitStatus | None:
        try:
            return self._client(name).end_split(math.ceil(drain_s), timeout_s)
        except TradewindError:
            return None

    def _client(self, name: str) -> GatewayClient:
        """Raise GatewayError while its machine is replaced."""
        try:
            return GatewayClient.of(self.fleet.deployment(), name)
        except KeyError:
            raise GatewayError(f"the machine of {name} is being replaced") from None


def _words(error: TradewindError) -> str:
    """Return why a proxy could not be asked, without the path of the socket to it."""
    if isinstance(error, GatewayLost) and isinstance(error.__cause__, OSError):
        return f"its gateway does not answer: {error.__cause__.strerror or error.__cause__}"
    return str(error)
