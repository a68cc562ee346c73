"""The demo with emulated clouds. They belong to the testbed, which a checkout of the source code has."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path

from tradewind.errors import SkyUnavailable, UsageError

__all__ = ["run_cloud"]

#: The module that runs the demo, and its file in a checkout.
MODULE = "testbed.cloud_demo"
MODULE_FILE = Path("testbed", "cloud_demo", "__main__.py")
#: In a checkout, this file is src/tradewind/cli/demo_cloud.py.
CHECKOUT = Path(__file__).resolve().parents[3]


def run_cloud(args: Namespace) -> int:
    """Replace this process by the demo. Raises UsageError, and SkyUnavailable without a checkout or root."""
    for option in ("local", "tree", "keep"):
        if getattr(args, option):
            raise UsageError(f"demo --cloud takes no --{option}", hint="`tradewind demo --help` shows the options")
    if not (CHECKOUT / MODULE_FILE).is_file():
        raise SkyUnavailable(
            "demo --cloud needs a checkout of the source code: the emulated clouds are not part of the package",
            hint="in a checkout: `make setup`, then `sudo .venv/bin/tradewind demo --cloud`",
        )
    if os.geteuid() != 0:
        raise SkyUnavailable(
            "demo --cloud needs root: each machine is a network namespace of this host",
            hint="use sudo; `tradewind demo --local` needs no root",
        )
    words = [sys.executable, "-m", MODULE]
    if args.size is not None:
        words += ["--bytes", str(args.size)]
    if args.gateway is not None:
        words += ["--gateway", args.gateway]
    if args.quiet:
        words.append("--quiet")
    path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH"))))
    os.execve(sys.executable, words, {**os.environ, "PYTHONPATH": path})
