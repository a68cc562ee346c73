"""Machines that are processes of this host, at its loopback address."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from tradewind.fleet.processes import Placement, ProcessProvider
from tradewind.fleet.provider import ANY_TYPE, LaunchOrder, Offer

if TYPE_CHECKING:
    from tradewind.fleet.providers import Settings

__all__ = ["LocalProvider", "connect"]


class LocalProvider(ProcessProvider):
    """Runs the machines of every region on this host, for free."""

    kind = "local"

    def offers(self, regions: Collection[str]) -> tuple[Offer, ...]:
        """Return one free offer per region."""
        return tuple(Offer(region, ANY_TYPE, price_source="this host", zones=("here",)) for region in regions)

    def _place(self, order: LaunchOrder, taken: Collection[str]) -> Placement:
        return Placement()


def connect(document: Mapping[str, Any], settings: Settings) -> LocalProvider:
    """Return the provider of this host."""
    return LocalProvider(settings.binary, settings.folder, logs=settings.logs)
