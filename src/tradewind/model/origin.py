"""Origin of a figure. Every price, cap and rate in a catalog has one."""

from __future__ import annotations

from typing import Literal

from tradewind.model.records import dataclass

__all__ = ["UNKNOWN_ORIGIN", "Origin", "OriginKind"]

OriginKind = Literal["measured", "learned", "imported", "published", "refreshed", "modelled", "assumed"]
"""The layer that a figure belongs to (docs/concepts/catalog.md)."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Method, source and date of a figure."""

    kind: OriginKind
    source: str
    date: str
    """ISO date (``2024-05-01``) of the figure; empty if unknown."""
    method: str = ""
    """Method in a few words; empty if the source is clear without it."""

    def __str__(self) -> str:
        return ", ".join(part for part in (self.kind, self.source, self.method, self.date) if part)


UNKNOWN_ORIGIN = Origin("assumed", "unknown", "")
"""Origin of a figure whose source is unknown."""
