"""Starts the gateways of a plan as processes on this machine, and ends them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field

from tradewind.errors import UsageError
from tradewind.gateway.process import GatewayProcess
from tradewind.model.deployment import Deployment, GatewayAddress
from tradewind.model.plan import Plan

#: Unix socket paths have at most 107 bytes on Linux, 103 elsewhere.
SOCKET_PATH_BYTES_MAX = 103
#: Longest name of a gateway: a DNS label.
GATEWAY_NAME_CHARS_MAX = 63


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """How to start: data ports by gateway name, detours by hop, whether hops are plain TCP."""

    listen: Mapping[str, str] = field(default_factory=dict)
    detours: Mapping[tuple[str, str], str] = field(default_factory=dict)
    plain: bool = False


class ControlFolder:
    """`control` in a job's folder: one Unix socket per gateway.

    A socket's path has at most SOCKET_PATH_BYTES_MAX bytes; in a deeper folder it is reached through an open
    descriptor of the folder, which the gateways inherit.
    """

    def __init__(self, job_folder: str, *, make: bool = False) -> None:
        self._path = os.path.join(job_folder, "control")
        self.descriptors: tuple[int, ...] = ()
        if make:
            shutil.rmtree(self._path, ignore_errors=True)
            os.makedirs(self._path, mode=0o700)
        longest = len(os.fsencode(self._path)) + 1 + GATEWAY_NAME_CHARS_MAX
        self._base = self._path
        if longest > SOCKET_PATH_BYTES_MAX:
            if not os.path.isdir("/proc/self/fd"):
                raise UsageError(
                    f"{job_folder}: too long for the path of a Unix socket",
                    hint="set TRADEWIND_STATE_DIR to a shorter one",
                )
            self.descriptors = (os.open(self._path, os.O_RDONLY | os.O_DIRECTORY),)
            self._base = f"/proc/self/fd/{self.descriptors[0]}"

    def address(self, gateway: str) -> str:
        """Control address of a gateway, for this process and for those that inherit the descriptors."""
        return f"unix:{self._base}/{gateway}"

    def close(self) -> None:
        """Closes the descriptor; addresses hold no longer."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = ()

    def remove(self) -> None:
        """Removes the folder."""
        self.close()
        shutil.rmtree(self._path, ignore_errors=True)


class LocalGateways:
    """The running processes of one plan. Closing it ends them and removes sockets and identities; logs stay."""

    def __init__(self, binary: str, plan: Plan, folder: str, settings: LaunchSettings) -> None:
        self.processes: dict[str, GatewayProcess] = {}
        self._folder = folder
        self._control = ControlFolder(folder, make=True)
        self._plan, self._settings = plan, settings
        try:
            self._start(binary)
        except BaseException:
            self.kill()
            raise

    def _start(self, binary: str) -> None:
        logs = os.path.join(self._folder, "logs")
        os.makedirs(logs, exist_ok=True)
        dialled = {end for _, end in self._plan.stations()}
        dialled |= {route.nodes[0] for route in self._plan.routes if route.nodes[0] != self._plan.lead}
        networked = bool(dialled)
        secured = networked and not self._settings.plain
        if secured:
            from pathlib import Path

            from tradewind.gateway.tls import make_identities

            shutil.rmtree(self._identities, ignore_errors=True)
            make_identities(binary, Path(self._identities), [gateway.name for gateway in self._plan.gateways])
        for gateway in self._plan.gateways:
            arguments = ["--control", self._control.address(gateway.name)]
            if gateway.name in dialled:
                arguments += ["--data", self._settings.listen.get(gateway.name, "127.0.0.1:0")]
            if networked:
                arguments += ["--identity", os.path.join(self._identities, gateway.name)] if secured else ["--plain"]
            log_file = os.path.join(logs, f"{gateway.name}.log")
            self.processes[gateway.name] = GatewayProcess(
                binary, gateway.name, arguments, log_file, self._control.descriptors
            )
        for process in self.processes.values():
            process.wait_ready()

    @property
    def _identities(self) -> str:
        return os.path.join(self._folder, "identities")

    def deployment(self) -> Deployment:
        """The plan with the addresses that the processes told."""
        addresses = {
            name: GatewayAddress(self._control.address(name), process.data_address)
            for name, process in self.processes.items()
        }
        return Deployment(self._plan, addresses, self._settings.detours)

    def stop(self, *, keep_logs: bool) -> None:
        """Ends all processes and removes what they leave; the logs too unless they are kept."""
        for process in self.processes.values():
            process.begin_stop()
        for process in self.processes.values():
            process.stop()
        self._clean()
        if not keep_logs:
            shutil.rmtree(os.path.join(self._folder, "logs"), ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL to all, at once. The journal survives it."""
        for process in self.processes.values():
            process.kill()
        self._clean()

    def remove(self) -> None:
        """Removes the folder itself, of a run that keeps nothing."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _clean(self) -> None:
        self._control.remove()
        shutil.rmtree(self._identities, ignore_errors=True)
