"""Prepare an acceleration: the machines of a sky, the placement on them, and what it is expected to cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tradewind.engine.acceleration_life import Acceleration, PlacedFlows, place_for
from tradewind.engine.accelerations import flows_text
from tradewind.engine.ground import Ground, ground_of_sky
from tradewind.engine.skies import sky_of
from tradewind.model.records import dataclass
from tradewind.render.placement import PlacementReport

if TYPE_CHECKING:
    from tradewind.engine.job_control import JobControl

__all__ = ["WantedAcceleration", "acceleration_in_sky"]


@dataclass(frozen=True, slots=True)
class WantedAcceleration:
    """An acceleration that can be started."""

    control: JobControl
    ground: Ground
    text: str
    """Content of the flows file."""
    placed: PlacedFlows

    @property
    def usd_per_period(self) -> float:
        """Expected cost of machines and egress in a period of the flows file."""
        return self.placed.plan.cost_cents / 100

    def lines(self) -> Iterator[str]:
        """Yield the placement, with rates and cost."""
        yield from PlacementReport(self.placed.plan).lines()

    def start(self, report: Callable[[str], None], *, usd_max: float | None, lasting_s: float | None) -> Acceleration:
        """Record the acceleration. Its `start` then starts the machines."""
        return Acceleration(
            self.control, self.ground, self.text, self.placed, usd_max=usd_max, lasting_s=lasting_s, report=report
        )


@contextmanager
def acceleration_in_sky(control: JobControl, flows: str, sky_file: str) -> Iterator[WantedAcceleration]:
    """Yield the acceleration of a flows file in a sky, which is started for the block if it does not run.

    Raises ConfigError, SkyError.
    """
    text = flows_text(flows)
    with sky_of(sky_file, control.store.state_dir) as sky:
        ground = ground_of_sky(control, sky_file, sky)
        yield WantedAcceleration(control, ground, text, place_for(text, flows, ground))
