"""The state of one proxy of an acceleration, from its status and its kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.model.records import replace

if TYPE_CHECKING:
    from tradewind.engine.acceleration_kernels import ProxyKernel
    from tradewind.model.acceleration import ProxyState
    from tradewind.model.split import SplitStatus

__all__ = ["proxy_state"]


def proxy_state(state: ProxyState, status: SplitStatus | None, kernel: ProxyKernel | None) -> ProxyState:
    """Return the state with the counts of the latest status, and with what the kernel allows, where they are known."""
    if kernel is not None:
        state = replace(
            state,
            receive_window_bytes=kernel.receive_window_bytes,
            send_window_bytes=kernel.send_window_bytes,
            congestion_control=kernel.congestion_control,
        )
    if status is None:
        return state
    return replace(
        state,
        open=status.open,
        bytes_up=status.bytes_up,
        bytes_down=status.bytes_down,
        refused=sum(status.refused.values()),
    )
