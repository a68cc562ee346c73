"""Remains of an ended fleet at its provider: nothing, or resources that cost money or are clutter."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.errors import TradewindError
from tradewind.fleet.calls import CALL_S, TERMINATE_S, InFlight
from tradewind.fleet.provider import Accountable, CallRefused, Connected, Leftover, Provider, Refusal
from tradewind.model.latch import Latch
from tradewind.model.records import dataclass, field

__all__ = ["Look", "Remains", "lines_after_failure", "look_for_remains"]

#: Attempts to list what is left, and the wait between them.
LOOKS_MAX, LOOK_WAIT_S = 3, 0.5
#: Resources that a line names one by one.
NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class Remains:
    """Remains of a fleet. `looked_for` are kinds of resources, in words; `left` is each that is left, in words.

    `removed` is each that was found and is gone now, in words. `error` says why it is not known what is left.
    """

    fleet: str
    looked_for: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    error: str | None = None
    removed: tuple[str, ...] = field(default=(), compare=False)

    def document(self) -> dict[str, Any]:
        """Return it as a JSON object, without what was removed."""
        return {"fleet": self.fleet, "looked_for": list(self.looked_for), "left": list(self.left), "error": self.error}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Remains:
        """Return it from a JSON object."""
        return cls(document["fleet"], tuple(document["looked_for"]), tuple(document["left"]), document["error"])

    @property
    def is_nothing(self) -> bool:
        """True if it is known that nothing is left."""
        return not self.left and self.error is None


def look_for_remains(provider: Provider, fleet_id: str, in_flight: InFlight) -> Remains | None:
    """Return what is left of an ended fleet; None if its machines cannot leave anything at this provider.

    What is found is removed, and looked for once more: lists may be late, and a resource may have been in use until
    now. The fleet must have ended.
    """
    if not isinstance(provider, Accountable) or not provider.leaves:
        return None
    try:
        found = left = _left(provider, fleet_id, in_flight)
        refusals: dict[str, Refusal] = {}
        if left:
            time.sleep(provider.settles_s)
            refusals = _removed(provider, [one.id for one in left], in_flight)
            left = _left(provider, fleet_id, in_flight)
    except TradewindError as error:
        return Remains(fleet_id, provider.leaves, error=str(error))
    finally:
        if isinstance(provider, Connected):
            provider.disconnect()
    whys = (f" ({why.missing or why.reason})" if (why := refusals.get(one.id)) is not None else "" for one in left)
    names = (f"{one.named} {one.id}" for one in left)
    gone = {one.id: f"{one.named} {one.id}" for one in found}
    for one in left:
        gone.pop(one.id, None)
    told = tuple(map("".join, zip(names, whys, strict=True)))
    return Remains(fleet_id, provider.leaves, told, removed=tuple(gone.values()))


def _removed(provider: Provider, ids: Sequence[str], in_flight: InFlight) -> dict[str, Refusal]:
    """Remove what is left. Return why some of it could not be removed."""
    try:
        answers = in_flight.within(TERMINATE_S, "remove what is left", lambda: provider.terminate(ids))
    except CallRefused as error:
        return dict.fromkeys(ids, error.refusal)
    return {answer.id: answer.refusal for answer in answers if answer.refusal is not None}


def _left(provider: Accountable, fleet_id: str, in_flight: InFlight) -> Sequence[Leftover]:
    for looks in range(LOOKS_MAX):
        try:
            return in_flight.within(CALL_S, "list what is left", lambda: provider.left_of(fleet_id))
        except CallRefused as error:
            if error.refusal.kind not in ("throttled", "transient") or looks == LOOKS_MAX - 1:
                raise
            time.sleep(error.refusal.pause_s(LOOK_WAIT_S))
    raise AssertionError("the last look returns or raises")


def lines_after_failure(remains: Remains) -> list[str]:
    """Return lines about an ended fleet that did not start: none, unless its provider had made something."""
    fleet, lines = remains.fleet, []
    if remains.removed:
        lines.append(f"fleet {fleet} did not start; removed what its provider had made: {_listed(remains.removed)}")
    if remains.left:
        lines.append(
            f"fleet {fleet} did not start, and left {_listed(remains.left)}; `tradewind fleet down {fleet}` removes it"
        )
    if remains.error is not None:
        lines.append(
            f"fleet {fleet} did not start, and what it left is unknown: {remains.error}; "
            "`tradewind fleet sweep` looks again"
        )
    return lines


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


class Look:
    """A look for the remains of a fleet in a thread of its own. `hurried` ends the wait for it."""

    def __init__(self, provider: Provider, fleet_id: str, in_flight: InFlight, hurried: Latch) -> None:
        self._fleet_id, self._hurried = fleet_id, hurried
        self._found: Remains | None = None
        self._is_done = False

        def look() -> None:
            try:
                self._found = look_for_remains(provider, fleet_id, in_flight)
                self._is_done = True
            finally:
                self._answered.set()

        self._answered = Latch()
        threading.Thread(target=look, name=f"remains of {fleet_id}", daemon=True).start()

    def result(self) -> Remains | None:
        """Return the remains; None if there cannot be any."""
        while not self._hurried.is_set() and not self._answered.wait(LOOK_WAIT_S):
            pass
        return self._found if self._is_done else Remains(self._fleet_id, error="the look for it was not finished")
