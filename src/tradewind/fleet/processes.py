"""Machines that are processes of this host: what the local provider and the sky have in common.

Each has a record in its fleet's folder, `machines/NAME.json`, written as soon as the process is there, and a control
socket, `control/NAME`. A process ends in three ways, each enough: it is told to; its client dies, whose end of the pipe
to its standard input it reads; its lease lapses, when the client is there but stands still.
"""

from __future__ import annotations

import json
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.errors import ConfigError, GatewayError, GatewayLost, UsageError
from tradewind.fleet.journal import MACHINES, FleetJournal
from tradewind.fleet.owner import pid_namespace
from tradewind.fleet.provider import Capabilities, Machine, MachineOrder
from tradewind.fleet.running import POLL_S, RunningProcess, find_process
from tradewind.gateway.client import GatewayClient
from tradewind.gateway.process import STOP_S, GatewayProcess
from tradewind.model.files import private_folder, require_own
from tradewind.model.plan import GatewayAddress

__all__ = ["ControlFolder", "ProcessProvider"]

#: Unix socket paths have at most 107 bytes on Linux, 103 elsewhere.
SOCKET_PATH_BYTES_MAX = 103
#: A gateway in another PID namespace answers the wish to end within so long.
LAPSE_S = 5.0
#: Longest name of a gateway: a DNS label.
GATEWAY_NAME_CHARS_MAX = 63


#: Variables that a gateway without stores inherits: search path, language, time zone, settings of its runtime.
RELAY_VARIABLES = frozenset({"PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR"})
RELAY_VARIABLE_PREFIXES = ("LC_", "RUST_", "MIMALLOC_")


class ControlFolder:
    """`control` in a fleet's folder: one Unix socket per gateway.

    A socket's path has at most SOCKET_PATH_BYTES_MAX bytes; in a deeper folder it is reached through an open
    descriptor of the folder, which the gateways inherit.
    """

    def __init__(self, fleet_folder: Path, *, make: bool = False) -> None:
        path = fleet_folder / "control"
        self.descriptors: tuple[int, ...] = ()
        if make:
            private_folder(path)
        self._base = str(path)
        if len(os.fsencode(path)) + 1 + GATEWAY_NAME_CHARS_MAX > SOCKET_PATH_BYTES_MAX:
            if not os.path.isdir("/proc/self/fd"):
                raise UsageError(
                    f"{fleet_folder}: too long for the path of a Unix socket",
                    hint="set TRADEWIND_STATE_DIR to a shorter one",
                )
            self.descriptors = (os.open(path, os.O_RDONLY | os.O_DIRECTORY),)
            self._base = f"/proc/self/fd/{self.descriptors[0]}"

    def address(self, gateway: str) -> str:
        """Control address of a gateway, for this process and for those that inherit the descriptors."""
        return f"unix:{self._base}/{gateway}"

    def close(self) -> None:
        """Closes the descriptor; addresses hold no longer."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = ()


class ProcessProvider(ABC):
    """Gateways as processes of this host. Subclasses define the network and the address.

    `logs` is a folder for the gateways' standard errors, by default the fleet's own.
    """

    kind = ""

    def __init__(self, binary: str, journal: FleetJournal, *, logs: Path | None = None) -> None:
        self._binary = binary
        self._journal = journal
        self._logs = logs
        self._children: dict[tuple[str, str], GatewayProcess] = {}
        self._controls: dict[str, ControlFolder] = {}

    def capabilities(self) -> Capabilities:
        """Any number of machines, anywhere."""
        return Capabilities()

    def document(self) -> dict[str, Any]:
        """The kind alone."""
        return {"kind": self.kind}

    @abstractmethod
    def _enter(self, order: MachineOrder) -> list[str]:
        """The words before the gateway's own, that bring it to where it runs."""

    @abstractmethod
    def _listen(self, order: MachineOrder) -> str:
        """Address where it listens for other gateways unless the order names one, `ip:port`."""

    def _control_address(self, order: MachineOrder, control: ControlFolder) -> str:
        """Address of its control API."""
        return control.address(order.name)

    def machines(self, fleet_id: str) -> tuple[Machine, ...]:
        """Those whose processes live."""
        folder = self._journal.path(fleet_id) / MACHINES
        names = sorted(entry.stem for entry in folder.glob("*.json")) if folder.is_dir() else []
        records = [(name, self._record(fleet_id, name)) for name in names]
        return tuple(
            _machine(fleet_id, name, record)
            for name, record in records
            if record is not None and self._lives(fleet_id, name, record)
        )

    def _lives(self, fleet_id: str, name: str, record: dict[str, Any]) -> bool:
        """By its process id where that means the process that was meant, else by its control socket."""
        if record["pid_namespace"] == pid_namespace():
            return RunningProcess.from_document(record).alive
        return self._answers(fleet_id, name)

    def _answers(self, fleet_id: str, name: str) -> bool:
        try:
            GatewayClient(self._control(fleet_id).address(name)).version()
        except GatewayLost:
            return False
        except GatewayError:
            return True  # Of another version.
        return True

    def create(self, order: MachineOrder) -> Machine:
        """Starts a process, or finds the one that was ordered with this token."""
        record = self._record(order.fleet_id, order.name)
        if record is not None and self._lives(order.fleet_id, order.name, record):
            if record["token"] != order.token:
                raise GatewayError(f"fleet {order.fleet_id} has another machine {order.name}")
            return _machine(order.fleet_id, order.name, record)
        folder = self._journal.path(order.fleet_id)
        control = self._control(order.fleet_id, make=True)
        arguments = ["--control", self._control_address(order, control), "--lease-s", str(order.lease_s)]
        if order.controller is not None:
            arguments += ["--controller", order.controller]
        if order.dialled:
            arguments += ["--data", order.listen or self._listen(order)]
        arguments += ["--identity", order.identity] if order.identity else ["--plain"]
        logs = self._logs or folder / "logs"
        private_folder(logs)
        log_file = str(logs / f"{order.name}.log")
        enter = self._enter(order)
        process = GatewayProcess(
            self._binary,
            order.name,
            arguments,
            log_file,
            control.descriptors,
            enter,
            None if order.reaches_stores else relay_environment(os.environ),
        )
        started = find_process(process.pid)
        if process.exit_code is not None:
            # A record without a start time would name a process id that may soon be anybody's.
            process.kill()
            raise GatewayError(f"gateway {order.name} did not start: {process.log_tail()}")
        self._children[order.fleet_id, order.name] = process
        found = {
            **started.document(),
            "pid_namespace": pid_namespace(),
            "token": order.token,
            "region": order.region,
        }
        try:
            self._write_record(order, found)
        except BaseException:
            process.kill()
            raise
        return _machine(order.fleet_id, order.name, found)

    def wait_ready(self, machine: Machine, timeout_s: float) -> GatewayAddress:
        """Waits for the readiness line of a child; asks the control socket of a process that another client started."""
        child = self._children.get((machine.fleet_id, machine.name))
        control = self._control(machine.fleet_id).address(machine.name)
        if child is not None:
            if not child.control:
                child.wait_ready(timeout_s)
            # A socket's path may hold only for the child, which inherited the folder's descriptor.
            reached = control if child.control.startswith("unix:") else child.control
            return GatewayAddress(reached, child.data_address)
        process, deadline_s = _process(machine), time.monotonic() + timeout_s
        while process.alive and time.monotonic() < deadline_s:
            try:
                return GatewayAddress(control, GatewayClient(control).version().get("data_address"))
            except GatewayLost:
                time.sleep(POLL_S)
        raise GatewayError(f"gateway {machine.name} was not ready within {timeout_s:.0f} s")

    def delete(
        self,
        machines: Sequence[Machine],
        *,
        grace_s: float = STOP_S,
        on_gone: Callable[[Machine], None] | None = None,
    ) -> None:
        """Lets them end by themselves, all at the same time, and kills those that do not within `grace_s`."""
        elsewhere = [machine for machine in machines if _is_elsewhere(machine)]
        waiting = [_Ending(machine, self._children.pop(_key(machine), None)) for machine in machines]
        waiting = [ending for ending in waiting if ending.machine not in elsewhere]

        def forget(machine: Machine) -> None:
            with suppress(OSError):
                self._record_path(machine.fleet_id, machine.name).unlink()
            if on_gone is not None:
                on_gone(machine)

        for machine in elsewhere:
            self._let_lapse(machine)
        if grace_s > 0:
            for ending in waiting:
                ending.begin()
        deadline_s = time.monotonic() + grace_s
        while waiting:
            for ending in [ending for ending in waiting if ending.over]:
                waiting.remove(ending)
                ending.finish()
                forget(ending.machine)
            if time.monotonic() >= deadline_s:
                break
            if waiting:
                time.sleep(POLL_S)
        for ending in waiting:
            ending.kill()
        for ending in waiting:
            ending.finish()
            forget(ending.machine)
        for machine in elsewhere:
            self._wait_lapsed(machine)
            forget(machine)
        for fleet_id in {machine.fleet_id for machine in machines}:
            if not any(key[0] == fleet_id for key in self._children) and (
                control := self._controls.pop(fleet_id, None)
            ):
                control.close()

    def _let_lapse(self, machine: Machine) -> None:
        """End a process of another PID namespace, which no signal of ours reaches: by a lease of a second."""
        with suppress(GatewayError):
            GatewayClient(self._control(machine.fleet_id).address(machine.name)).renew_lease(1, LAPSE_S)

    def _wait_lapsed(self, machine: Machine) -> None:
        deadline_s = time.monotonic() + STOP_S
        while self._answers(machine.fleet_id, machine.name):
            if time.monotonic() >= deadline_s:
                raise GatewayError(
                    f"machine {machine.name} of fleet {machine.fleet_id} runs in another PID namespace and did not end "
                    f"within {STOP_S:.0f} s",
                    hint="run `tradewind fleet down` where it was started, or on the host",
                )
            time.sleep(POLL_S)

    def last_words(self, machine: Machine, timeout_s: float) -> str:
        """Its exit code or signal, and the last line of its log."""
        child = self._children.get((machine.fleet_id, machine.name))
        if child is None and _is_elsewhere(machine):
            return "it runs in another PID namespace"
        if child is None:
            return "it still runs" if _process(machine).alive else "it is gone"
        code = child.wait_exit(timeout_s)
        how = "it still runs" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"
        log = child.log_tail()
        return f"{how}: {log.splitlines()[-1]}" if log else how

    def _control(self, fleet_id: str, *, make: bool = False) -> ControlFolder:
        if fleet_id not in self._controls:
            self._controls[fleet_id] = ControlFolder(self._journal.path(fleet_id), make=make)
        return self._controls[fleet_id]

    def _record_path(self, fleet_id: str, name: str) -> Path:
        return self._journal.path(fleet_id) / MACHINES / f"{name}.json"

    def _record(self, fleet_id: str, name: str) -> dict[str, Any] | None:
        """Return the record of a machine, or None. Raises GatewayError if it cannot be trusted."""
        path = self._record_path(fleet_id, name)
        try:
            require_own(path)
            record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            started, wanted = record["started"], (record["pid"], record["pid_namespace"], record["token"])
            if started is None and find_process(os.getpid()).started is not None:
                raise ValueError("it has no start time, so its process id may belong to another process")
            if not all(isinstance(number, int) for number in (*wanted[:2], started or 0)):
                raise ValueError("its process id is not a number")
        except FileNotFoundError:
            return None
        except (ConfigError, OSError, ValueError, KeyError, TypeError) as error:
            raise GatewayError(f"{path} cannot be used: {error}", hint="inspect the file, then remove it") from error
        return record

    def _write_record(self, order: MachineOrder, record: dict[str, Any]) -> None:
        path = self._record_path(order.fleet_id, order.name)
        private_folder(path.parent)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(record), encoding="utf-8")
        fresh.replace(path)


@dataclass(frozen=True, slots=True)
class _Ending:
    """A process of this PID namespace that is to end. `child` is None where another client started it."""

    machine: Machine
    child: GatewayProcess | None

    @property
    def over(self) -> bool:
        """True if it is gone."""
        return not _process(self.machine).alive if self.child is None else self.child.exit_code is not None

    def begin(self) -> None:
        """Ask it to end by itself."""
        if self.child is not None:
            self.child.begin_stop()
        else:
            _process(self.machine).signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to its process group."""
        _process(self.machine).signal(signal.SIGKILL)

    def finish(self) -> None:
        """Wait for the end of a process that was killed or has ended."""
        if self.child is not None:
            self.child.kill()
        else:
            _process(self.machine).wait(STOP_S)


def relay_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a gateway without stores: no credentials, and only variables that it uses."""
    return {
        name: text
        for name, text in environment.items()
        if name in RELAY_VARIABLES or name.startswith(RELAY_VARIABLE_PREFIXES)
    }


def _machine(fleet_id: str, name: str, record: dict[str, Any]) -> Machine:
    identity = f"{record['pid']}@{record['started'] or ''}"
    if record["pid_namespace"] != pid_namespace():
        return Machine(fleet_id, name, record["region"], f"{record['pid_namespace']}/{identity}")
    return Machine(fleet_id, name, record["region"], identity, record["pid"])


def _key(machine: Machine) -> tuple[str, str]:
    """Under which a child is known."""
    return machine.fleet_id, machine.name


def _is_elsewhere(machine: Machine) -> bool:
    """Return whether it is a process of another PID namespace: its process id is nothing to us."""
    return "/" in machine.id


def _process(machine: Machine) -> RunningProcess:
    pid, _, started = machine.id.partition("@")
    return RunningProcess(int(pid), int(started) if started else None)
