"""Prepare an acceleration: the machines of a sky, the placement on them, and what it is expected to cost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tradewind.acceleration.wiring import client_region, sharing
from tradewind.engine.acceleration_kernels import ProxyKernel, recorded_kernels
from tradewind.engine.acceleration_life import Acceleration
from tradewind.engine.acceleration_placing import PlacedFlows, place_for
from tradewind.engine.accelerations import FLOWS_FILE, Accelerations, TakenOver, flows_text
from tradewind.engine.ground import Ground, ground_of_sites, ground_of_sky, with_places
from tradewind.engine.skies import sky_of
from tradewind.errors import UsageError
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import Keepable
from tradewind.fleet.providers import make_provider
from tradewind.model.flows import flows_from_document
from tradewind.model.records import dataclass, replace
from tradewind.model.toml import parse_toml
from tradewind.render.advice import free_lines
from tradewind.render.placement import PlacementReport

if TYPE_CHECKING:
    from tradewind.engine.job_control import JobControl
    from tradewind.model.sites import Sites

__all__ = ["WantedAcceleration", "acceleration_at_sites", "acceleration_in_sky", "resumed_acceleration"]


@dataclass(frozen=True, slots=True)
class WantedAcceleration:
    """An acceleration that can be started."""

    control: JobControl
    ground: Ground
    text: str
    """Content of the flows file."""
    placed: PlacedFlows
    sky: str | None = None
    """Path of its sky file; None at configured sites."""
    former: TakenOver | None = None
    """The acceleration that it resumes."""

    @property
    def usd_per_period(self) -> float:
        """Expected cost of machines and egress in a period of the flows file."""
        return self.placed.plan.cost_cents / 100

    def lines(self) -> Iterator[str]:
        """Yield what is free, then the placement, with rates and cost."""
        yield from self.ground.notes
        if self.placed.advice is not None:
            yield from free_lines(self.placed.advice)
        yield from PlacementReport(self.placed.plan).lines()
        yield from self._sharing_lines()

    def _sharing_lines(self) -> Iterator[str]:
        """Yield which flows share a path because their connections cannot be told apart."""
        wires = self.placed.wires
        seen: set[str] = set()
        for wire in wires:
            others = sharing(wire, wires)
            if others and wire.name not in seen:
                seen.update(others)
                names = ", ".join((wire.name, *others))
                yield f"{names} share one path: their connections to {wire.target} cannot be told apart"

    def start(self, report: Callable[[str], None], *, usd_max: float | None, lasting_s: float | None) -> Acceleration:
        """Record the acceleration. Its `start` then starts the machines."""
        return Acceleration(
            self.control,
            self.ground,
            self.text,
            self.placed,
            usd_max=usd_max,
            lasting_s=lasting_s,
            sky=self.sky,
            former=self.former,
            report=report,
        )


@contextmanager
def acceleration_in_sky(control: JobControl, flows: str, sky_file: str) -> Iterator[WantedAcceleration]:
    """Yield the acceleration of a flows file in a sky, which is started for the block if it does not run.

    Raises ConfigError, SkyError.
    """
    with _in_sky(control, flows_text(flows), flows, sky_file) as wanted:
        yield wanted


@contextmanager
def resumed_acceleration(
    control: JobControl, acceleration_id: str, sites: Sites | None
) -> Iterator[WantedAcceleration]:
    """Yield an acceleration whose supervisor was killed, as one that can be started where it ran.

    Its machines have ended then. Raises JobBusy, JobNotFound, UsageError, ConfigError, GatewayError, SkyError.
    """
    book = Accelerations(control)
    with book.taken_over(acceleration_id) as former:
        place, sky = str(book.folder / acceleration_id / FLOWS_FILE), former.state.sky
        kernels = tuple(recorded_kernels(former.state.proxies))
        if sky is None:
            yield replace(_at_sites(control, former.flows, place, sites, kernels), former=former)
            return
        with _in_sky(control, former.flows, place, sky, kernels) as wanted:
            yield replace(wanted, former=former)


@contextmanager
def _in_sky(
    control: JobControl, text: str, place: str, sky_file: str, kernels: Iterable[ProxyKernel] = ()
) -> Iterator[WantedAcceleration]:
    with sky_of(sky_file, control.store.state_dir) as sky:
        ground = ground_of_sky(control, sky_file, sky)
        placed = place_for(text, place, ground, kernels)
        yield WantedAcceleration(control, ground, text, placed, os.path.abspath(sky_file))


def acceleration_at_sites(control: JobControl, flows: str, sites: Sites | None) -> WantedAcceleration:
    """Return the acceleration of a flows file on machines of the configured hosts, clusters and clouds.

    Measures the paths from this machine first. Raises ConfigError, UsageError, GatewayError.
    """
    return _at_sites(control, flows_text(flows), flows, sites)


def _at_sites(
    control: JobControl, text: str, flows: str, sites: Sites | None, kernels: Iterable[ProxyKernel] = ()
) -> WantedAcceleration:
    if sites is None or not (sites.hosts.hosts or sites.clouds):
        raise UsageError(
            "the configuration has no machines for proxies",
            hint="`tradewind init` configures hosts and clouds; --sky FILE runs proxies in an emulated WAN",
        )
    wanted = flows_from_document(parse_toml(text.encode(), flows), flows)
    clients = (client_region(flow, f"{flows}: flow {flow.name}") for flow in wanted.flows)
    needed = (*wanted.regions, *dict.fromkeys(region for region in clients if region is not None))
    for region in needed:
        if not sites.has(str(region)):
            raise UsageError(f"the configuration has no machine in {region}", hint=f"it has {sites.describe()}")
    ground = with_places(control, ground_of_sites(control, sites, needed))
    placed = place_for(text, flows, ground, kernels)
    _require_dialled(control, ground, placed)
    return WantedAcceleration(control, ground, text, placed)


def _require_dialled(control: JobControl, ground: Ground, placed: PlacedFlows) -> None:
    """Raise UsageError if machines of a placed proxy call home, because no other gateway can connect to them."""
    provider = make_provider(ground.provider, control.gateway, FleetJournal(control.store.state_dir))
    for region in sorted(set(placed.regions.values())):
        if isinstance(provider, Keepable) and provider.kept_s_max(region) <= 0:
            raise UsageError(
                f"machines in {region} call home, so nothing can connect to a proxy there",
                hint="leave the region out of `regions`, or let its machines accept connections",
            )
