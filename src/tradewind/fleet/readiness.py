"""Wait until machines answer, concurrently."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from tradewind.errors import GatewayError, GatewayLost, MachineReclaimed, TradewindError
from tradewind.fleet.calls import each_of
from tradewind.fleet.provider import Machine, Provider
from tradewind.gateway.client import GatewayClient
from tradewind.model.latch import Latch
from tradewind.model.plan import GatewayAddress

__all__ = ["Readiness"]

#: Interval between two attempts to reach a machine. It grows by half with each attempt, up to POLL_S_MAX.
POLL_S_MIN = 0.005
POLL_S_MAX = 0.25
#: Maximum timeout of one attempt: a machine that boots may accept a connection and not answer.
ANSWER_S_MAX = 5.0
#: Timeout of the first attempt. It is short, because the machine may have ended. It grows by half with each attempt.
ANSWER_S_MIN = 1.0
#: Interval of the provider's listings, which show new addresses and ended machines.
LIST_S = 1.0
#: Length of the log's end that is shown if a gateway does not start.
TAIL_BYTES = 2000
#: Addresses of a gateway that listens at all addresses of its machine.
EVERY_ADDRESS = ("0.0.0.0", "[::]")
#: Number of machines to wait for concurrently. It is above the size of any fleet.
AT_ONCE_MAX = 1024


class Readiness:
    """Waits for machines of a fleet.

    `listed` returns the provider's listing. `reach` returns the control address of a machine, or None while it is
    unknown. `trouble` returns why a machine does not answer, or None if that is unknown.
    """

    def __init__(
        self,
        provider: Provider,
        listed: Callable[[], Sequence[Machine]],
        closed: Latch,
        reach: Callable[[Machine], str | None] = lambda machine: machine.control,
        trouble: Callable[[Machine], str | None] = lambda _: None,
    ) -> None:
        self._provider, self._listed, self._closed = provider, listed, closed
        self._reach, self._trouble = reach, trouble
        self._failed = threading.Event()
        self._errors: list[TradewindError] = []
        self._listing = threading.Lock()
        self._found: dict[str, Machine] | None = None
        self._began_s = time.monotonic()
        self._next_listing_s = self._began_s + LIST_S

    def wait(
        self,
        machines: Sequence[Machine],
        deadline_s: float,
        on_ready: Callable[[Machine, GatewayAddress, float | None], None],
    ) -> None:
        """Call `on_ready` for each machine when it answers, with the provider's latest listing of it, its address, and
        the time since it began to run its boot script [s]; None if it has none.

        Raises GatewayError as soon as one of them ends, MachineReclaimed if that is a spot machine; GatewayLost if one
        does not answer by the deadline (monotonic).
        """

        def wait_one(machine: Machine) -> None:
            try:
                on_ready(*self._wait_one(machine, deadline_s))
            except TradewindError as error:
                self._errors.append(error)
                self._failed.set()

        each_of(list(machines), wait_one, AT_ONCE_MAX)
        if self._errors:
            raise self._errors[0]

    def _wait_one(self, machine: Machine, deadline_s: float) -> tuple[Machine, GatewayAddress, float | None]:
        poll_s, answer_s, why = POLL_S_MIN, ANSWER_S_MIN, "its address is not known"
        while not self._failed.is_set():
            if self._closed.is_set():
                raise GatewayError(f"machine {machine.name}: the fleet is closed")
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise GatewayLost(self._trouble(machine) or why)
            if (control := self._reach(machine)) is not None:
                try:
                    said = GatewayClient(control).version(min(left_s, answer_s))
                    machine = self._present(machine)
                    data = _reachable(said.get("data_address"), machine)
                    address = GatewayAddress(control, data, machine.inbound, machine.network, machine.data_at_home)
                    booted_ms_ago = said.get("booted_ms_ago")
                    return machine, address, None if booted_ms_ago is None else booted_ms_ago / 1e3
                except GatewayLost as error:
                    why = str(error)
                answer_s = min(ANSWER_S_MAX, answer_s * 1.5)
            self._require_alive(machine)
            self._failed.wait(min(poll_s, max(0.0, deadline_s - time.monotonic())))
            poll_s = min(POLL_S_MAX, poll_s * 1.5)
            machine = self._present(machine)
        raise GatewayError(f"machine {machine.name}: another machine of the fleet failed")

    def _require_alive(self, machine: Machine) -> None:
        """Raise an error if a machine has ended, with the end of its log if it can be read: MachineReclaimed for a spot
        machine, else GatewayError.
        """
        host = self._provider.host(machine)
        how = None if host is None else host.ending(0.0)
        if how is not None or machine.ended or self._is_unlisted(machine):
            log = "" if host is None else host.log_tail(TAIL_BYTES).strip()
            why = how or "its machine has ended"
            message = f"gateway {machine.name} did not start: {why}{f': {log}' if log else ''}"
            raise MachineReclaimed(message, names=[machine.name]) if machine.spot else GatewayError(message)

    def _is_unlisted(self, machine: Machine) -> bool:
        """Return whether the provider does not list a machine although it had time to."""
        settled = time.monotonic() >= self._began_s + self._provider.settles_s + LIST_S
        return settled and self._found is not None and machine.id not in self._found

    def _present(self, machine: Machine) -> Machine:
        """Return the provider's latest listing of a machine, which is updated every LIST_S at most."""
        with self._listing:
            if time.monotonic() >= self._next_listing_s:
                try:
                    self._found = {found.id: found for found in self._listed()}
                except TradewindError:
                    pass  # Retried every LIST_S, until the deadline.
                self._next_listing_s = time.monotonic() + LIST_S
        return (self._found or {}).get(machine.id, machine)


def _reachable(data: str | None, machine: Machine) -> str | None:
    """Return the data address of a gateway that others dial. One that listens at all addresses has its machine's."""
    host, _, port = (data or "").rpartition(":")
    if host not in EVERY_ADDRESS or not machine.addresses:
        return data
    address = next(iter(machine.addresses.values()))
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
