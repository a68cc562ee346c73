"""Why a host does not start a machine, and which program it can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tradewind.errors import GatewayError
from tradewind.fleet.provider import CallRefused, Machine, Refusal
from tradewind.gateway.binary import PROGRAMS_VARIABLE, GatewayProgram, portable_gateways
from tradewind.model.hosts import SshHost

__all__ = ["fitting_program", "no_place", "refusal_of_start"]


def no_place(
    region: str, able: Sequence[SshHost], free: Sequence[SshHost], listed: Mapping[str, list[Machine] | Refusal]
) -> Refusal:
    """Return why no host of a region can start a machine. The plan may do without hosts that do not answer."""
    if free:
        refusals = [found for host in free if isinstance(found := listed[host.name], Refusal)]
        silent = all(refusal.kind == "transient" for refusal in refusals)
        first = next((refusal for refusal in refusals if refusal.kind != "transient"), refusals[0])
        return Refusal("capacity", first.reason) if silent else first
    count = sum(host.gateways for host in able)
    return Refusal("quota", f"no host of {region} has room for another gateway: they may run {count}")


def refusal_of_start(host: str, answer: str, why: str) -> Refusal:
    """Return why a host did not start a machine, from its answer and what its shell said."""
    if answer == "program missing":
        return Refusal("bad request", f"{host}: the gateway program is gone after it was copied")
    if "No space left" in why or "Disk quota" in why:
        return Refusal("capacity", f"{host}: {why}")
    if "Permission denied" in why or "Read-only" in why or "cannot " in why:
        return Refusal("permission", f"{host}: {why}", action="a folder to write to: `folder` of the host")
    return Refusal("bad request", f"{host}: {why}")


def fitting_program(host: str, system: str, program: GatewayProgram) -> GatewayProgram:
    """Return the program that runs on a host, whose `uname -sm` is given: `program`, or else a static one.

    Raises CallRefused if there is none.
    """
    kernel, _, processor = system.partition(" ")
    if processor in ("", program.processor):
        return program
    try:
        static = portable_gateways().get(processor) if kernel == "Linux" else None
    except GatewayError as error:
        raise CallRefused(Refusal("bad request", str(error))) from error
    if static is None:
        words = (
            f"{host}: there is no gateway program for {system}; {PROGRAMS_VARIABLE} names a folder of static programs"
        )
        raise CallRefused(Refusal("bad request", words))
    return static
