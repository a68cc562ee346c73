"""Machines of a sky: an emulated WAN between network namespaces of this host."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.fleet.processes import Placement, ProcessProvider
from tradewind.fleet.provider import ANY_TYPE, CallRefused, Ended, Home, LaunchOrder, Offer, Quota, Refusal
from tradewind.sky.folders import remove_left
from tradewind.sky.running import Sky

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tradewind.fleet.providers import Settings

__all__ = ["SkyProvider", "connect"]


class SkyProvider(ProcessProvider):
    """Each machine of a fleet is one of the sky's, which are the zones of their region.

    Two fleets may share one of the sky's machines, as two tenants would. The sky in `folder` is found when it is
    needed: machines of one that is down can still be listed and ended.
    """

    kind = "sky"

    def __init__(self, sky_folder: Path, settings: Settings) -> None:
        super().__init__(settings.binary, settings.folder, logs=settings.logs)
        self._sky_folder = sky_folder
        self._attached: Sky | None = None

    @property
    def _sky(self) -> Sky:
        """Raises SkyError if it is not running."""
        if self._attached is None:
            self._attached = Sky.attach(self._sky_folder)
        return self._attached

    def document(self) -> dict[str, Any]:
        """Return the kind, and the folder by which the sky is found."""
        return {"kind": self.kind, "sky": str(self._sky_folder)}

    def home(self, region: str) -> Home:
        """Return the first machine of the source's region: the client is said to be there."""
        there = self._sky.machines_in(region)
        if not there:
            raise CallRefused(_no_more(region, 0))
        return Home(tuple(self._sky.command(there[0].name, [])), there[0].address)

    def offers(self, regions: Collection[str]) -> tuple[Offer, ...]:
        """Return one offer per region, at no price: what the machines stand for is priced by the sky's catalog."""
        by_region = {region: self._sky.machines_in(region) for region in regions}
        return tuple(
            Offer(region, ANY_TYPE, price_source="the sky file", zones=tuple(machine.name for machine in there))
            for region, there in by_region.items()
            if there
        )

    def quota(self, region: str) -> Quota | None:
        """Return how many machines the sky has there."""
        return Quota(len(self._sky.machines_in(region)))

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        """End gateways; a folder that was made for a sky which is down by now is removed with them."""
        ended = super().terminate(ids, grace_s=grace_s)
        remove_left(self._sky_folder)
        return ended

    def _place(self, order: LaunchOrder, taken: Collection[str]) -> Placement:
        there = self._sky.machines_in(order.region)
        free = [machine for machine in there if machine.name not in taken and order.zone in (None, machine.name)]
        if not free:
            raise CallRefused(_no_more(order.region, len(there)))
        states = {name: machine.state for name, machine in self._sky.describe().items()}
        running = [machine for machine in free if states[machine.name] == "running"]
        if not running:
            names = ", ".join(f"{machine.name} is {states[machine.name]}" for machine in free)
            raise CallRefused(Refusal("capacity", f"no machine starts in {order.region}: {names}"))
        machine = running[0]
        return Placement(
            tuple(self._sky.command(machine.name, [])), "sky", machine.address, machine.name, machine.inbound
        )


def _no_more(region: str, count: int) -> Refusal:
    return Refusal("quota", f"the sky has no further machine in {region}: it has {count}")


def connect(document: Mapping[str, Any], settings: Settings) -> SkyProvider:
    """Return the provider of the sky that the document names."""
    return SkyProvider(Path(document["sky"]), settings)
