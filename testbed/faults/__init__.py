"""Proxies that misbehave on command, for fault tests with real servers and real gateways.

``HttpProxy`` is placed in front of an object store and has a :class:`Rule` for each fault. ``TcpProxy`` is placed
between two gateways and forwards bytes without interpreting them. Both run in threads of the test's own process, so
that a test controls them with plain calls while the transfer runs. Both keep a record that tests can wait on.
"""

from testbed.faults.http import HttpProxy
from testbed.faults.rules import (
    Action,
    Answer,
    Call,
    Cut,
    Delay,
    Exchange,
    FlipRequest,
    FlipResponse,
    Hang,
    Request,
    Rule,
    Truncate,
)
from testbed.faults.tcp import TcpProxy

__all__ = [
    "Action",
    "Answer",
    "Call",
    "Cut",
    "Delay",
    "Exchange",
    "FlipRequest",
    "FlipResponse",
    "Hang",
    "HttpProxy",
    "Request",
    "Rule",
    "TcpProxy",
    "Truncate",
]
