"""The connections that the proxies of an acceleration keep ready for each other, from their status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tradewind.model.acceleration import PoolState

if TYPE_CHECKING:
    from tradewind.model.split import SplitStatus

__all__ = ["pools_of"]


def pools_of(statuses: Mapping[str, SplitStatus]) -> Iterator[PoolState]:
    """Yield the state of each hop between two proxies that had flows, by the name of its first one."""
    for start, status in statuses.items():
        for end, hop in sorted(status.hops.items()):
            if hop.taken or hop.missed:
                yield PoolState(
                    start,
                    end,
                    hop.ready,
                    hop.taken,
                    hop.missed,
                    hop.dead,
                    hop.first_byte_ms_taken,
                    hop.first_byte_ms_missed,
                )
