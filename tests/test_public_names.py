"""The public names are few, exist, are documented, and are fast to import."""

import inspect
import subprocess
import sys
from dataclasses import FrozenInstanceError, is_dataclass
from typing import Any

import pytest

import tradewind
from tradewind.model.machine import MachineOffer
from tradewind.model.overlay import (
    Cost,
    DistributionTree,
    MulticastOverlay,
    OverlayEdge,
    OverlayRoute,
    RegionMachines,
    UnicastOverlay,
)
from tradewind.model.region import Region
from tradewind.planner.baseline import Alternative
from tradewind.planner.frontier import Segment
from tradewind.planner.multicast import MulticastAlternative
from tradewind.planner.whatif import Improvement

#: Types that public names return.
HELD = (
    Alternative,
    Cost,
    DistributionTree,
    MachineOffer,
    MulticastAlternative,
    MulticastOverlay,
    Improvement,
    OverlayEdge,
    UnicastOverlay,
    OverlayRoute,
    Region,
    RegionMachines,
    Segment,
)


def test_the_public_names() -> None:
    assert tradewind.__all__ == [
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


def test_each_exists_and_is_documented() -> None:
    for name in tradewind.__all__:
        thing = getattr(tradewind, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert inspect.getdoc(thing), name


def test_frozen_types_are_documented_as_frozen() -> None:
    """For frozen classes with slots, Python 3.10 and 3.11 raise a TypeError about `super` for unknown names.

    Figures are mostly properties, so no public type has slots.
    """
    public: list[Any] = [getattr(tradewind, name) for name in tradewind.__all__]
    frozen: list[Any] = [cls for cls in [*public, *HELD] if is_dataclass(cls)]
    assert len(frozen) > 20
    for cls in frozen:
        with pytest.raises(FrozenInstanceError):
            object.__new__(cls).no_such_field = 1


def test_dir_shows_only_them() -> None:
    assert dir(tradewind) == sorted(tradewind.__all__)
    assert not hasattr(tradewind, "no_such_name")


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, tradewind; print([m for m in sys.modules if m.startswith('tradewind.') or m == 'argparse'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['tradewind._version']"
