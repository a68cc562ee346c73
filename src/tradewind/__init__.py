"""Tradewind moves bulk data between object stores and proves that every byte arrived.

`__all__` lists the public names. They are loaded on first use, so importing the package costs almost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tradewind._version import __version__

if TYPE_CHECKING:
    from tradewind import errors
    from tradewind.model.event import (
        DestinationSummary,
        Event,
        HopActivity,
        Notice,
        ObjectFailed,
        Progress,
        Summary,
        WouldCopy,
        WouldDelete,
    )
    from tradewind.model.job import FilterRule, ObjectFilter
    from tradewind.model.store import Access
    from tradewind.planning.api import frontier, plan
    from tradewind.planning.picture import Picture
    from tradewind.planning.plans import DistributionPlan, TransferFrontier, TransferPlan
    from tradewind.transfer.client import Client, copy, sync
    from tradewind.transfer.jobs import JobRecord
    from tradewind.transfer.request import Options
    from tradewind.transfer.running import Result, RunningJob

__all__ = [
    "Access",
    "Client",
    "DestinationSummary",
    "DistributionPlan",
    "Event",
    "FilterRule",
    "HopActivity",
    "JobRecord",
    "Notice",
    "ObjectFailed",
    "ObjectFilter",
    "Options",
    "Picture",
    "Progress",
    "Result",
    "RunningJob",
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
    "Client": "tradewind.transfer.client",
    "DestinationSummary": "tradewind.model.event",
    "DistributionPlan": "tradewind.planning.plans",
    "Event": "tradewind.model.event",
    "FilterRule": "tradewind.model.job",
    "HopActivity": "tradewind.model.event",
    "JobRecord": "tradewind.transfer.jobs",
    "Notice": "tradewind.model.event",
    "ObjectFailed": "tradewind.model.event",
    "ObjectFilter": "tradewind.model.job",
    "Options": "tradewind.transfer.request",
    "Picture": "tradewind.planning.picture",
    "Progress": "tradewind.model.event",
    "Result": "tradewind.transfer.running",
    "RunningJob": "tradewind.transfer.running",
    "Summary": "tradewind.model.event",
    "TransferFrontier": "tradewind.planning.plans",
    "TransferPlan": "tradewind.planning.plans",
    "WouldCopy": "tradewind.model.event",
    "WouldDelete": "tradewind.model.event",
    "copy": "tradewind.transfer.client",
    "frontier": "tradewind.planning.api",
    "plan": "tradewind.planning.api",
    "sync": "tradewind.transfer.client",
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
