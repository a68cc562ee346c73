"""Regions and links that are closed while a transfer runs, and when it moves its traffic off them. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator

from tradewind.model.plan import Plan
from tradewind.model.records import dataclass, field
from tradewind.model.region import Region

__all__ = ["MOVES_MAX", "MOVE_PAUSE_S", "ClosedPlaces", "Moves"]

#: Attempts to move off the same closed places, and the time between two: a cloud may refuse the machines.
MOVES_MAX = 5
MOVE_PAUSE_S = 20.0


@dataclass(frozen=True, slots=True)
class ClosedPlaces:
    """Regions in which plans have no machines, except at source and destination, and links that they do not use."""

    regions: Collection[Region] = field(default_factory=frozenset)
    links: Collection[tuple[Region, Region]] = field(default_factory=frozenset)

    def used_by(self, plan: Plan) -> tuple[str, ...]:
        """Return the closed places on the routes of a plan, as text, each once."""
        return tuple(dict.fromkeys(self._used_by(plan)))

    def _used_by(self, plan: Plan) -> Iterator[str]:
        places = {gateway.name: Region.parse(gateway.region) for gateway in plan.gateways}
        for route in plan.routes:
            regions = [places[name] for name in route.nodes]
            yield from (f"region {one}" for one in regions[1:-1] if one in self.regions)
            hops = itertools.pairwise(regions)
            yield from (f"link {src} → {dst}" for src, dst in hops if (src, dst) in self.links)


class Moves:
    """The closed places of a running transfer, and its attempts to move off them.

    Any thread may call `close`; the others belong to the thread that follows the progress.
    """

    def __init__(self) -> None:
        self._told: ClosedPlaces | None = None
        #: The places that the attempts are for. None: nobody has said what is closed.
        self.closed: ClosedPlaces | None = None
        self._left, self._next_s = MOVES_MAX, 0.0

    def close(self, closed: ClosedPlaces) -> None:
        """Set what is closed from now on, instead of what was."""
        self._told = closed

    def due(self, plan: Plan, now_s: float) -> tuple[str, ...]:
        """Return the closed places that the plan uses, if it is time to move off them."""
        if self._told != self.closed:
            self.closed, self._left, self._next_s = self._told, MOVES_MAX, 0.0
        if self.closed is None or self._left == 0 or now_s < self._next_s:
            return ()
        return self.closed.used_by(plan)

    def begin(self, now_s: float) -> None:
        """Count an attempt."""
        self._left, self._next_s = self._left - 1, now_s + MOVE_PAUSE_S

    def end(self) -> None:
        """Try no more until other places are closed: there is no other route."""
        self._left = 0
