"""Remains of the machines of a job, from its record, and in words."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tradewind.fleet.remains import Remains
from tradewind.model.document import parse_json
from tradewind.state.database import Database

__all__ = ["Remains", "latest_remains", "remains_lines"]


def latest_remains(database: Database, job_id: str) -> list[Remains]:
    """Return what was left of the fleets of a job's latest run, as it was found at its end; nothing if nobody looked.

    Raises StateError.
    """
    last = database.row("SELECT line FROM events WHERE job = ? ORDER BY number DESC LIMIT 1", (job_id,))
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        found = {} if last is None else parse_json(last[0])
        return [Remains.from_document(one) for one in found.get("left") or ()]
    return []


def remains_lines(remains: Sequence[Remains]) -> list[str]:
    """Return lines for the user: that nothing is left and what was looked for, or what is left and how to remove it."""
    lines, clean = [], [one for one in remains if one.is_nothing]
    for one in remains:
        removal = f"`tradewind fleet down {one.fleet}` removes it"
        lines += [f"{thing} of fleet {one.fleet} is left; {removal}" for thing in one.left]
        if one.error is not None:
            unknown = f"what is left of fleet {one.fleet} is unknown: {one.error}"
            lines.append(f"{unknown}; `tradewind fleet sweep` looks again")
    if clean and not lines:
        *most, last = dict.fromkeys(kind for one in clean for kind in one.looked_for)
        kinds = f"{', '.join(most)} or {last}" if most else last
        lines.append(f"nothing is left: no {kinds} of fleet {', '.join(one.fleet for one in clean)}")
    return lines
