"""Machines of a sky: an emulated WAN between network namespaces of this host."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.fleet.processes import Placement, ProcessProvider
from tradewind.fleet.provider import ANY_TYPE, CallRefused, Ended, Home, LaunchOrder, Offer, Quota, Refusal
from tradewind.model.locks import LOOK_EVERY_S, FileLock
from tradewind.sky.folders import remove_left
from tradewind.sky.running import Sky

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tradewind.fleet.providers import Settings

__all__ = ["SkyProvider", "connect"]

#: File in the folder of a sky that is locked while gateways are placed.
PLACING_LOCK = "placing.lock"


class SkyProvider(ProcessProvider):
    """Runs the machines of a fleet on those of a sky. Each machine of the sky is a zone of its region.

    A fleet has at most one machine in a zone. Several fleets may share a machine of the sky, as tenants share a host: a
    gateway is started where the fewest run. The sky is attached when first needed, so that machines can be listed and
    ended after it is down.
    """

    kind = "sky"

    def __init__(self, sky_folder: Path, settings: Settings) -> None:
        super().__init__(settings.binary, settings.folder, logs=settings.logs)
        self._sky_folder = sky_folder
        self._attached: Sky | None = None

    @property
    def _sky(self) -> Sky:
        """The running sky. Raises SkyError if it is not running."""
        if self._attached is None:
            self._attached = Sky.attach(self._sky_folder)
        return self._attached

    def document(self) -> dict[str, Any]:
        """Return the kind, and the folder of the sky."""
        return {"kind": self.kind, "sky": str(self._sky_folder)}

    def home(self, region: str) -> Home:
        """Return the first machine of the source's region, as if the client ran there."""
        there = self._sky.machines_in(region)
        if not there:
            raise CallRefused(_no_more(region, 0))
        return Home(tuple(self._sky.command(there[0].name, [])), there[0].address)

    def offers(self, regions: Collection[str]) -> tuple[Offer, ...]:
        """Return one free offer per region. The sky's catalog has the prices of the emulated machines."""
        by_region = {region: self._sky.machines_in(region) for region in regions}
        return tuple(
            Offer(region, ANY_TYPE, price_source="the sky file", zones=tuple(machine.name for machine in there))
            for region, there in by_region.items()
            if there
        )

    def quota(self, region: str) -> Quota | None:
        """Return the number of the sky's machines in the region."""
        return Quota(len(self._sky.machines_in(region)))

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        """End gateways, and remove the leftover folder of a sky that is down by now."""
        ended = super().terminate(ids, grace_s=grace_s)
        remove_left(self._sky_folder)
        return ended

    @contextmanager
    def _placement(self) -> Iterator[None]:
        """Hold a lock of the sky: launches of other fleets would choose the same machines."""
        with super()._placement():
            lock = self._placing_lock()
            try:
                yield
            finally:
                if lock is not None:
                    lock.release()

    def _placing_lock(self) -> FileLock | None:
        """Wait for the lock; return None if the sky is down, which the placement reports."""
        try:
            while (lock := FileLock.take(self._sky_folder / PLACING_LOCK)) is None:
                time.sleep(LOOK_EVERY_S)
        except FileNotFoundError:
            return None
        return lock

    def _place(self, order: LaunchOrder, taken: Collection[str]) -> Placement:
        there = self._sky.machines_in(order.region)
        free = [machine for machine in there if machine.name not in taken and order.zone in (None, machine.name)]
        if not free:
            raise CallRefused(_no_more(order.region, len(there)))
        states = {name: machine.state for name, machine in self._sky.describe().items()}
        running = [machine for machine in free if states[machine.name] == "running"]
        if not running:
            names = ", ".join(f"{machine.name} is {states[machine.name]}" for machine in free)
            raise CallRefused(Refusal("capacity", f"no machine can be started in {order.region}: {names}"))
        loads = Counter(machine.zone for machine in self.machines({}) if not machine.ended)
        machine = min(running, key=lambda one: loads[one.name])
        return Placement(
            tuple(self._sky.command(machine.name, [])), "sky", machine.address, machine.name, machine.inbound
        )


def _no_more(region: str, count: int) -> Refusal:
    return Refusal("quota", f"the sky has no free machine in {region}: it has {count} there")


def connect(document: Mapping[str, Any], settings: Settings) -> SkyProvider:
    """Return the provider of the sky that the document names."""
    return SkyProvider(Path(document["sky"]), settings)
