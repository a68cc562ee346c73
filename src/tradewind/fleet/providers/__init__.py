"""Providers: one file for each kind, with a function `connect`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.errors import GatewayError
from tradewind.fleet.provider import Provider
from tradewind.model.records import dataclass

if TYPE_CHECKING:
    from tradewind.fleet.journal import FleetJournal

__all__ = ["KINDS", "LOCAL", "Settings", "connect_provider", "make_provider"]

#: Names of the files in this folder.
KINDS = ("aws", "azure", "gcp", "guest", "kubernetes", "local", "mixed", "sky", "ssh")
#: The document of the local provider.
LOCAL: Mapping[str, Any] = {"kind": "local"}


@dataclass(frozen=True, slots=True)
class Settings:
    """Paths on this host that a provider needs.

    `binary` is the gateway program. `folder` has a private folder for each fleet. `logs` is the folder of the gateways'
    logs, by default in the fleet's folder.
    """

    binary: str
    folder: Path
    logs: Path | None = None

    @property
    def catalog(self) -> Path:
        """Folder of the user's part of the catalog, in the same state folder."""
        return self.folder.parent / "catalog"


def make_provider(
    document: Mapping[str, Any], binary: str, journal: FleetJournal, *, logs: Path | None = None
) -> Provider:
    """Return the provider that wrote `document`. Raises GatewayError for a kind that this version does not know."""
    return connect_provider(document, Settings(binary, journal.folder, logs))


def connect_provider(document: Mapping[str, Any], settings: Settings) -> Provider:
    """Return the provider of a document.

    Raises GatewayError for a kind that this version does not know, and for a damaged document.
    """
    kind = document["kind"]
    if kind not in KINDS:
        raise GatewayError(f"unknown provider {kind}", hint="use the version of tradewind that started this fleet")
    module = import_module(f"tradewind.fleet.providers.{kind}")
    try:
        provider: Provider = module.connect(document, settings)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise GatewayError(
            f"the record of provider {kind} cannot be read ({type(error).__name__}: {error})",
            hint="`tradewind fleet sweep` ends its machines by their tags",
        ) from error
    return provider
