"""The state of the proxies of an acceleration, from their status and their kernels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tradewind.acceleration.restarting_counts import RestartingCounts
from tradewind.model.records import replace

if TYPE_CHECKING:
    from tradewind.engine.acceleration_kernels import ProxyKernel
    from tradewind.model.acceleration import ProxyState
    from tradewind.model.split import SplitStatus

__all__ = ["ProxyCounts", "proxy_state"]


class ProxyCounts:
    """The bytes and refused connections of each proxy, over all its machines.

    `former` are the states of proxies before the acceleration was resumed, which count on.
    """

    def __init__(self, former: Iterable[ProxyState] = ()) -> None:
        self._counts = {
            proxy.name: RestartingCounts.since(proxy.bytes_up, proxy.bytes_down, proxy.refused) for proxy in former
        }

    def seen(self, name: str, status: SplitStatus) -> None:
        """Take in the status of the present machine."""
        counts = self._counts.get(name, RestartingCounts.since(0, 0, 0))
        self._counts[name] = counts.seen((status.bytes_up, status.bytes_down, sum(status.refused.values())))

    def renewed(self, name: str) -> None:
        """Record that a proxy has a new machine."""
        if name in self._counts:
            self._counts[name] = self._counts[name].renewed()

    def state(self, state: ProxyState) -> ProxyState:
        """Return the state with the counts."""
        if state.name not in self._counts:
            return state
        up, down, refused = self._counts[state.name].totals
        return replace(state, bytes_up=up, bytes_down=down, refused=refused)


def proxy_state(state: ProxyState, status: SplitStatus | None, kernel: ProxyKernel | None) -> ProxyState:
    """Return the state with the open connections of the latest status, and with what the kernel allows, where they are
    known.
    """
    if kernel is not None:
        state = replace(
            state,
            receive_window_bytes=kernel.receive_window_bytes,
            send_window_bytes=kernel.send_window_bytes,
            congestion_control=kernel.congestion_control,
        )
    return state if status is None else replace(state, open=status.open)
