"""Where a figure comes from. Every price, cap and rate in a catalog carries one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["UNKNOWN_ORIGIN", "Origin", "OriginKind"]

OriginKind = Literal["measured", "learned", "imported", "published", "refreshed", "modelled", "assumed"]
"""The layer of truth that a figure belongs to (docs/concepts/catalog.md)."""


@dataclass(frozen=True, slots=True)
class Origin:
    """How a figure was obtained, from what, and when."""

    kind: OriginKind
    source: str
    date: str
    """ISO date (``2024-05-01``) on which the figure was true; empty if nobody said."""
    method: str = ""
    """How it was obtained, in a few words; empty where the source says it all."""

    def __str__(self) -> str:
        return ", ".join(part for part in (self.kind, self.source, self.method, self.date) if part)


UNKNOWN_ORIGIN = Origin("assumed", "nobody says", "")
"""Of a figure that came without one."""
