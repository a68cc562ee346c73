"""The gateway's binary: where it is, and whether it speaks this client's contract."""

from __future__ import annotations

from typing import Any

from tradewind._version import __version__
from tradewind.errors import GatewayError
from tradewind.model.program import CONTRACT_VERSION
from tradewind.programs import find_program

__all__ = ["IMPLIED_CONTRACT", "client_contract", "require_contract"]

BINARY = "tradewind-gateway"
#: Names the binary; wins over all other places.
ENVIRONMENT = "TRADEWIND_GATEWAY"


def find_gateway() -> str:
    """Path of the binary: `TRADEWIND_GATEWAY`, else beside this Python's scripts, else on PATH. Raises GatewayError."""
    return find_program(BINARY, ENVIRONMENT, GatewayError)


#: The contract of who says none: the first did not.
IMPLIED_CONTRACT = 1


def require_contract(gateway: str, contract: int) -> None:
    """Raises GatewayError if a gateway of this version and contract cannot be talked to."""
    if contract != CONTRACT_VERSION:
        raise GatewayError(
            f"tradewind {__version__} speaks contract {CONTRACT_VERSION}, "
            f"tradewind-gateway {gateway} contract {contract}",
            hint="install both of one version; TRADEWIND_GATEWAY names the gateway program that is used",
        )


def client_contract() -> dict[str, Any]:
    """What stands beside a task, so that a gateway program of another contract can say so. The first says none."""
    if CONTRACT_VERSION == IMPLIED_CONTRACT:
        return {}
    return {"contract": CONTRACT_VERSION, "client": __version__}
