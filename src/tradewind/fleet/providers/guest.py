"""The machines of a job with a guest: a process of this host, and the user's host, which joins by itself.

A guest is not launched: a desk waits for it, at which its client gets the join document. It costs nothing here, and it
is gone with the process that runs the job.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.errors import GatewayError
from tradewind.fleet.guests import GuestDesk
from tradewind.fleet.processes import Placement
from tradewind.fleet.provider import Ended, Home, Host, LaunchOrder, LaunchResult, Machine
from tradewind.fleet.providers.local import LocalProvider
from tradewind.fleet.sockets import GUESTS
from tradewind.gateway.without_setuid import without_setuid
from tradewind.model.guest import GUEST_REGION, Guest
from tradewind.model.records import dataclass, replace

if TYPE_CHECKING:
    from tradewind.fleet.providers import Settings

__all__ = ["GuestProvider", "connect"]

#: Prefix of the id of a guest's machine.
GUEST_ID = "guest:"


class GuestProvider(LocalProvider):
    """Runs the machines of every region on this host, except that of the guest."""

    kind = "guest"

    def __init__(self, binary: str, folder: Path, guest: Guest, *, logs: Path | None = None) -> None:
        super().__init__(binary, folder, logs=logs)
        self._guest = guest
        #: The guests of fleets of this object, with their desks, by id.
        self._guests: dict[str, tuple[Machine, GuestDesk]] = {}

    def document(self) -> dict[str, Any]:
        """Return the kind and the guest."""
        return {"kind": self.kind, **self._guest.document()}

    def home(self, region: str) -> Home:
        """Return this host, at the address that the guest can reach."""
        return Home(address=self._guest.host, before_end=self._count_sent)

    def _count_sent(self) -> None:
        """Record what guests were sent, by the lead that is also the source."""
        for _, desk in list(self._guests.values()):
            desk.count_sent()

    def _place(self, order: LaunchOrder, taken: Collection[str]) -> Placement:
        return Placement(enter=without_setuid())

    def launch(self, orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
        """Start processes, and open a desk for the guest."""
        ours = [order for order in orders if order.region != GUEST_REGION]
        started = {result.order.key: result for result in super().launch(ours)}
        return [started.get(order.key) or LaunchResult(order, self._expect(order)) for order in orders]

    def _expect(self, order: LaunchOrder) -> Machine:
        machine_id = f"{GUEST_ID}{order.fleet_id}/{order.key}"
        known = self._guests.get(machine_id)
        if known is not None:
            return known[0]
        assert order.join is not None, "the hops of a guest have identities"
        desk = GuestDesk(self._guest.id, order.join, self._folder / order.fleet_id / GUESTS)
        machine = Machine(
            machine_id,
            order.name,
            order.region,
            launched_unix_s=time.time(),
            control=f"unix:{GUESTS}/{order.name}",
            is_guest=True,
            inbound=False,
            lease=order.lease,
            tags=order.tags,
        )
        self._guests[machine_id] = machine, desk
        return machine

    def machines(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """Return processes as the local provider does, and the guests of this object."""
        there = (
            machine if desk.ending() is None else replace(machine, ended=True)
            for machine, desk in list(self._guests.values())
            if tags.items() <= machine.tags.items()
        )
        return (*super().machines(tags), *there)

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        """End processes, and close the desks of guests, whose clients then end their gateways.

        The sink of a guest that sends is ended at once, because what it wrote after it was counted would be free. All
        that a lead has reported as done is written by then.
        """
        counted = [desk.count_last() for _, desk in list(self._guests.values())]
        grace_s = 0.0 if any(counted) else grace_s
        ours = [machine_id for machine_id in ids if not machine_id.startswith(GUEST_ID)]
        ended = {answer.id: answer for answer in super().terminate(ours, grace_s=grace_s)}
        for machine_id in ids:
            if machine_id.startswith(GUEST_ID):
                if machine_id in self._guests:
                    self._guests.pop(machine_id)[1].close()
                ended[machine_id] = Ended(machine_id, time.time())
        return [ended[machine_id] for machine_id in ids]

    def host(self, machine: Machine) -> Host | None:
        """Return what is known of a guest; access to a process of this host."""
        if not machine.is_guest:
            return super().host(machine)
        found = self._guests.get(machine.id)
        return None if found is None else _GuestHost(found[1])


@dataclass(frozen=True, slots=True)
class _GuestHost:
    """A guest's host, to which nobody here has access."""

    desk: GuestDesk

    def put(self, name: str, content: bytes) -> str:
        """Raise GatewayError."""
        raise GatewayError("no file can be written to the host of a guest")

    def run(self, words: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Raise GatewayError."""
        raise GatewayError("no command can be run on the host of a guest")

    def log_tail(self, bytes_max: int) -> str:
        """Return nothing: the log stays on the guest's host."""
        return ""

    def ending(self, timeout_s: float) -> str | None:
        """Describe how the guest has gone. Raises GuestAbsent if it did not join in time."""
        self.desk.require_joining()
        deadline_s = time.monotonic() + timeout_s
        while (how := self.desk.ending()) is None and time.monotonic() < deadline_s:
            time.sleep(0.1)
        return how


def connect(document: Mapping[str, Any], settings: Settings) -> GuestProvider:
    """Return the provider of a job with a guest."""
    return GuestProvider(settings.binary, settings.folder, Guest.from_document(document), logs=settings.logs)
