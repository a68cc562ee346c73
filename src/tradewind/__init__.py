"""Tradewind moves bulk data between object stores and proves that every byte arrived.

`__all__` lists the public names. They are loaded on first use, so importing the package is fast.
"""

from __future__ import annotations

from tradewind._version import __version__

#: For type checkers alone, which know the name. Until `main` runs, Ctrl-C prints a traceback, and `typing` is a third
#: of the time until then.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from tradewind import errors
    from tradewind.engine.client import Client, copy, frontier, plan, sync
    from tradewind.engine.engine import Engine, Job
    from tradewind.engine.jobs import JobRecord
    from tradewind.engine.proposal import Proposal, Request
    from tradewind.engine.request import Options
    from tradewind.engine.result import Result
    from tradewind.engine.running import RunningJob
    from tradewind.model.event import (
        DestinationSummary,
        Event,
        HopActivity,
        LimitChanged,
        Notice,
        ObjectFailed,
        Progress,
        StageLimits,
        Summary,
        WouldCopy,
        WouldDelete,
    )
    from tradewind.model.hosts import SshHost, SshHosts
    from tradewind.model.job import AttributeRules, FilterRule, ObjectFilter, Preserve
    from tradewind.model.sites import Cloud, FleetTable, Sites
    from tradewind.model.store import Access
    from tradewind.render.picture import Picture
    from tradewind.render.plans import MulticastPlan, TransferFrontier, TransferPlan

__all__ = [
    "Access",
    "AttributeRules",
    "Client",
    "Cloud",
    "DestinationSummary",
    "Engine",
    "Event",
    "FilterRule",
    "FleetTable",
    "HopActivity",
    "Job",
    "JobRecord",
    "LimitChanged",
    "MulticastPlan",
    "Notice",
    "ObjectFailed",
    "ObjectFilter",
    "Options",
    "Picture",
    "Preserve",
    "Progress",
    "Proposal",
    "Request",
    "Result",
    "RunningJob",
    "Sites",
    "SshHost",
    "SshHosts",
    "StageLimits",
    "Summary",
    "TransferFrontier",
    "TransferPlan",
    "WouldCopy",
    "WouldDelete",
    "__version__",
    "copy",
    "errors",
    "frontier",
    "plan",
    "sync",
]

_HOMES = {
    "Access": "tradewind.model.store",
    "AttributeRules": "tradewind.model.job",
    "Client": "tradewind.engine.client",
    "Cloud": "tradewind.model.sites",
    "DestinationSummary": "tradewind.model.event",
    "MulticastPlan": "tradewind.render.plans",
    "Engine": "tradewind.engine.engine",
    "Event": "tradewind.model.event",
    "FilterRule": "tradewind.model.job",
    "FleetTable": "tradewind.model.sites",
    "HopActivity": "tradewind.model.event",
    "Job": "tradewind.engine.engine",
    "JobRecord": "tradewind.engine.jobs",
    "LimitChanged": "tradewind.model.event",
    "Notice": "tradewind.model.event",
    "ObjectFailed": "tradewind.model.event",
    "ObjectFilter": "tradewind.model.job",
    "Options": "tradewind.engine.request",
    "Picture": "tradewind.render.picture",
    "Preserve": "tradewind.model.job",
    "Progress": "tradewind.model.event",
    "Proposal": "tradewind.engine.proposal",
    "Request": "tradewind.engine.proposal",
    "Result": "tradewind.engine.result",
    "RunningJob": "tradewind.engine.running",
    "Sites": "tradewind.model.sites",
    "SshHost": "tradewind.model.hosts",
    "SshHosts": "tradewind.model.hosts",
    "StageLimits": "tradewind.model.event",
    "Summary": "tradewind.model.event",
    "TransferFrontier": "tradewind.render.plans",
    "TransferPlan": "tradewind.render.plans",
    "WouldCopy": "tradewind.model.event",
    "WouldDelete": "tradewind.model.event",
    "copy": "tradewind.engine.client",
    "frontier": "tradewind.engine.client",
    "plan": "tradewind.engine.client",
    "sync": "tradewind.engine.client",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "errors":
        return import_module("tradewind.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'tradewind' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
