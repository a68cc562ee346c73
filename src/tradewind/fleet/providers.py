"""Providers by name, for code that only has a fleet's record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tradewind.errors import GatewayError
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import Provider

__all__ = ["LOCAL", "make_provider"]

#: The document of the provider that needs nothing but this machine.
LOCAL: Mapping[str, Any] = {"kind": "local"}


def make_provider(
    document: Mapping[str, Any], binary: str, journal: FleetJournal, *, logs: Path | None = None
) -> Provider:
    """The provider that wrote `document`. Raises GatewayError for a kind that this version does not know, SkyError."""
    kind = document["kind"]
    if kind == "local":
        from tradewind.fleet.local import LocalProvider

        return LocalProvider(binary, journal, logs=logs)
    if kind == "sky":
        from tradewind.fleet.sky import SkyProvider
        from tradewind.sky.running import Sky

        return SkyProvider(Sky.attach(Path(document["sky"])), binary, journal, logs=logs)
    raise GatewayError(f"unknown provider {kind}", hint="it was made by another version of tradewind")
