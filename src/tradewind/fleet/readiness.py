"""Wait until machines answer, all at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from tradewind.errors import GatewayError, GatewayLost, TradewindError
from tradewind.fleet.calls import each_of
from tradewind.fleet.provider import Machine, Provider
from tradewind.gateway.client import GatewayClient
from tradewind.model.latch import Latch
from tradewind.model.plan import GatewayAddress

__all__ = ["Readiness"]

#: Interval at which a machine is tried: the first, and the longest, which is half as long again each time.
POLL_S_MIN = 0.005
POLL_S_MAX = 0.25
#: A machine is waited for this long before it is tried again; one that boots may accept connections and not answer.
ANSWER_S_MAX = 5.0
#: The first time it is waited for only so long, because it may have ended instead.
ANSWER_S_MIN = 1.0
#: Interval at which the provider is asked for what it does not know yet: addresses, and whether a machine has ended.
LIST_S = 1.0
#: End of a gateway's log that is shown if it does not start.
TAIL_BYTES = 2000
#: Machines that are waited for at the same time: all of a fleet.
AT_ONCE_MAX = 1024


class Readiness:
    """Waits for machines of a fleet.

    `listed` asks the provider for all of them; `reach` returns the control address of one, or None while there is none;
    `trouble` returns what else is known of one that does not answer.
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
        self, machines: Sequence[Machine], deadline_s: float, on_ready: Callable[[Machine, GatewayAddress], None]
    ) -> None:
        """Call `on_ready` for each machine when it answers, with what the provider says of it by then.

        Raises GatewayError as soon as one of them ends; GatewayLost if one does not answer by the deadline (monotonic).
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

    def _wait_one(self, machine: Machine, deadline_s: float) -> tuple[Machine, GatewayAddress]:
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
                    return self._present(machine), GatewayAddress(control, said.get("data_address"), machine.inbound)
                except GatewayLost as error:
                    why = str(error)
                answer_s = min(ANSWER_S_MAX, answer_s * 1.5)
            self._require_alive(machine)
            self._failed.wait(min(poll_s, max(0.0, deadline_s - time.monotonic())))
            poll_s = min(POLL_S_MAX, poll_s * 1.5)
            machine = self._present(machine)
        raise GatewayError(f"machine {machine.name}: another machine of the fleet failed")

    def _require_alive(self, machine: Machine) -> None:
        """Raises GatewayError, with the end of its log if it can be read, for a machine that has ended."""
        host = self._provider.host(machine)
        how = None if host is None else host.ending(0.0)
        if how is not None or machine.ended or self._is_unlisted(machine):
            log = "" if host is None else host.log_tail(TAIL_BYTES)
            raise GatewayError(f"gateway {machine.name} did not start: {log or how or 'its machine has ended'}")

    def _is_unlisted(self, machine: Machine) -> bool:
        """Return whether the provider had time to list a machine, and does not."""
        settled = time.monotonic() >= self._began_s + self._provider.settles_s + LIST_S
        return settled and self._found is not None and machine.id not in self._found

    def _present(self, machine: Machine) -> Machine:
        """Return what the provider says of a machine, asked for at most every LIST_S."""
        with self._listing:
            if time.monotonic() >= self._next_listing_s:
                try:
                    self._found = {found.id: found for found in self._listed()}
                except TradewindError:
                    pass  # It is asked again, until the deadline.
                self._next_listing_s = time.monotonic() + LIST_S
        return (self._found or {}).get(machine.id, machine)
