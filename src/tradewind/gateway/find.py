"""Where the gateway program is."""

from __future__ import annotations

import os
import sys

from tradewind.errors import GatewayError

BINARY = "tradewind-gateway"
#: Names the binary; wins over all other places.
ENVIRONMENT = "TRADEWIND_GATEWAY"


def find_gateway() -> str:
    """Path of the binary: `TRADEWIND_GATEWAY`, else beside this Python's scripts, else on PATH. Raises GatewayError."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        if not os.access(named, os.X_OK):
            raise GatewayError(f"{ENVIRONMENT}={named}: no such program", hint=f"unset {ENVIRONMENT} or correct it")
        return os.path.abspath(named)
    places = [os.path.dirname(sys.executable), os.path.dirname(os.path.abspath(sys.argv[0]))]
    for folder in places + os.environ.get("PATH", os.defpath).split(os.pathsep):
        candidate = os.path.join(folder, BINARY)
        if folder and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise GatewayError(
        f"the gateway program {BINARY} is missing",
        hint=f"it comes with `pip install .` or `make setup`; or set {ENVIRONMENT} to its path",
    )
