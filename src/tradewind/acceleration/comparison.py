"""Comparison of a flow's proxies with its direct path. Pure: bytes and times in, a path and a reason out.

For `trial_s` of each `every_s`, new connections take the other path. Rates are means over the time in which a path
moved bytes. Proxies that are not better by MARGIN are bypassed, until a trial shows that they are.
"""

from __future__ import annotations

from tradewind.model.records import dataclass

__all__ = ["MARGIN", "TRIAL_EVERY_S", "TRIAL_S", "Comparison", "PathRate"]

TRIAL_EVERY_S = 300.0
TRIAL_S = 10.0
MARGIN = 1.1
"""Proxies must be faster by this factor to be worth their price."""
#: A path is judged when it has moved as many bytes in as much time, and at as many looks: at the first and the last one
#: of a transfer it was idle for a part of the time.
BYTES_MIN, BUSY_S_MIN, LOOKS_MIN = 1_000_000, 2.0, 3
#: Weight of earlier times when a trial has ended: old rates fade.
FADING = 0.5
MBIT = 1e6


@dataclass(slots=True)
class PathRate:
    """Bytes that one path has moved, and the time in which it did."""

    total_bytes: int = 0
    busy_bytes: float = 0.0
    busy_s: float = 0.0
    looks: float = 0.0

    def count(self, total_bytes: int, elapsed_s: float) -> None:
        """Take in the bytes since the start of the proxy, `elapsed_s` after the last call."""
        moved = total_bytes - self.total_bytes
        if moved > 0:
            self.busy_bytes, self.busy_s, self.looks = self.busy_bytes + moved, self.busy_s + elapsed_s, self.looks + 1
        self.total_bytes = total_bytes

    def fade(self) -> None:
        """Let what was counted so far weigh less."""
        self.busy_bytes, self.busy_s, self.looks = (
            each * FADING for each in (self.busy_bytes, self.busy_s, self.looks)
        )

    @property
    def mbps(self) -> float | None:
        """Mean rate [Mbit/s]; None before any byte."""
        return self.busy_bytes * 8 / MBIT / self.busy_s if self.busy_s > 0 else None

    @property
    def is_known(self) -> bool:
        """Return whether it has moved enough to be judged."""
        return self.busy_bytes >= BYTES_MIN and self.busy_s >= BUSY_S_MIN and self.looks >= LOOKS_MIN


class Comparison:
    """The comparison of one flow that was placed on proxies."""

    def __init__(self, began_s: float, every_s: float = TRIAL_EVERY_S, trial_s: float = TRIAL_S) -> None:
        self.proxied, self.direct = PathRate(), PathRate()
        self.bypass: str | None = None
        """Why new connections do not take the proxies; None if they do."""
        self._every_s, self._trial_s = every_s, trial_s
        self._next_s, self._until_s = began_s + every_s, began_s

    def at(self, now_s: float) -> bool:
        """Return whether new connections go direct at this time, and judge both paths at the end of a trial."""
        if now_s >= self._next_s:
            if self.proxied.is_known or self.direct.is_known:
                self._until_s = now_s + self._trial_s
            self._next_s = now_s + self._every_s
        on_trial = now_s < self._until_s
        if not on_trial and self.proxied.is_known and self.direct.is_known:
            self._judge()
        return on_trial != (self.bypass is not None)

    def _judge(self) -> None:
        proxied_mbps, direct_mbps = self.proxied.mbps or 0.0, self.direct.mbps or 0.0
        is_worth = proxied_mbps >= MARGIN * direct_mbps
        rates = f"{proxied_mbps:.3g} Mbit/s with proxies, {direct_mbps:.3g} Mbit/s without"
        self.bypass = None if is_worth else f"proxies gain too little: {rates}"
        (self.direct if self.bypass is None else self.proxied).fade()
