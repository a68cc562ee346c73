"""Location of the gateway program."""

from __future__ import annotations

from tradewind.errors import GatewayError
from tradewind.programs import find_program

BINARY = "tradewind-gateway"
#: Names the binary; wins over all other places.
ENVIRONMENT = "TRADEWIND_GATEWAY"


def find_gateway() -> str:
    """Path of the binary: `TRADEWIND_GATEWAY`, else beside this Python's scripts, else on PATH. Raises GatewayError."""
    return find_program(BINARY, ENVIRONMENT, GatewayError)
