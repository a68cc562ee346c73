"""The console that Azure records of a machine (boot diagnostics)."""

from __future__ import annotations

from tradewind.fleet.azure.listing import Listing, is_over
from tradewind.fleet.provider import Machine

__all__ = ["console_of", "end_of"]

#: Timeout of reading the recorded console [s].
READ_S = 20.0


def console_of(listing: Listing, machine: Machine, bytes_max: int) -> str:
    """Return the end of a machine's console. Raises CallRefused."""
    clients, group = listing.clients, listing.settings.resource_group
    name = machine.id.rpartition("/")[2]
    data = clients.call(name, lambda: clients.compute.virtual_machines.retrieve_boot_diagnostics_data(group, name))
    text = clients.call(name, lambda: clients.read(data.serial_console_log_blob_uri, READ_S))
    return text[-bytes_max:].decode(errors="replace")


def end_of(listing: Listing, machine: Machine) -> str | None:
    """Return that a machine has ended; None if it still runs. Raises CallRefused."""
    vm = listing.machine(machine.id.rpartition("/")[2])
    return "its machine has ended" if vm is None or is_over(vm) else None
