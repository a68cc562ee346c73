"""Ports of the gateway on a rented machine. One gateway runs on each, so the ports are fixed."""

from __future__ import annotations

__all__ = ["CONTROL_PORT", "DATA_PORT"]

CONTROL_PORT = 7442
DATA_PORT = 7443
