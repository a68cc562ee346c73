"""Ports of a gateway on a rented machine, which runs nothing else."""

from __future__ import annotations

__all__ = ["CONTROL_PORT", "DATA_PORT"]

CONTROL_PORT = 7442
"""The control API and enrolment, for the fleet's owner."""
DATA_PORT = 7443
"""Data, for other gateways."""
