"""Proxies that misbehave on command, for fault drills against real servers and real gateways.

``HttpProxy`` stands before an object store and gets a :class:`Rule` for each fault. ``TcpProxy``
stands between two gateways and knows nothing of what it carries. Both run in threads of the test's own process, so that
a test programs them with plain calls while the transfer runs, and both keep a record that tests can wait on.
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
