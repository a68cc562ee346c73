"""Providers: one file each, named after its kind, with a function `connect`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.errors import GatewayError
from tradewind.fleet.provider import Provider

if TYPE_CHECKING:
    from tradewind.fleet.journal import FleetJournal

__all__ = ["KINDS", "LOCAL", "Settings", "make_provider"]

#: Files of this folder.
KINDS = ("local", "sky")
#: The document of the provider that needs nothing but this host.
LOCAL: Mapping[str, Any] = {"kind": "local"}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a provider may use of this host.

    `binary` is the gateway program, `folder` has a private folder for each fleet, `logs` is where logs of gateways
    are collected, if not in the fleet's folder.
    """

    binary: str
    folder: Path
    logs: Path | None = None


def make_provider(
    document: Mapping[str, Any], binary: str, journal: FleetJournal, *, logs: Path | None = None
) -> Provider:
    """Return the provider that wrote `document`. Raises GatewayError for a kind that this version does not know."""
    kind = document["kind"]
    if kind not in KINDS:
        raise GatewayError(f"unknown provider {kind}", hint="it was made by another version of tradewind")
    module = import_module(f"tradewind.fleet.providers.{kind}")
    provider: Provider = module.connect(document, Settings(binary, journal.folder, logs))
    return provider
