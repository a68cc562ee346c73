"""Starts the gateways of a plan as processes on this machine, and ends them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field

from tradewind.gateway.process import GatewayProcess
from tradewind.model.deployment import Deployment, GatewayAddress
from tradewind.model.plan import Plan
from tradewind.transfer.jobs import SOCKET_PATH_BYTES_MAX


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """How to start: data ports by gateway name, detours by hop, whether hops are plain TCP."""

    listen: Mapping[str, str] = field(default_factory=dict)
    detours: Mapping[tuple[str, str], str] = field(default_factory=dict)
    plain: bool = False


class LocalGateways:
    """The running processes of one plan. Closing it ends them and removes sockets and identities; logs stay."""

    def __init__(self, binary: str, plan: Plan, folder: str, settings: LaunchSettings) -> None:
        self.processes: dict[str, GatewayProcess] = {}
        self._folder = folder
        self._sockets = _socket_folder(folder, plan)
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
            arguments = ["--control", f"unix:{os.path.join(self._sockets, gateway.name)}"]
            if gateway.name in dialled:
                arguments += ["--data", self._settings.listen.get(gateway.name, "127.0.0.1:0")]
            if networked:
                arguments += ["--identity", os.path.join(self._identities, gateway.name)] if secured else ["--plain"]
            log_file = os.path.join(logs, f"{gateway.name}.log")
            self.processes[gateway.name] = GatewayProcess(binary, gateway.name, arguments, log_file)
        for process in self.processes.values():
            process.wait_ready()

    @property
    def _identities(self) -> str:
        return os.path.join(self._folder, "identities")

    def deployment(self) -> Deployment:
        """The plan with the addresses that the processes told."""
        addresses = {
            name: GatewayAddress(process.control, process.data_address) for name, process in self.processes.items()
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

    def _clean(self) -> None:
        shutil.rmtree(self._sockets, ignore_errors=True)
        shutil.rmtree(self._identities, ignore_errors=True)


def _socket_folder(folder: str, plan: Plan) -> str:
    """`folder/control`, or a folder below /tmp where that is too long for a Unix socket; made for us alone."""
    sockets = os.path.join(folder, "control")
    longest = max(len(gateway.name) for gateway in plan.gateways)
    if len(os.fsencode(sockets)) + 1 + longest > SOCKET_PATH_BYTES_MAX:
        shutil.rmtree(sockets, ignore_errors=True) if not os.path.islink(sockets) else os.unlink(sockets)
        real = f"/tmp/tradewind-{os.getuid()}-{os.urandom(8).hex()}"
        os.mkdir(real, 0o700)
        return real
    shutil.rmtree(sockets, ignore_errors=True)
    os.makedirs(sockets, mode=0o700)
    return sockets
