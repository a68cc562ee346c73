"""Machines that are processes on the user's own hosts, reached over SSH.

A machine is a gateway in a folder of its own on a host (`fleet/ssh/machine.sh`), with its tags in a file there: any
process of the user finds it without other state. It ends when it is asked to, or when its lease expires, even if nobody
can reach the host any more. Its control port, and its data port for the lead at home, are forwarded over the SSH
connection, so that home and hosts need no open ports for each other; gateways connect to each other directly.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.errors import GatewayError
from tradewind.fleet.calls import each_of, machines_of_each
from tradewind.fleet.earlier_orders import known_machine
from tradewind.fleet.provider import (
    ANY_TYPE,
    FLEET_TAG,
    CallRefused,
    Ended,
    Home,
    Host,
    LaunchOrder,
    LaunchResult,
    Leftover,
    Machine,
    Offer,
    Quota,
    Refusal,
)
from tradewind.fleet.running import find_process
from tradewind.fleet.ssh.access import SshAccess
from tradewind.fleet.ssh.connection import COMMAND_S, Connection
from tradewind.fleet.ssh.marks import folder_id, machine_of, mark_of, parsed_object
from tradewind.fleet.ssh.refusals import fitting_program, no_place, refusal_of_start
from tradewind.gateway.binary import GatewayProgram, gateway_program
from tradewind.model.hosts import SshHost, SshHosts, hosts_from_document, in_region
from tradewind.model.records import replace

if TYPE_CHECKING:
    from tradewind.fleet.providers import Settings

__all__ = ["SshProvider", "connect"]

#: Maximum time to copy the program to a host.
COPY_S = 600.0
#: A host that could not be used is tried last for this time.
AVOID_S = 60.0
BOOT_S = 2.0
"""Typical time from the order until the gateway answers, if its program is on the host."""
TENTHS_PER_S = 10
#: Calls until a gateway runs: without its program, with that of the host's processor, and after that was copied.
LAUNCHES_MAX = 3
PLACES_MAX = 8
"""Places that are tried for a gateway: launches of other jobs may choose the same one at the same time."""
PLACE_PAUSE_S = 0.2
"""Mean pause before another place is chosen. Pauses differ, so that two launches do not collide again."""
SOCKETS = "tradewind-ssh-"
#: Kind of the folder of a gateway that has ended. The host keeps it for a while, so that its log can be read.
ENDED_GATEWAY = "gateway that has ended"
"""Prefix of a folder of sockets, followed by the id of its process."""


class SshProvider:
    """Runs gateways on hosts of the user. Each host is a zone of its region."""

    kind = "ssh"
    settles_s = 0.0

    def __init__(self, hosts: SshHosts, binary: str) -> None:
        self._hosts = hosts
        self._binary = binary
        self._by_name = {host.name: host for host in hosts.hosts}
        self._connections: dict[str, Connection] = {}
        self._sockets: Path | None = None
        #: Held while connections are made, and while machines are placed.
        self._connecting, self._placing = threading.Lock(), threading.Lock()
        #: Held while another place is chosen and taken for one machine.
        self._replacing = threading.Lock()
        #: Machines that this object started, by id, with their forwards.
        self._known: dict[str, Machine] = {}
        #: Hosts on which this object may have started machines, by fleet.
        self._used: dict[str, set[str]] = {}
        #: Fleets of other processes whose machines this object reaches, too.
        self._adopted: set[str] = set()
        #: Number of each machine among those of its host.
        self._places: dict[str, int] = {}
        #: Time until which a host is tried last.
        self._avoided: dict[str, float] = {}

    def document(self) -> dict[str, Any]:
        """Return the kind and the hosts."""
        return {"kind": self.kind, **self._hosts.document()}

    def home(self, region: str) -> Home:
        """Return this host: the lead runs beside the client, and reaches the others over SSH."""
        return Home()

    def offers(self, regions: Collection[str]) -> tuple[Offer, ...]:
        """Return one offer for each kind of host in each region, the cheapest first."""
        found: dict[tuple[Any, ...], list[str]] = {}
        for host in self._hosts.hosts:
            if host.region in regions:
                caps = host.egress_gbps or math.inf, host.ingress_gbps or math.inf
                key = (host.region, host.usd_per_hour, *caps)
                found.setdefault(key, []).append(host.name)
        return tuple(
            Offer(
                region,
                ANY_TYPE,
                usd_per_s=usd_per_hour / 3600,
                price_source="the configuration",
                egress_gbps=egress,
                ingress_gbps=ingress,
                boot_s=BOOT_S,
                zones=tuple(zones),
            )
            for (region, usd_per_hour, egress, ingress), zones in sorted(found.items())
        )

    def quota(self, region: str) -> Quota | None:
        """Return how many gateways the hosts of a region run at most. One that cannot be reached counts as full.

        Raises CallRefused if none can be reached.
        """
        hosts = in_region(self._hosts.hosts, region)
        listed = each_of(hosts, self._listed_or_refused)
        refusals = [found for found in listed if isinstance(found, Refusal)]
        if refusals and len(refusals) == len(hosts):
            raise CallRefused(refusals[0])
        used = (
            host.gateways if isinstance(found, Refusal) else sum(not machine.ended for machine in found)
            for host, found in zip(hosts, listed, strict=True)
        )
        return Quota(sum(host.gateways for host in hosts), sum(used))

    def launch(self, orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
        """Start gateways concurrently. A machine that was ordered before with the same key is returned instead."""
        try:
            program = gateway_program(processor_here(), self._binary)
        except GatewayError as error:
            refusal = Refusal("bad request", str(error))
            return [LaunchResult(order, refusal=refusal) for order in orders]
        with self._placing:
            placed = self._place(orders)
            return each_of(list(zip(orders, placed, strict=True)), lambda each: self._started(*each, program))

    def _place(self, orders: Sequence[LaunchOrder]) -> list[LaunchResult | tuple[SshHost, int]]:
        """Return for each order its machine, why it is refused, or a host and the number of a free place there."""
        regions = {order.region for order in orders}
        hosts = [host for host in self._hosts.hosts if host.region in regions]
        listed = dict(zip((host.name for host in hosts), each_of(hosts, self._listed_or_refused), strict=True))
        there = [machine for found in listed.values() if not isinstance(found, Refusal) for machine in found]
        living = [machine for machine in there if not machine.ended]
        taken = {
            host.name: {self._places[machine.id] for machine in living if machine.zone == host.name} for host in hosts
        }
        placed: list[LaunchResult | tuple[SshHost, int]] = []
        for order in orders:
            known = known_machine(order, living)
            if known is not None:
                placed.append(known)
                continue
            able = [host for host in in_region(hosts, order.region) if order.zone in (None, host.name)]
            free = [host for host in able if len(taken[host.name]) < host.gateways]
            reached = [host for host in free if not isinstance(listed[host.name], Refusal)]
            if not reached:
                placed.append(LaunchResult(order, refusal=no_place(order.region, able, free, listed)))
                continue
            now_s = time.monotonic()
            host = min(reached, key=lambda one: (self._avoided.get(one.name, 0.0) > now_s, len(taken[one.name])))
            number = min(set(range(host.gateways)) - taken[host.name])
            taken[host.name].add(number)
            placed.append((host, number))
        return placed

    def _listed_or_refused(self, host: SshHost) -> list[Machine] | Refusal:
        try:
            return self._listed(host)
        except CallRefused as error:
            return error.refusal

    def _started(
        self, order: LaunchOrder, placed: LaunchResult | tuple[SshHost, int], program: GatewayProgram
    ) -> LaunchResult:
        if isinstance(placed, LaunchResult):
            return placed
        machine = self._tried(order, placed, program)
        for _ in range(PLACES_MAX - 1):
            if machine is not None:
                return machine
            with self._replacing:
                time.sleep(random.uniform(0, 2 * PLACE_PAUSE_S))
                (again,) = self._place([order])
                if isinstance(again, LaunchResult):
                    return again
                machine = self._tried(order, again, program)
        busy = Refusal("transient", f"other jobs took {PLACES_MAX} places in {order.region} first")
        return machine or LaunchResult(order, refusal=busy)

    def _tried(self, order: LaunchOrder, placed: tuple[SshHost, int], program: GatewayProgram) -> LaunchResult | None:
        """Start a machine at a place; return None if another one has taken it meanwhile."""
        host, number = placed
        try:
            machine = self._start(order, host, number, program)
        except CallRefused as error:
            self._avoided[host.name] = time.monotonic() + AVOID_S
            return LaunchResult(order, refusal=error.refusal)
        return None if machine is None else LaunchResult(order, machine)

    def _start(self, order: LaunchOrder, host: SshHost, number: int, program: GatewayProgram) -> Machine | None:
        """Start a machine; return None if its place is taken. Raises CallRefused."""
        connection = self._connection(host)
        folder_id = sha256(f"{order.fleet_id} {order.name} {order.key}".encode()).hexdigest()[:24]
        data = None
        if order.peers:
            data = order.network.listen or f"0.0.0.0:{host.port + number if host.port else 0}"
        arguments, join = ["--lease-s", str(order.lease.seconds)], ""
        if order.join is None:
            # Relative to the machine's folder, where the gateway works.
            arguments += ["--control", "unix:control", "--plain", *([] if data is None else ["--data", data])]
        else:
            arguments += ["--join", "-"]
            join = order.join.listening("127.0.0.1:0", data)
        if host.raise_tcp_buffers:
            arguments.append("--raise-tcp-buffers")
        mark = json.dumps(mark_of(order, number))
        self._used.setdefault(order.fleet_id, set()).add(host.name)
        for _ in range(LAUNCHES_MAX):
            answer = next(
                iter(connection.call("launch", folder_id, program.sha256, mark, str(number), join, *arguments)), [""]
            )
            if answer[0] != "program missing":
                break
            fitting = fitting_program(host.name, answer[1] if len(answer) > 1 else "", program)
            if fitting == program:
                connection.copy_program(program.path, program.sha256, COPY_S)
            program = fitting
        if answer[0] == "place taken":
            return None
        if answer[0] != "machine":
            why = answer[1] if len(answer) > 1 else "the host's shell said nothing"
            raise CallRefused(refusal_of_start(host.name, answer[0], why))
        machine = self._machine(host, answer)
        if machine is None or machine.ended:
            raise CallRefused(Refusal("transient", f"{host.name}: the gateway ended at once"))
        return self._reached(host, machine, answer)

    def _reached(self, host: SshHost, machine: Machine, answer: Sequence[str]) -> Machine:
        """Forward the ports of a machine that has stated them, and remember it."""
        ready = parsed_object(answer[4] if len(answer) > 4 else "")
        if ready is not None and machine.control is None and not machine.ended:
            connection = self._connection(host)
            said = (ready.get(name) for name in ("control", "data_address"))
            control, data = (text if isinstance(text, str) else "" for text in said)
            if control.startswith("unix:"):
                remote = connection.ask("control_socket", folder_id(machine.id))
                control = f"unix:{connection.forward(remote, str(self._socket_folder() / folder_id(machine.id)))}"
            elif control:
                control = connection.forward(control)
            port = data.rpartition(":")[2]
            at_home = connection.forward(f"127.0.0.1:{port}") if port.isdecimal() else None
            machine = replace(machine, control=control or None, data_at_home=at_home)
        self._known[machine.id] = machine
        return machine

    def machines(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """Return machines with these tags.

        A fleet that this object started is looked for on its own hosts. If one of them cannot be reached, its machines
        count as living. Otherwise each host must answer.
        """
        used = self._used.get(tags.get(FLEET_TAG, ""))
        hosts = [host for host in self._hosts.hosts if used is None or host.name in used]

        def listed(host: SshHost) -> list[Machine]:
            try:
                machines = self._listed(host)
            except CallRefused:
                if used is None:
                    raise
                machines = [machine for machine in list(self._known.values()) if machine.zone == host.name]
            return [machine for machine in machines if tags.items() <= machine.tags.items()]

        wanted = machines_of_each(hosts, listed)
        return tuple(sorted(wanted, key=lambda machine: (machine.name, machine.id)))

    def adopt(self, fleet_id: str) -> None:
        """Forward the ports of the machines of a fleet that another process has launched."""
        self._adopted.add(fleet_id)
        found = self.machines({FLEET_TAG: fleet_id})
        self._used[fleet_id] = {machine.zone for machine in found if machine.zone is not None}

    def kept_s_max(self, region: str) -> float:
        """Return 0 if the gateways of a host in the region call home."""
        hosts = in_region(self._hosts.hosts, region)
        return math.inf if all(host.inbound for host in hosts) else 0.0

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        """Ask all machines to end, and kill those that have not ended within `grace_s`."""
        wanted = list(dict.fromkeys(ids))
        by_host: dict[str, list[str]] = {}
        for machine_id in wanted:
            by_host.setdefault(machine_id.rpartition("/")[0], []).append(machine_id)
        answers: dict[str, Ended] = {}
        for ended in each_of(list(by_host.items()), lambda each: self._end_on(*each, grace_s)):
            answers |= {one.id: one for one in ended}
        self.disconnect()
        return [answers[machine_id] for machine_id in wanted]

    def _end_on(self, name: str, ids: Sequence[str], grace_s: float) -> list[Ended]:
        host = self._by_name.get(name.removesuffix(PROGRAMS))
        if host is None:
            return [Ended(machine_id) for machine_id in ids]  # Not a machine of ours.
        connection = self._connection(host)
        try:
            if name.endswith(PROGRAMS):
                for machine_id in ids:
                    connection.call("remove_program", folder_id(machine_id))
                return [Ended(machine_id, time.time()) for machine_id in ids]
            tenths = str(round(grace_s * TENTHS_PER_S))
            said = connection.call("terminate", tenths, *map(folder_id, ids), timeout_s=COMMAND_S + grace_s)
        except CallRefused as error:
            return [Ended(machine_id, refusal=error.refusal) for machine_id in ids]
        living = {line[1] for line in said if line[0] == "lives"}
        if ["done"] not in said:
            refusal = Refusal("transient", f"{name}: the answer of the host is not complete")
            return [Ended(machine_id, refusal=refusal) for machine_id in ids]
        answers = []
        for machine_id in ids:
            if folder_id(machine_id) in living:
                words = f"{name}: the gateway did not end after SIGKILL"
                answers.append(Ended(machine_id, refusal=Refusal("transient", words)))
                continue
            known = self._known.pop(machine_id, None)
            if known is not None:
                self._unreach(connection, known)
            answers.append(Ended(machine_id, time.time()))
        return answers

    def _unreach(self, connection: Connection, machine: Machine) -> None:
        for local in (machine.control, machine.data_at_home):
            if local is not None:
                connection.unforward(local.removeprefix("unix:"))

    def leftovers(self) -> tuple[Leftover, ...]:
        """Return all machines and programs of ours on all hosts. Raises CallRefused if a host cannot be reached."""
        found = []
        for host, lines in zip(self._hosts.hosts, each_of(self._hosts.hosts, self._lines), strict=True):
            for line in lines:
                machine = self._machine(host, line)
                if machine is not None:
                    kind = ENDED_GATEWAY if machine.ended else "machine"
                    found.append(Leftover(machine.id, kind, machine.region, machine.tags))
                elif line[0] == "program":
                    found.append(Leftover(f"{host.name}{PROGRAMS}/{line[1]}", "program", host.region))
        return tuple(found)

    @property
    def leaves(self) -> tuple[str, ...]:
        """Kinds of what a fleet may leave. Copied programs belong to no fleet, and stay for the next one."""
        return ("gateways",)

    def left_of(self, fleet_id: str) -> tuple[Leftover, ...]:
        """Return what is left of a fleet. Raises CallRefused."""
        return tuple(one for one in self.leftovers() if one.tags.get(FLEET_TAG) == fleet_id)

    def host(self, machine: Machine) -> Host | None:
        """Return access to a machine."""
        host = self._by_name.get(machine.zone or "")
        return None if host is None else SshAccess(self._connection(host), machine, self._look)

    def _look(self, machine: Machine) -> Machine | None:
        """Return a machine as its host shows it now; None if it is gone."""
        host = self._by_name[machine.zone or ""]
        return next((found for found in self._listed(host) if found.id == machine.id), None)

    def _lines(self, host: SshHost) -> list[list[str]]:
        lines = self._connection(host).call("list_machines")
        if ["done"] not in lines:
            raise CallRefused(Refusal("transient", f"{host.name}: the answer of the host is not complete"))
        return lines

    def _listed(self, host: SshHost) -> list[Machine]:
        found = []
        for line in self._lines(host):
            machine = self._machine(host, line)
            if machine is None:
                continue
            known = self._known.get(machine.id)
            if known is None and machine.tags.get(FLEET_TAG) in self._adopted:
                known = machine
            if known is not None:
                machine = replace(machine, control=known.control, data_at_home=known.data_at_home)
                # Its ports may have been unknown when it was launched.
                machine = self._reached(host, machine, line)
            found.append(machine)
        return found

    def _machine(self, host: SshHost, line: Sequence[str]) -> Machine | None:
        """Return the machine of a line of the host, and remember its place; None for another line."""
        found = machine_of(host, line)
        if found is None:
            return None
        machine, self._places[found[0].id] = found
        return machine

    def _connection(self, host: SshHost) -> Connection:
        with self._connecting:
            if host.name not in self._connections:
                index = list(self._by_name).index(host.name)
                self._connections[host.name] = Connection(
                    host, self._hosts.ssh_config, self._socket_folder() / f"ssh-{index}"
                )
            return self._connections[host.name]

    def _socket_folder(self) -> Path:
        if self._sockets is None:
            # A socket's path may have about a hundred bytes only, which the state folder's may exceed.
            _remove_left()
            self._sockets = Path(tempfile.mkdtemp(prefix=f"{SOCKETS}{os.getpid()}-"))
            weakref.finalize(self, shutil.rmtree, self._sockets, ignore_errors=True)
        return self._sockets

    def disconnect(self) -> None:
        """Close all connections once no machine of this object is left."""
        if self._known:
            return
        with self._connecting:
            connections, self._connections = list(self._connections.values()), {}
        each_of(connections, Connection.close)


PROGRAMS = "/programs"
"""Suffix of a host's name in the id of a program there."""


def _remove_left() -> None:
    """Remove the sockets of processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{SOCKETS}*"):
        pid = folder.name.removeprefix(SOCKETS).partition("-")[0]
        with suppress(OSError):
            if pid.isdecimal() and folder.stat().st_uid == os.getuid() and not find_process(int(pid)).alive:
                shutil.rmtree(folder, ignore_errors=True)


def processor_here() -> str:
    """Return the processor of this machine, as `uname -m` names it."""
    return os.uname().machine


def connect(document: Mapping[str, Any], settings: Settings) -> SshProvider:
    """Return the provider of the hosts that the document names."""
    return SshProvider(hosts_from_document(document), settings.binary)
