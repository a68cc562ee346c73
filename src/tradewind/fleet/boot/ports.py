"""The fixed ports of the gateway of a rented machine."""

from __future__ import annotations

__all__ = ["CONTROL_PORT", "DATA_PORT"]

#: The fleet's owner dials this port.
CONTROL_PORT = 7442
#: Other gateways, and the lead at home, dial this port.
DATA_PORT = 7443
