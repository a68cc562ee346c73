"""Lines about the remains of the machines of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tradewind.engine.remains import Remains


def left_lines(remains: Sequence[Remains]) -> list[str]:
    """Return the lines about what is left of the fleets of a run; none for a run without rented machines."""
    if not remains:
        return []
    from tradewind.engine.remains import remains_lines

    return [f"left    {line}" for line in remains_lines(remains)]
