"""The public surface is small, exists, is documented, and costs nothing to import."""

import inspect
import subprocess
import sys

import tradewind


def test_the_public_names() -> None:
    assert tradewind.__all__ == [
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


def test_each_exists_and_is_documented() -> None:
    for name in tradewind.__all__:
        thing = getattr(tradewind, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert inspect.getdoc(thing), name


def test_dir_shows_them_and_nothing_else_is_there() -> None:
    assert dir(tradewind) == sorted(tradewind.__all__)
    assert not hasattr(tradewind, "no_such_name")


def test_importing_the_package_loads_nothing_else() -> None:
    code = "import sys, tradewind; print([m for m in sys.modules if m.startswith('tradewind.') or m == 'argparse'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['tradewind._version']"
