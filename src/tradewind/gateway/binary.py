"""The gateway's binary: find its path, and check that it speaks this client's contract."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tradewind._version import __version__
from tradewind.errors import GatewayError
from tradewind.model.program import CONTRACT_VERSION
from tradewind.model.records import dataclass
from tradewind.programs import find_program

__all__ = [
    "IMPLIED_CONTRACT",
    "GatewayProgram",
    "client_contract",
    "gateway_program",
    "portable_gateways",
    "require_contract",
]

BINARY = "tradewind-gateway"
#: Variable with the path of the binary. It takes precedence over all other places.
ENVIRONMENT = "TRADEWIND_GATEWAY"


def find_gateway() -> str:
    """Return the path of the binary: `TRADEWIND_GATEWAY`, else beside this Python's scripts, else on PATH.

    Raises GatewayError.
    """
    return find_program(BINARY, ENVIRONMENT, GatewayError)


#: Variable with the folder of static programs, as `make static` fills it, for hosts with another processor.
#: Clouds have the setting `programs`.
PROGRAMS_VARIABLE = "TRADEWIND_PROGRAMS"
#: Processors that have static programs, as `uname -m` names them.
PROCESSORS = ("x86_64", "aarch64")
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class GatewayProgram:
    """A gateway program that can be copied to machines with its processor."""

    processor: str
    path: str
    sha256: str
    """In hexadecimal."""


def portable_gateways(folder: str | None = None) -> dict[str, GatewayProgram]:
    """Return the static gateways in a folder, by processor; by default in the folder that TRADEWIND_PROGRAMS names.

    The result is empty without a folder, and lacks processors whose program is not there. Raises GatewayError if a
    program cannot be read.
    """
    folder = folder or os.environ.get(PROGRAMS_VARIABLE)
    if not folder:
        return {}
    found = {}
    for processor in PROCESSORS:
        path = Path(folder).absolute() / f"{BINARY}-{processor}"
        if path.is_file():
            found[processor] = gateway_program(processor, str(path))
    return found


def gateway_program(processor: str, path: str) -> GatewayProgram:
    """Return the program in a file, with its SHA-256. Raises GatewayError."""
    from hashlib import sha256

    digest = sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise GatewayError(f"the gateway program {path} cannot be read: {error.strerror}") from error
    return GatewayProgram(processor, path, digest.hexdigest())


#: Contract of a program that reports none. Only the first contract did not report itself.
IMPLIED_CONTRACT = 1


def require_contract(gateway: str, contract: int) -> None:
    """Raise GatewayError if this client does not use the contract of a gateway. `gateway` is its version."""
    if contract != CONTRACT_VERSION:
        raise GatewayError(
            f"tradewind {__version__} uses contract {CONTRACT_VERSION}, "
            f"tradewind-gateway {gateway} uses contract {contract}",
            hint="install the same version of both; TRADEWIND_GATEWAY sets the gateway program to use",
        )


def client_contract() -> dict[str, Any]:
    """Return the contract's fields of a task, by which a gateway program of another contract refuses it.

    They are empty for the first contract, which did not report itself.
    """
    if CONTRACT_VERSION == IMPLIED_CONTRACT:
        return {}
    return {"contract": CONTRACT_VERSION, "client": __version__}


def not_started(program: str, error: OSError) -> GatewayError:
    """Return the error of a program that the system does not start."""
    return GatewayError(
        f"{program} cannot be started: {error.strerror or error}", hint="`tradewind doctor` checks the installation"
    )
