"""Where a figure comes from. Every price, cap and rate in a catalog carries one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Origin", "OriginKind"]

OriginKind = Literal["measured", "learned", "imported", "published", "refreshed", "modelled", "assumed"]


@dataclass(frozen=True, slots=True)
class Origin:
    """How a figure was obtained, from what, and when."""

    kind: OriginKind
    source: str
    date: str
    """ISO date (``2024-05-01``) on which the figure was true; empty if nobody said."""

    def __str__(self) -> str:
        return f"{self.kind}, {self.source}" + (f", {self.date}" if self.date else "")
