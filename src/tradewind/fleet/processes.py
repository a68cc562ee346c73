"""Machines that are processes of this host: the common base of the local provider and the sky.

The environment of each process identifies its machine, so that any process of the user finds it without other state.
From another PID namespace it is found only by its gateway's control socket, in the folder of its fleet. A machine ends
if it is asked to, if its client dies (it reads end of file from its standard input), or if its lease expires.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tradewind.errors import GatewayError
from tradewind.fleet.calls import each_of
from tradewind.fleet.process_table import MACHINE_VARIABLE, mark_of, marked_processes
from tradewind.fleet.provider import (
    FLEET_TAG,
    NAME_TAG,
    CallRefused,
    Ended,
    Home,
    Host,
    LaunchOrder,
    LaunchResult,
    Lease,
    Leftover,
    Machine,
    Offer,
    Quota,
    Refusal,
)
from tradewind.fleet.running import POLL_S, RunningProcess, find_process
from tradewind.fleet.sockets import ControlFolder, answers, socket_names
from tradewind.gateway.client import GatewayClient
from tradewind.gateway.process import STOP_S, GatewayProcess, log_tail
from tradewind.model.files import private_folder
from tradewind.model.records import dataclass, replace

__all__ = ["Placement", "ProcessProvider", "machine_mark"]

#: Timeout of the request that ends a gateway in another PID namespace.
LAPSE_S = 5.0
#: Maximum wait for the environment of a started process to show in /proc. Without /proc it never does.
MARKED_S = 1.0
#: Maximum wait for the address of a started process. After it, the machine is listed without an address.
ADDRESS_S = 1.0
#: The output of a command on a host is truncated to its last bytes.
OUTPUT_BYTES_MAX = 1 << 20
#: Exit code of a missing command, as in shells.
NOT_FOUND = 127
#: Prefix of the id of a machine that is known only by its socket.
SOCKET_ID = "socket:"
#: The access that is missing to end such a machine if it does not answer.
ELSEWHERE = "access to its processes: run `tradewind fleet down` where it was started, or on the host"

#: Variables that a gateway inherits: search path, language, time zone, trusted certificates, runtime settings.
MACHINE_SETTINGS = frozenset({"PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"})
MACHINE_SETTING_PREFIXES = ("LC_", "RUST_", "MIMALLOC_")
#: Proxy settings of the machine's network, in upper or lower case.
PROXY_SETTINGS = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a process runs: its network, address and zone, and a command prefix that enters the network namespace.

    With `inbound` False no connection can be opened to it from outside its network.
    """

    enter: tuple[str, ...] = ()
    network: str = "loopback"
    address: str = "127.0.0.1"
    zone: str | None = None
    inbound: bool = True


class ProcessProvider(ABC):
    """A provider whose machines are processes of this host. Subclasses define offers and placements.

    `folder` has a folder for each fleet; `logs` is the folder of the gateways' logs, by default `logs` in the fleet's.
    """

    kind = ""
    settles_s = 0.0

    def __init__(self, binary: str, folder: Path, *, logs: Path | None = None) -> None:
        self._binary = binary
        self._folder = folder
        self._logs = logs
        #: Processes that this object started and has not terminated, by machine id.
        self._children: dict[str, _Child] = {}
        self._controls: dict[str, ControlFolder] = {}
        #: Held while machines are assigned to zones.
        self._placing = threading.Lock()

    def document(self) -> dict[str, Any]:
        """Return the kind: nothing else is needed to connect again."""
        return {"kind": self.kind}

    def home(self, region: str) -> Home:
        """Return this host, which needs no command prefix."""
        return Home()

    @abstractmethod
    def offers(self, regions: Collection[str]) -> tuple[Offer, ...]:
        """Return the machines that can be started in these regions."""

    def quota(self, region: str) -> Quota | None:
        """Return None: a host has no quota."""
        return None

    @contextmanager
    def _placement(self) -> Iterator[None]:
        """Hold what prevents two launches from choosing machines at the same time, until these have started."""
        with self._placing:
            yield

    @abstractmethod
    def _place(self, order: LaunchOrder, taken: Collection[str]) -> Placement:
        """Return where to start a machine. The fleet has machines in the zones `taken`. Raises CallRefused."""

    def launch(self, orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
        """Start processes concurrently. A machine that was ordered before with the same key is returned instead."""
        from tradewind.fleet.earlier_orders import known_machine

        with self._placement():
            there = {
                fleet_id: [machine for machine in self.machines({FLEET_TAG: fleet_id}) if not machine.ended]
                for fleet_id in {order.fleet_id for order in orders}
            }
            taken = {
                fleet_id: {machine.zone for machine in machines if machine.zone is not None}
                for fleet_id, machines in there.items()
            }

            def begin(order: LaunchOrder) -> LaunchResult | Placement:
                if (known := known_machine(order, there[order.fleet_id])) is not None:
                    return known
                try:
                    placement = self._place(order, taken[order.fleet_id])
                except CallRefused as error:
                    return LaunchResult(order, refusal=error.refusal)
                if placement.zone is not None:
                    taken[order.fleet_id].add(placement.zone)
                return placement

            begun = [(order, begin(order)) for order in orders]
            return each_of(begun, lambda each: self._started(*each))

    def _started(self, order: LaunchOrder, begun: LaunchResult | Placement) -> LaunchResult:
        if isinstance(begun, LaunchResult):
            return begun
        try:
            return LaunchResult(order, self._start(order, begun))
        except GatewayError as error:
            return LaunchResult(order, refusal=Refusal("bad request", str(error)))

    def _start(self, order: LaunchOrder, placement: Placement) -> Machine:
        folder = self._folder / order.fleet_id
        data = (order.network.listen or f"{placement.address}:0") if order.peers else None
        arguments, descriptors, input_line = ["--lease-s", str(order.lease.seconds)], tuple[int, ...](), None
        if order.join is None:
            control = self._control(folder, make=True)
            arguments += ["--control", control.address(order.name), "--plain"]
            arguments += [] if data is None else ["--data", data]
            descriptors = control.descriptors
        else:
            arguments += ["--join", "-"]
            listening = order.join.listening(f"{placement.address}:0", data)
            input_line = listening if placement.inbound else order.join.calling(data)
        logs = self._logs or folder / "logs"
        private_folder(logs)
        mark = machine_mark(self.kind, order, placement, folder, logs)
        # Without identities there is no channel for credentials.
        environment = os.environ if order.join is None else machine_environment(os.environ)
        process = GatewayProcess(
            self._binary,
            order.name,
            arguments,
            mark["log"],
            descriptors,
            placement.enter,
            {**environment, MACHINE_VARIABLE: json.dumps(mark)},
            input_line,
        )
        started = find_process(process.pid)
        _wait_marked(started)
        child = _Child(process, self._machine(started, mark), mark, is_joining=order.join is not None)
        self._children[child.machine.id] = child
        return child.present(ADDRESS_S)

    def machines(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """Return machines whose processes live, and the ended ones that this object started and did not terminate."""
        found: dict[str, Machine] = {}
        for process, mark in marked_processes(MACHINE_VARIABLE):
            with suppress(
                KeyError, TypeError, AttributeError, OSError
            ):  # Another version wrote it, or its folder is gone.
                if tags.items() <= mark["tags"].items():
                    child = self._children.get(_id_of(process))
                    found[_id_of(process)] = self._machine(process, mark) if child is None else child.present()
        for machine_id, child in list(self._children.items()):
            if machine_id not in found and tags.items() <= child.machine.tags.items():
                found[machine_id] = child.present()
        if tags.keys() == {FLEET_TAG}:
            # Exclude ended machines: the fleet's owner still listens at their sockets, and would wait for answers.
            known = {machine.name for machine in found.values()}
            for machine in self._elsewhere(tags[FLEET_TAG], known):
                found[machine.id] = machine
        return tuple(sorted(found.values(), key=lambda machine: (machine.name, machine.id)))

    def _elsewhere(self, fleet_id: str, seen: Collection[str]) -> Iterator[Machine]:
        """Yield the machines of a fleet that answer at their sockets but run in a PID namespace invisible to us."""
        folder = self._folder / fleet_id
        for name in socket_names(folder):
            if name not in seen and answers(control := self._control(folder).address(name)):
                yield Machine(
                    f"{SOCKET_ID}{fleet_id}/{name}",
                    name,
                    "",
                    control=control,
                    tags={FLEET_TAG: fleet_id, NAME_TAG: name},
                )

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        """Ask all machines to end, and kill those that have not ended within `grace_s`."""
        wanted = list(dict.fromkeys(ids))
        sockets = [machine_id for machine_id in wanted if machine_id.startswith(SOCKET_ID)]
        endings = [self._ending(machine_id) for machine_id in wanted if machine_id not in sockets]
        if sockets:
            each_of(sockets, self._let_lapse)
        _end_within(endings, grace_s)
        ended = {ending.id: ending.finish() for ending in endings}
        if sockets:
            ended |= {answer.id: answer for answer in each_of(sockets, self._wait_lapsed)}
        if not self._children:
            self._close_controls()
        return [ended[machine_id] for machine_id in wanted]

    def leftovers(self) -> tuple[Leftover, ...]:
        """Return all machines of this user on this host."""
        return tuple(
            Leftover(machine.id, "machine", machine.region, machine.tags)
            for machine in self.machines({})
            if not machine.ended
        )

    def host(self, machine: Machine) -> Host | None:
        """Return access to a process that this object started or that lives in this PID namespace; else None."""
        child = self._children.get(machine.id)
        process = _process(machine.id)
        if process is None:
            return None
        if child is not None:
            return ProcessHost(process, child.mark, child.process)
        mark = mark_of(process, MACHINE_VARIABLE)
        return None if mark is None else ProcessHost(process, mark, None)

    def _ending(self, machine_id: str) -> _Ending:
        child = self._children.pop(machine_id, None)
        process = _process(machine_id)
        if child is not None:
            return _Ending(machine_id, process, child.process, child.present().ended_unix_s)
        if process is None or mark_of(process, MACHINE_VARIABLE) is None:
            return _Ending(machine_id, None, None, None)
        return _Ending(machine_id, process, None, None)

    def _machine(self, process: RunningProcess, mark: Mapping[str, Any]) -> Machine:
        tags = mark["tags"]
        lease = Lease(mark["lease_s"], mark["owner"])
        control = None
        with suppress(OSError):  # The fleet's folder may be gone; the machine can still be ended.
            # The machine's own socket, or the one of the fleet's owner, which carries control calls to it.
            control = self._control(Path(mark["fleet_folder"])).address(tags[NAME_TAG])
        return Machine(
            _id_of(process),
            tags[NAME_TAG],
            mark["region"],
            mark["type"],
            mark["zone"],
            mark["spot"],
            launched_unix_s=mark["launched_unix_s"],
            running_unix_s=mark["launched_unix_s"],
            addresses=mark["addresses"],
            control=control,
            inbound=mark["inbound"],
            lease=lease,
            tags=tags,
        )

    def _let_lapse(self, machine_id: str) -> None:
        """End a process of another PID namespace, where signals do not reach it, by a lease of one second."""
        with suppress(GatewayError):
            GatewayClient(self._socket(machine_id)).renew_lease(1, LAPSE_S)

    def _wait_lapsed(self, machine_id: str) -> Ended:
        deadline_s = time.monotonic() + STOP_S
        while answers(self._socket(machine_id)):
            if time.monotonic() >= deadline_s:
                words = f"{machine_id.removeprefix(SOCKET_ID)} runs in another PID namespace and did not end within"
                return Ended(machine_id, refusal=Refusal("permission", f"{words} {STOP_S:.0f} s", ELSEWHERE))
            time.sleep(POLL_S)
        return Ended(machine_id, time.time())

    def _socket(self, machine_id: str) -> str:
        fleet_id, _, name = machine_id.removeprefix(SOCKET_ID).partition("/")
        return self._control(self._folder / fleet_id).address(name)

    def _control(self, fleet_folder: Path, *, make: bool = False) -> ControlFolder:
        key = str(fleet_folder)
        if key not in self._controls:
            self._controls[key] = ControlFolder(fleet_folder, make=make)
        return self._controls[key]

    def _close_controls(self) -> None:
        for key in list(self._controls):
            with suppress(KeyError):
                self._controls.pop(key).close()


@dataclass(frozen=True, slots=True)
class ProcessHost:
    """Access to a machine that is a process of this host."""

    process: RunningProcess
    mark: Mapping[str, Any]
    child: GatewayProcess | None

    def put(self, name: str, content: bytes) -> str:
        """Write a file into the fleet's folder, which is removed with the fleet."""
        folder = private_folder(Path(self.mark["fleet_folder"], "files", self.mark["tags"][NAME_TAG]))
        path = folder / Path(name).name
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o700)
        with open(descriptor, "wb") as file:
            file.write(content)
        return str(path)

    def run(self, words: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Run a command in the machine's network, with the files and users of this host."""
        try:
            done = subprocess.run(
                [*self.mark["enter"], *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            )
        except FileNotFoundError as error:
            return NOT_FOUND, str(error)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise GatewayError(f"{words[0]} cannot be run on {self.mark['tags'][NAME_TAG]}: {error}") from error
        return done.returncode, done.stdout[-OUTPUT_BYTES_MAX:].decode(errors="replace")

    def log_tail(self, bytes_max: int) -> str:
        """Return the end of the gateway's log."""
        return log_tail(self.mark["log"], bytes_max)

    def ending(self, timeout_s: float) -> str | None:
        """Return the exit code or signal and the last log line; less if another process started the gateway."""
        if self.child is None:
            return "it is gone" if self.process.wait(timeout_s) else None
        return self.child.ending(timeout_s)


class _Child:
    """A machine whose process this one started: only the parent learns its address and its exit code.

    A machine that `is_joining` its fleet listens at a TCP port for the owner, unless it calls home.
    """

    def __init__(self, process: GatewayProcess, machine: Machine, mark: Mapping[str, Any], *, is_joining: bool) -> None:
        self.process, self.mark, self._is_joining = process, mark, is_joining
        self.machine = replace(machine, control=None) if is_joining else machine
        self._looking = threading.Lock()

    def present(self, wait_s: float = 0.0) -> Machine:
        """Return the current state of the machine. Its end is the time when this method first notices it.

        Waits up to `wait_s` for the address of a machine that is starting.
        """
        with self._looking:
            return self._look(wait_s)

    def _look(self, wait_s: float) -> Machine:
        if self._is_joining and self.machine.inbound and self.machine.control is None and not self.machine.ended:
            # Ignore a failed start here: `ending` describes it.
            with suppress(GatewayError):
                self.process.poll_ready(wait_s)
            self.machine = replace(self.machine, control=self.process.control or None)
        running = _process(self.machine.id)
        # A process whose main thread has ended counts as ended, even if it cannot be reaped yet.
        over = self.process.exit_code is not None or running is None or not running.alive
        if over and not self.machine.ended:
            self.process.kill()  # Waits a moment for the last thread, and closes the pipes.
            self.machine = replace(self.machine, ended=True, ended_unix_s=time.time())
        return self.machine


class _Ending:
    """A machine to end. `process` is None if it does not exist any more; `child` if another process started it."""

    def __init__(
        self,
        machine_id: str,
        process: RunningProcess | None,
        child: GatewayProcess | None,
        ended_unix_s: float | None,
    ) -> None:
        self.id, self._process, self._child = machine_id, process, child
        self._ended_unix_s = ended_unix_s

    def is_over(self) -> bool:
        """Return whether the machine has ended."""
        if self._process is None:
            return True
        over = not self._process.alive if self._child is None else self._child.exit_code is not None
        if over and self._ended_unix_s is None:
            self._ended_unix_s = time.time()
        return over

    def begin(self) -> None:
        """Ask the machine to end."""
        if self._child is not None:
            self._child.begin_stop()
        elif self._process is not None:
            self._process.signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the machine's process group."""
        if self._process is not None:
            self._process.signal(signal.SIGKILL)

    def finish(self) -> Ended:
        """Wait for the end of the process, after it was killed or has ended by itself."""
        if self._child is not None:
            self._child.kill()
        elif self._process is not None:
            self._process.wait(STOP_S)
        # A killed process whose main thread has ended counts as ended, even if the kernel still keeps another thread.
        if not self.is_over() and (self._process is None or self._process.alive):
            return Ended(self.id, refusal=Refusal("transient", "it did not end after SIGKILL"))
        return Ended(self.id, self._ended_unix_s or time.time())


def _end_within(endings: Sequence[_Ending], grace_s: float) -> None:
    """Ask all machines to end, and kill those that live after `grace_s`."""
    if grace_s > 0:
        for ending in endings:
            ending.begin()
    deadline_s = time.monotonic() + grace_s
    waiting = [ending for ending in endings if not ending.is_over()]
    while waiting and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
        waiting = [ending for ending in waiting if not ending.is_over()]
    for ending in waiting:
        ending.kill()


def machine_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a gateway inherits: settings of the machine, but no credentials of stores."""
    return {
        name: text
        for name, text in environment.items()
        if name in MACHINE_SETTINGS or name.upper() in PROXY_SETTINGS or name.startswith(MACHINE_SETTING_PREFIXES)
    }


def machine_mark(kind: str, order: LaunchOrder, placement: Placement, fleet_folder: Path, logs: Path) -> dict[str, Any]:
    """Return the mark of a machine: the JSON object in its environment."""
    return {
        "kind": kind,
        "region": order.region,
        "zone": placement.zone,
        "type": order.type,
        "spot": order.spot,
        "addresses": {placement.network: placement.address},
        "launched_unix_s": time.time(),
        "lease_s": order.lease.seconds,
        "owner": order.lease.owner,
        "fleet_folder": str(fleet_folder),
        "inbound": placement.inbound,
        "log": str(logs / f"{order.name}.log"),
        "enter": placement.enter,
        "tags": order.tags,
    }


def _wait_marked(process: RunningProcess) -> None:
    """Wait until /proc shows the new environment of a process that was just started."""
    deadline_s = time.monotonic() + MARKED_S
    while process.alive and mark_of(process, MACHINE_VARIABLE) is None and time.monotonic() < deadline_s:
        time.sleep(0.001)


def _id_of(process: RunningProcess) -> str:
    return f"{process.pid}@{process.started or ''}"


def _process(machine_id: str) -> RunningProcess | None:
    """Return the process of a machine; None if its id is not that of a process."""
    pid, _, started = machine_id.partition("@")
    if not (pid.isdecimal() and (started.isdecimal() or not started)):
        return None
    return RunningProcess(int(pid), int(started) if started else None)
