"""Counts of the emulator, and whether a measurement over it is valid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tradewind.errors import SkyInvalid
from tradewind.model.records import dataclass

__all__ = ["LATENESS_MS_MAX", "PathStats", "SkyStats"]

#: Mean lateness above which the emulator, not the network, was the limit. In measurements, this one figure separated
#: every good run from every overloaded one.
LATENESS_MS_MAX = 1.0


@dataclass(frozen=True, slots=True)
class PathStats:
    """One ordered pair of machines since the start or the last reset. Packets are those of the wire, of one MTU each.

    `wire_bytes` and `packets` were accepted by the link; `queue_drops` met a full queue or cap; `lost` were
    lost at random; `cut` met a dead link or machine.
    """

    src: str
    dst: str
    packets: int
    wire_bytes: int
    queue_drops: int
    lost: int
    cut: int


@dataclass(frozen=True, slots=True)
class SkyStats:
    """Statistics of all pairs with traffic, and the lateness of the emulator.

    Lateness is how long after its due time a packet was handed to its machine. `overflows` counts packets that were
    dropped because the emulator's own buffers were full.
    """

    elapsed_s: float
    delivered: int
    lateness_mean_ms: float
    lateness_max_ms: float
    overflows: int
    paths: tuple[PathStats, ...]

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> SkyStats:
        """Return the statistics of the emulator's answer to `stats`."""
        return cls(
            elapsed_s=document["elapsed_us"] / 1e6,
            delivered=document["delivered"],
            lateness_mean_ms=document["late_us_mean"] / 1e3,
            lateness_max_ms=document["late_us_max"] / 1e3,
            overflows=document["overflows"],
            paths=tuple(PathStats(**path) for path in document["paths"]),
        )

    @property
    def invalid(self) -> str | None:
        """Return why measurements over this period are invalid; None if they are valid."""
        if self.overflows:
            return f"the emulator held too many packets and dropped {self.overflows}"
        if self.lateness_mean_ms > LATENESS_MS_MAX:
            return f"packets were {self.lateness_mean_ms:.1f} ms late on average (at most {LATENESS_MS_MAX:.0f} ms)"
        return None

    def check_valid(self) -> None:
        """Raise SkyInvalid if the emulator was overloaded."""
        if self.invalid:
            raise SkyInvalid(
                f"the measurement is invalid: {self.invalid}",
                hint="this machine is too busy for these rates: use a smaller scale, or stop other programs",
            )
