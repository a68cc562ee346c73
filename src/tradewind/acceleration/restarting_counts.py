"""Counts of a gateway that may be replaced, after which they begin at zero again. Their totals never fall. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.model.records import dataclass

__all__ = ["RestartingCounts"]


@dataclass(frozen=True, slots=True)
class RestartingCounts:
    """Some counts that rise together: those of former machines, and of the present one."""

    before: tuple[int, ...]
    now: tuple[int, ...]

    @classmethod
    def since(cls, *totals: int) -> RestartingCounts:
        """Return counts that begin with these totals, before anything is seen."""
        return cls(totals, (0,) * len(totals))

    @property
    def totals(self) -> tuple[int, ...]:
        """The counts of all machines."""
        return tuple(map(sum, zip(self.before, self.now, strict=True)))

    def seen(self, counts: Sequence[int]) -> RestartingCounts:
        """Return them after a look at the present machine. If a count is lower than before, it is another machine."""
        has_restarted = any(count < last for count, last in zip(counts, self.now, strict=True))
        return RestartingCounts(self.totals if has_restarted else self.before, tuple(counts))

    def renewed(self) -> RestartingCounts:
        """Return them for a new machine, which counts from zero, perhaps past the last count."""
        return self.since(*self.totals)
