"""The largest TCP windows of running gateways: what the kernels of their machines give a connection.

A pod on the host's network cannot change the settings of its node, and others may not have been changed.
"""

from __future__ import annotations

import re
from pathlib import Path

from tradewind.errors import GatewayError
from tradewind.fleet.calls import each_of
from tradewind.fleet.sockets import ControlFolder, socket_names
from tradewind.gateway.client import GatewayClient
from tradewind.model.records import dataclass

__all__ = ["TcpWindows", "tcp_windows"]

#: Maximum wait for a gateway's answer.
ANSWER_S = 2.0
#: The metric of a gateway (control/metrics.rs).
_METRIC = re.compile(r'^tradewind_tcp_window_max_bytes\{direction="(receive|send)"\} (\S+)$', re.M)


@dataclass(frozen=True, slots=True)
class TcpWindows:
    """The largest windows of one gateway [bytes]."""

    name: str
    receive_bytes: int
    send_bytes: int


def tcp_windows(fleet_folder: Path) -> list[TcpWindows]:
    """Return the windows of the gateways of a fleet that answer, by name."""
    names = socket_names(fleet_folder)
    if not names:
        return []
    control = ControlFolder(fleet_folder)
    try:
        found = each_of(names, lambda name: _windows(name, control.address(name)))
    finally:
        control.close()
    return [one for one in found if one is not None]


def _windows(name: str, address: str) -> TcpWindows | None:
    try:
        metrics = GatewayClient(address).metrics(ANSWER_S)
    except (GatewayError, OSError):
        return None
    found = {direction: int(float(value)) for direction, value in _METRIC.findall(metrics)}
    return TcpWindows(name, found["receive"], found["send"]) if len(found) == 2 else None
