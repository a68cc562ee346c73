"""How long machines took to start, in words and for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tradewind.model.units import format_count

if TYPE_CHECKING:
    from tradewind.engine.fleets import Boot

__all__ = ["boot_lines", "boots_document"]


def boot_lines(boots: Sequence[Boot]) -> Iterator[str]:
    """Yield one line that says how long machines took to start: the slowest of them, by phase. If some moved no bytes,
    such as those of a start that was given up, it is the slowest of the others.
    """
    if boots:
        used = [boot for boot in boots if boot.first_byte_unix_s is not None] or boots
        slowest = max(used, key=lambda boot: boot.took_s)
        which = "slowest" if len(used) == len(boots) else "slowest that moved bytes"
        yield f"started {format_count(len(boots), 'machine')}; the {which} was {slowest} after its order"


def boots_document(boots: Sequence[Boot]) -> dict[str, Any]:
    """Return the starts of machines as an entry of a JSON document; none without machines."""
    return {"machines": [boot.document() for boot in boots]} if boots else {}
