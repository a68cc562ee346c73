"""Home: where the lead of a fleet runs, beside the client.

The lead is not a rented machine: it is never ordered, leased or charged. It ends with its client, or when another
process ends the fleet. The owner of the fleet's gateways runs beside it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.errors import GatewayError
from tradewind.fleet.given import GivenCredentials, surroundings
from tradewind.fleet.process_table import HOME_VARIABLE, marked_processes
from tradewind.fleet.provider import Home
from tradewind.fleet.running import POLL_S
from tradewind.fleet.sockets import DESCRIPTORS, HOME, ControlFolder, answers, socket_names
from tradewind.gateway.client import GatewayClient
from tradewind.gateway.process import OWNER_NAME, READY_S, STOP_S, GatewayProcess
from tradewind.model.files import private_folder
from tradewind.model.plan import GatewayAddress

if TYPE_CHECKING:
    from tradewind.gateway.owner import FleetOwner, Join

__all__ = ["HomeGateway", "drain_home", "end_home", "start_owner"]


class HomeGateway:
    """The lead of a fleet, a process beside this one. Its control socket is in the fleet's folder."""

    def __init__(
        self,
        binary: str,
        folder: Path,
        name: str,
        home: Home,
        *,
        listen: str | None,
        join: Join | None,
        logs: Path | None = None,
        credentials: GivenCredentials | None = None,
    ) -> None:
        """Start the lead. Raises GatewayError.

        `listen` is its data address; empty for any free port, None for no data port. `join` is None in a fleet without
        identities. With `credentials` the lead has these, and none of this machine.
        """
        self._sockets = ControlFolder(folder, make=True, name=HOME)
        self._control = self._sockets.address(name)
        self._is_joining = join is not None
        self._before_end = home.before_end
        data = None if listen is None else listen or f"{home.address}:0"
        arguments, input_line = ["--control", self._control, "--plain"], None
        if join is not None:
            arguments, input_line = ["--join", "-"], join.beside(self._control.removeprefix("unix:"), data)
        elif data is not None:
            arguments += ["--data", data]
        log_folder = private_folder(logs or folder / "logs")
        try:
            with surroundings(credentials) as (environment, descriptors):
                self._process = GatewayProcess(
                    binary,
                    name,
                    arguments,
                    str(log_folder / f"{name}.log"),
                    (*self._sockets.descriptors, *descriptors),
                    home.enter,
                    home_environment(folder, name, environment),
                    input_line,
                )
        except BaseException:
            self._sockets.close()
            raise

    def wait_ready(self, timeout_s: float = READY_S) -> GatewayAddress:
        """Wait until the lead answers and return its address. Raises GatewayError if it ends or the timeout expires."""
        if not self._process.control:
            # The first request needs it; here its import takes place while the lead starts.
            import tradewind.gateway.exchange  # noqa: F401

            self._process.wait_ready(timeout_s)
        # For a socket in a deep folder the child reports a path through its own descriptor, which is invalid here.
        reached = self._process.control
        if reached.startswith(f"unix:{DESCRIPTORS}"):
            reached = self._control
        if self._is_joining:
            # The lead reports its addresses before it has enrolled, and answers only afterwards.
            GatewayClient(reached).version(timeout_s)
            self._is_joining = False
        return GatewayAddress(reached, self._process.data_address)

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self._process.exit_code is None

    def ending(self, timeout_s: float) -> str:
        """Describe how the lead ended. Waits up to the timeout for its end."""
        return self._process.ending(timeout_s) or "it still runs"

    def crash(self) -> None:
        """Kill the lead as if it had crashed."""
        self._process.kill()

    def begin_close(self) -> None:
        """Ask the lead to stop, without waiting."""
        self._tell_end()
        self._process.begin_stop()

    def close(self, grace_s: float = STOP_S) -> None:
        """End the lead within `grace_s`. May be called more than once."""
        self._tell_end()
        if grace_s > 0:
            self._process.begin_stop()
            self._process.wait_exit(grace_s)
        self._process.kill()
        self._sockets.close()

    def _tell_end(self) -> None:
        before_end, self._before_end = self._before_end, None
        if before_end is not None:
            before_end()


def start_owner(
    binary: str,
    folder: Path,
    home: Home,
    logs: Path | None,
    *,
    keeps_ca: bool = False,
    credentials: GivenCredentials | None = None,
) -> FleetOwner:
    """Start the owner of a fleet, beside its lead. With `keeps_ca` another one can take over. With `credentials` it
    sends gateways these, and none of this machine. Raises GatewayError.
    """
    from tradewind.gateway.owner import FleetOwner

    log_folder = private_folder(logs or folder / "logs")
    with surroundings(credentials) as (environment, descriptors):
        return FleetOwner(
            binary,
            folder.name,
            folder,
            str(log_folder / f"{OWNER_NAME}.log"),
            listen=f"{home.address}:0",
            enter=home.enter,
            environment=home_environment(folder, OWNER_NAME, environment),
            descriptors=descriptors,
            keeps_ca=keeps_ca,
        )


def home_environment(folder: Path, name: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a process at a fleet's home, with the mark by which other processes find it.

    Apart from the mark it is `environment`, by default that of this process.
    """
    own = os.environ if environment is None else environment
    return {**own, HOME_VARIABLE: json.dumps({"fleet": folder.name, "name": name})}


def drain_home(folder: Path, name: str) -> None:
    """Ask the lead of a fleet to checkpoint and stop, whichever process started it. Raises GatewayError, OSError."""
    sockets = ControlFolder(folder, name=HOME)
    try:
        GatewayClient(sockets.address(name)).drain()
    finally:
        sockets.close()


def end_home(folder: Path) -> int:
    """End the lead and the owner of a fleet that another process started; return how many of the two ran.

    Raises GatewayError if the lead runs in a PID namespace that this process cannot see and does not end when drained.
    """
    marked = [process for process, mark in marked_processes(HOME_VARIABLE) if mark.get("fleet") == folder.name]
    for process in marked:
        process.signal(signal.SIGTERM)
    for process in marked:
        if not process.wait(STOP_S):
            process.signal(signal.SIGKILL)
            process.wait(STOP_S)
    return len(marked) + _end_unseen(folder)


def _end_unseen(folder: Path) -> int:
    names = socket_names(folder, HOME)
    if not names:
        return 0
    sockets = ControlFolder(folder, name=HOME)
    try:
        living = [control for name in names if answers(control := sockets.address(name))]
        for control in living:
            with suppress(GatewayError):
                GatewayClient(control).drain()
        deadline_s = time.monotonic() + STOP_S
        while any(answers(control) for control in living):
            if time.monotonic() >= deadline_s:
                raise GatewayError(
                    f"the lead of fleet {folder.name} runs in another PID namespace and did not end within "
                    f"{STOP_S:.0f} s",
                    hint="run `tradewind fleet down` where it was started, or on the host",
                )
            time.sleep(POLL_S)
    finally:
        sockets.close()
    return len(living)
