"""A machine seen from outside: the console that Azure records (boot diagnostics)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from tradewind.errors import GatewayError
from tradewind.fleet.azure.listing import Listing, is_over
from tradewind.fleet.provider import CallRefused, Machine
from tradewind.model.records import dataclass

__all__ = ["AzureConsole"]

#: Interval of looks at a machine that is asked whether it has ended [s].
LOOK_S = 1.0
#: Timeout of reading the recorded console [s].
READ_S = 20.0


@dataclass(frozen=True, slots=True)
class AzureConsole:
    """The recorded console of a machine. Files cannot be written there, and commands cannot be run."""

    machine: Machine
    listing: Listing

    def put(self, name: str, content: bytes) -> str:
        """Raise GatewayError."""
        raise GatewayError(f"{name} cannot be written on {self.machine.name}: Azure gives access to its console only")

    def run(self, words: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Raise GatewayError."""
        raise GatewayError(f"{words[0]} cannot run on {self.machine.name}: Azure gives access to its console only")

    def log_tail(self, bytes_max: int) -> str:
        """Return the end of the console, in which the boot script reports each step."""
        clients, group = self.listing.clients, self.listing.settings.resource_group
        name = self.machine.id.rpartition("/")[2]
        try:
            data = clients.call(
                name, lambda: clients.compute.virtual_machines.retrieve_boot_diagnostics_data(group, name)
            )
            text = clients.call(name, lambda: clients.read(data.serial_console_log_blob_uri, READ_S))
        except CallRefused as error:
            raise GatewayError(str(error), hint=error.hint) from error
        return text[-bytes_max:].decode(errors="replace")

    def ending(self, timeout_s: float) -> str | None:
        """Return that the machine has ended; None if it still runs."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            with suppress(CallRefused):
                vm = self.listing.machine(self.machine.id.rpartition("/")[2])
                if vm is None or is_over(vm):
                    return "its machine has ended"
            if time.monotonic() >= deadline_s:
                return None
            time.sleep(LOOK_S)
