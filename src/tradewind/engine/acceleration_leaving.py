"""Proxies of a running acceleration whose machines the cloud takes back."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from tradewind.engine.acceleration_course import Leaving
from tradewind.engine.leaving import LEAVING_PAUSE_S

if TYPE_CHECKING:
    from tradewind.model.split import SplitStatus

__all__ = ["TAKEN_BACK", "LeavingProxies"]

#: Why such a proxy gets no new connections.
TAKEN_BACK = "the cloud takes its machine back"


class LeavingProxies:
    """Asks from time to time which machines leave. `ask` returns the time for which each still works [s], by name."""

    def __init__(self, ask: Callable[[], Mapping[str, float]]) -> None:
        self._ask = ask
        self._asked_s = -math.inf
        #: Time at which each works no more.
        self._until_s: dict[str, float] = {}

    def look(self, now_s: float) -> Collection[str]:
        """Return their names."""
        if now_s >= self._asked_s + LEAVING_PAUSE_S:
            self._asked_s = now_s
            self._until_s = {name: now_s + left_s for name, left_s in self._ask().items()}
        return self._until_s.keys()

    def renewed(self, name: str) -> None:
        """Note that a proxy has a new machine."""
        self._until_s.pop(name, None)

    def of(
        self,
        names: Collection[str],
        looks: Mapping[str, SplitStatus | str],
        paths: Collection[tuple[str, ...]],
        now_s: float,
    ) -> tuple[Leaving, ...]:
        """Return those among `names`, with the time that is left and whether they are drained.

        A drained one is on none of the present `paths`, and its last connection has ended.
        """
        used = {name for path in paths for name in path}
        return tuple(
            Leaving(name, max(0.0, until_s - now_s), name not in used and _is_idle(looks.get(name)))
            for name, until_s in self._until_s.items()
            if name in names
        )


def _is_idle(look: SplitStatus | str | None) -> bool:
    return look is not None and not isinstance(look, str) and look.open == 0
