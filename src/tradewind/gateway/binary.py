"""The gateway's binary: find its path, and check that it speaks this client's contract."""

from __future__ import annotations

from typing import Any

from tradewind._version import __version__
from tradewind.errors import GatewayError
from tradewind.model.program import CONTRACT_VERSION
from tradewind.programs import find_program

__all__ = ["IMPLIED_CONTRACT", "client_contract", "require_contract"]

BINARY = "tradewind-gateway"
#: Variable with the path of the binary. It takes precedence over all other places.
ENVIRONMENT = "TRADEWIND_GATEWAY"


def find_gateway() -> str:
    """Return the path of the binary: `TRADEWIND_GATEWAY`, else beside this Python's scripts, else on PATH.

    Raises GatewayError.
    """
    return find_program(BINARY, ENVIRONMENT, GatewayError)


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
