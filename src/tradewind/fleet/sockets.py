"""Control sockets of gateways that are processes of this host.

In the fleet's folder, `control/NAME` belongs to a machine, `home/NAME` to the lead beside the client, and `guests/NAME`
to the desk of a guest.
"""

from __future__ import annotations

import os
from pathlib import Path

from tradewind.errors import GatewayError, GatewayLost, UsageError
from tradewind.gateway.client import GatewayClient
from tradewind.model.files import private_folder

__all__ = ["DESCRIPTORS", "GUESTS", "HOME", "MACHINES", "ControlFolder", "answers", "socket_names"]

#: Folders of sockets in the folder of a fleet.
MACHINES = "control"
HOME = "home"
GUESTS = "guests"

#: The open files of a process, by descriptor.
DESCRIPTORS = "/proc/self/fd"
#: Unix socket paths have at most 107 bytes on Linux, 103 elsewhere.
SOCKET_PATH_BYTES_MAX = 103
#: Longest name of a gateway: a DNS label.
GATEWAY_NAME_CHARS_MAX = 63


class ControlFolder:
    """A folder with one Unix socket per gateway.

    A socket's path is limited to SOCKET_PATH_BYTES_MAX bytes. In a deeper folder the sockets are reached through an
    open descriptor of the folder, which the gateways inherit.
    """

    def __init__(self, fleet_folder: Path, *, make: bool = False, name: str = MACHINES) -> None:
        path = fleet_folder / name
        self.descriptors: tuple[int, ...] = ()
        if make:
            private_folder(path)
        self._base = str(path)
        if len(os.fsencode(path)) + 1 + GATEWAY_NAME_CHARS_MAX > SOCKET_PATH_BYTES_MAX:
            if not os.path.isdir(DESCRIPTORS):
                raise UsageError(
                    f"{fleet_folder}: too long for the path of a Unix socket",
                    hint="set TRADEWIND_STATE_DIR to a shorter one",
                )
            self.descriptors = (os.open(path, os.O_RDONLY | os.O_DIRECTORY),)
            self._base = f"{DESCRIPTORS}/{self.descriptors[0]}"

    def address(self, gateway: str) -> str:
        """Return the control address of a gateway, valid in this process and those that inherit the descriptor."""
        return f"unix:{self._base}/{gateway}"

    def close(self) -> None:
        """Close the descriptor. Addresses are no longer valid."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = ()


def socket_names(fleet_folder: Path, name: str = MACHINES) -> list[str]:
    """Return the names of the gateways that have a socket, even if no process listens there."""
    try:
        return sorted(entry.name for entry in (fleet_folder / name).iterdir() if entry.is_socket())
    except FileNotFoundError:
        return []


def answers(control: str) -> bool:
    """Return whether a gateway listens at a control address."""
    try:
        GatewayClient(control).version()
    except GatewayLost:
        return False
    except GatewayError:
        return True  # A gateway of another version.
    return True
