"""Programs of Debian packages, installed when they are first needed, if this is root on Debian."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from testbed.servers.install import InstallError

__all__ = ["debian_program"]

PACKAGES = {
    "globus-gridftp-server": "globus-gridftp-server-progs",
    "globus-url-copy": "globus-gass-copy-progs",
    "bash": "bash",
    "fish": "fish",
    "haproxy": "haproxy",
    "iperf3": "iperf3",
    "nft": "nftables",
    "initdb": "postgresql",
    "nginx": "libnginx-mod-stream",
    "postgres": "postgresql",
    "socat": "socat",
    "ssh": "openssh-client",
    "sshd": "openssh-server",
    "stunnel": "stunnel4",
    "tcsh": "tcsh",
}
"""Debian package of each program."""
APT_TIMEOUT_S = 600


def debian_program(program: str) -> str:
    """Return the path of a Debian package's program; install it if we are root. Raises InstallError."""
    if found := _find(program):
        return found
    package = PACKAGES[program]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise InstallError(f"{program} is not installed; as root: apt-get install {package}")
    # Parallel tests wait for each other: apt-get refuses to run twice.
    with open(Path(tempfile.gettempdir(), "tradewind-apt.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if found := _find(program):
            return found
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", package]):
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=APT_TIMEOUT_S, check=False
            )
        if done.returncode != 0 or not (found := _find(program)):
            raise InstallError(f"apt-get install {package} failed: {done.stderr.strip().splitlines()[-1:]}")
    return found


def _find(program: str) -> str | None:
    # Debian keeps PostgreSQL's programs apart, by version.
    versions = sorted(str(folder) for folder in Path("/usr/lib/postgresql").glob("*/bin"))
    return shutil.which(program, path=":".join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", *versions]))
